"""Probe for kernel features with transactions that are checked but not committed."""

from kube_nftlb.agent.table.kernel_features import Feature, needed
from kube_nftlb.api.farm import FarmSpec
from kube_nftlb.netfilter.libnftables import Nftables


class FeatureProbe:
    """Probes each feature once in the agent's lifetime."""

    def __init__(self, nft: Nftables) -> None:
        self._nft = nft
        self._supported: dict[Feature, bool] = {}

    async def probe(self, spec: FarmSpec) -> None:
        """Probe what a farm needs, so that ``missing`` is known."""
        for feature in needed(spec):
            if feature not in self._supported:
                self._supported[feature] = await self._nft.check(feature.probe) is None

    def missing(self, spec: FarmSpec) -> str | None:
        """Return the features that the kernel lacks for a farm, or None."""
        return "; ".join(feature.lacking for feature in needed(spec) if not self._supported.get(feature, False)) or None
