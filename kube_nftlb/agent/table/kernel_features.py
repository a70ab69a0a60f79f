"""Optional kernel features that farms need, probed with transactions that are checked but not committed."""

from collections.abc import Iterator
from typing import NamedTuple

from kube_nftlb.agent.clock import Clock, MonotonicClock
from kube_nftlb.agent.table.farm_options import helper_declaration
from kube_nftlb.api.farm import FarmSpec
from kube_nftlb.netfilter.libnftables import Nftables

_AGAIN_S = 30.0
"""Less than after which a farm that needs a missing feature is decided on again (``sync.decide``)."""
_TABLE = "kube-nftlb-probe"


class Feature(NamedTuple):
    """A kernel feature: commands of nft(8) that only a kernel with it accepts, and the message if it is missing."""

    probe: str
    lacking: str


def needed(spec: FarmSpec) -> Iterator[Feature]:
    """Yield the features that a farm requires."""
    if spec.helper != "none":
        option = f"NF_CONNTRACK_{spec.helper.upper().replace('-', '_')}"
        yield Feature(
            f"add table inet {_TABLE}\nadd ct helper inet {_TABLE} probe {{ {helper_declaration(spec)} }}\n",
            f"the helper {spec.helper} needs a kernel with CONFIG_{option} (module {option.lower()})",
        )
    if spec.limits.established is not None or any(each.established is not None for each in spec.backend_options):
        yield Feature(
            f"add table inet {_TABLE}\nadd chain inet {_TABLE} probe\n"
            f"add rule inet {_TABLE} probe ct count over 1 drop\n",
            "limits of established connections need a kernel with CONFIG_NFT_CONNLIMIT (module nft_connlimit)",
        )
    if spec.queue is not None:
        # The same for each of the 65,536 numbers, so that it is remembered once.
        yield Feature(
            f"add table inet {_TABLE}\nadd chain inet {_TABLE} probe\n"
            f"add rule inet {_TABLE} probe queue num 0 bypass\n",
            "queue needs a kernel with CONFIG_NFT_QUEUE and CONFIG_NETFILTER_NETLINK_QUEUE "
            "(modules nft_queue and nfnetlink_queue)",
        )


class FeatureProbe:
    """Probes each feature until the kernel has it: a module may be loaded later, or memory have been short."""

    def __init__(self, nft: Nftables, clock: Clock = MonotonicClock()) -> None:  # noqa: B008 - it has no state
        self._nft = nft
        self._clock = clock
        self._supported: set[Feature] = set()
        self._missing_until: dict[Feature, float] = {}
        """When those are due to be probed again that the kernel did not have, in seconds of the clock."""

    async def probe(self, spec: FarmSpec) -> None:
        """Probe what a farm needs, so that ``missing`` is known."""
        for feature in needed(spec):
            if feature in self._supported or self._clock.now() < self._missing_until.get(feature, 0):
                continue
            if await self._nft.check(feature.probe) is None:
                self._supported.add(feature)
            else:
                self._missing_until[feature] = self._clock.now() + _AGAIN_S

    def missing(self, spec: FarmSpec) -> str | None:
        """Return the features that the kernel lacks for a farm, or None."""
        return "; ".join(feature.lacking for feature in needed(spec) if feature not in self._supported) or None
