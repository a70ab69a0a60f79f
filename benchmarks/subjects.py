"""The subjects of measurements: a service proxy and, for kube-nftlb, an engine."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from lab.lab import Lab

NFTLB: Final = "kube-nftlb"
NFTABLES: Final = "kube-nftlb nftables"
KUBE_PROXY: Final = "kube-proxy-nftables"
EAGER: Final = f"{KUBE_PROXY} minSyncPeriod 0"
"""kube-proxy that syncs at each change, instead of once a second."""
NONE: Final = "none"
"""A cluster without a service proxy."""

_BUDGET: Final = {"KUBE_NFTLB_NAMESPACE_FARMS_MAX": "100000"}
"""Scenarios have all their Services in one namespace, and more than a namespace may have by default."""
_ENGINES: Final[Mapping[str, str]] = {NFTLB: "nftlb", NFTABLES: "nftables"}


class Subject(NamedTuple):
    """A name in the records, with the proxy and the settings of its lab."""

    name: str

    @property
    def proxy(self) -> str:
        """The proxy of the lab."""
        return NFTLB if self.name in _ENGINES else self.name.partition(" ")[0]

    @property
    def ours(self) -> bool:
        """True for kube-nftlb."""
        return self.name in _ENGINES

    @property
    def settings(self) -> dict[str, dict[str, str]]:
        """The additional settings of the lab's programs."""
        if self.name == EAGER:
            # kube-proxy has one flag for its modes iptables and nftables.
            return {"kube-proxy": {"iptables-min-sync-period": "0s"}}
        if (engine := _ENGINES.get(self.name)) is None:
            return {}
        return {"operator": {"KUBE_NFTLB_DEFAULT_ENGINE": engine, **_BUDGET}, "agent": _BUDGET}

    @property
    def programs(self) -> tuple[str, ...]:
        """The programs that implement Services."""
        if not self.ours:
            return ("kube-proxy",)
        return ("operator", "agent", "nftlb") if self.name == NFTLB else ("operator", "agent")

    def lab(self, scenario: str, nodes: int = 1) -> Lab:
        """Start a lab."""
        name = f"bench-{scenario}-{self.name.replace(' ', '-').lower()}"
        return Lab.up(name, nodes=nodes, proxy=self.proxy, settings=self.settings)
