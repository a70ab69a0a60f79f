"""The subjects of measurements: a service proxy and, for kube-nftlb, an engine."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from lab import components
from lab.lab import Lab
from lab.metallb.plan import CONTROLLER, SPEAKER

NFTLB: Final = "kube-nftlb"
NFTABLES: Final = "kube-nftlb nftables"
KUBE_PROXY: Final = "kube-proxy-nftables"
_EAGER: Final = " minSyncPeriod 0"
EAGER: Final = f"{KUBE_PROXY}{_EAGER}"
"""kube-proxy that syncs at each change, instead of once a second."""
METALLB: Final = f"{KUBE_PROXY}{components.WITH_METALLB}"
"""MetalLB in L2 mode, which announces what kube-proxy serves."""
METALLB_EAGER: Final = f"{METALLB}{_EAGER}"
ANNOUNCING: Final = (NFTLB, NFTABLES, METALLB, METALLB_EAGER)
"""The subjects that announce addresses of Services."""
NONE: Final = "none"
"""A cluster without a service proxy."""

_BUDGET: Final = {"KUBE_NFTLB_NAMESPACE_FARMS_MAX": "100000"}
"""Scenarios have all their Services in one namespace, and more than a namespace may have by default."""
_ANNOUNCING: Final = {components.ADDRESSES: "on"}
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
    def announces(self) -> bool:
        """True for MetalLB."""
        return self.name in (METALLB, METALLB_EAGER)

    @property
    def settings(self) -> dict[str, dict[str, str]]:
        """The additional settings of the lab's programs."""
        if self.name.endswith(_EAGER):
            # kube-proxy has one flag for its modes iptables and nftables.
            return {"kube-proxy": {"iptables-min-sync-period": "0s"}}
        if (engine := _ENGINES.get(self.name)) is None:
            return {}
        return {"operator": {"KUBE_NFTLB_DEFAULT_ENGINE": engine, **_BUDGET}, "agent": _BUDGET}

    @property
    def programs(self) -> tuple[str, ...]:
        """The programs that implement Services."""
        if not self.ours:
            return ("kube-proxy", SPEAKER, CONTROLLER) if self.announces else ("kube-proxy",)
        return ("operator", "agent", "nftlb") if self.name == NFTLB else ("operator", "agent")

    def lab(self, scenario: str, nodes: int = 1, *, announcing: bool = False, routers: int = 0) -> Lab:
        """Start a lab; ``announcing`` switches on that kube-nftlb assigns and announces addresses.

        With ``routers``, which the client is behind, it announces by BGP.
        """
        # The path of a socket, which has the lab's name, may have 107 characters.
        own = self.name.removeprefix(f"{KUBE_PROXY}+")
        name = f"bench-{scenario}-{own.replace(' ', '-').lower()}"
        further = _ANNOUNCING if announcing and self.ours else {}
        settings = {component: {**values, **further} for component, values in self.settings.items()}
        if routers and self.ours:
            settings[components.AGENT][components.BGP] = "on"
        return Lab.up(name, nodes=nodes, proxy=self.proxy, settings=settings, routers=routers)
