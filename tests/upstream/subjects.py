"""The service proxies that the tests try. Computation only."""

from collections.abc import Sequence
from typing import NamedTuple


class Subject(NamedTuple):
    """A service proxy that the tests try."""

    name: str
    title: str
    proxy: str
    options: Sequence[str] = ()
    """Of the chart; of no meaning to kube-proxy."""


def _ours(engine: str) -> tuple[str, ...]:
    values = {"defaults.mode": "dnat", "defaults.engine": engine, "agent.proxyMode": "true"}
    return tuple(option for key, value in values.items() for option in ("--set", f"{key}={value}"))


SUBJECTS = (
    Subject("kube-proxy", "kube-proxy (nftables)", "kube-proxy-nftables"),
    Subject("kube-nftlb-nftlb", "kube-nftlb (engine nftlb)", "none", _ours("nftlb")),
    Subject("kube-nftlb-nftables", "kube-nftlb (engine nftables)", "none", _ours("nftables")),
)
REFERENCE = SUBJECTS[0]
