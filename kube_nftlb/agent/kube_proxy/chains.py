"""kube-proxy's chains in the tables of iptables, and what of them can be removed. Pure: no I/O.

The names are those of kube-proxy 1.36 in the modes iptables and ipvs (pkg/proxy/iptables/cleanup.go,
pkg/proxy/ipvs/cleanup.go), and KUBE-XLB- of versions before 1.24. KUBE-FIREWALL of the table filter,
KUBE-KUBELET-CANARY and KUBE-IPTABLES-HINT are the kubelet's, and stay.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from kube_nftlb.netfilter.chains import ForeignChain, Jump

TABLES = ("nat", "filter", "mangle")
SERVICES = "KUBE-SERVICES"
"""The chain of the table nat that leads to those of all Services, in both modes."""
ROOTS = (SERVICES, "KUBE-NODEPORTS")
"""The chains of the table nat that lead from the addresses, and from the node ports, of Services to their chains."""
_MARK, _POSTROUTING = "KUBE-MARK-MASQ", "KUBE-POSTROUTING"

_ENTRIES = {
    "nat": {SERVICES, _POSTROUTING},
    "filter": {
        SERVICES,
        "KUBE-EXTERNAL-SERVICES",
        "KUBE-FORWARD",
        "KUBE-IPVS-FILTER",
        "KUBE-IPVS-OUT-FILTER",
        "KUBE-NODE-PORT",
        "KUBE-NODEPORTS",
        "KUBE-PROXY-FIREWALL",
        "KUBE-SOURCE-RANGES-FIREWALL",
    },
    "mangle": set[str](),
}
"""Those that kube-proxy itself jumps to from the chains of iptables."""
_MORE = {
    "nat": {"KUBE-LOAD-BALANCER", _MARK, "KUBE-NODE-PORT", "KUBE-NODEPORTS"},
    "filter": set[str](),
    "mangle": set[str](),
}
_CANARY = "KUBE-PROXY-CANARY"
_OF_SERVICE = re.compile(r"KUBE-(SVC|SVL|SEP|EXT|FW|XLB)-[A-Z2-7]{16}")


class Removal(NamedTuple):
    """The rules and chains to remove from a table, and the chains that have to stay."""

    jumps: list[Jump]
    """kube-proxy's own rules in chains of iptables."""
    chains: list[str]
    blocked: dict[str, str]
    """Chains of kube-proxy that stay, and the chain of somebody else that leads to them."""


def is_proxys(table: str, chain: str) -> bool:
    """Return True if kube-proxy makes a chain of this name in a table of iptables."""
    named = chain in _ENTRIES[table] or chain in _MORE[table] or chain == _CANARY
    return named or (table == "nat" and is_of_service(chain))


def is_of_service(chain: str) -> bool:
    """Return True if kube-proxy makes a chain of this name for a Service."""
    return _OF_SERVICE.fullmatch(chain) is not None


def removal(table: str, chains: Iterable[ForeignChain], jumps: Iterable[Jump]) -> Removal:
    """Return what to remove: all of kube-proxy's chains, except those that rules of others lead to, directly or not."""
    base = {chain.name for chain in chains if chain.base}
    proxys = {chain.name for chain in chains if not chain.base and is_proxys(table, chain.name)}
    entering = [jump for jump in jumps if jump.target in proxys and jump.chain not in proxys]
    own = [jump for jump in entering if jump.chain in base and jump.target in _ENTRIES[table]]
    blocked = {jump.target: jump.chain for jump in entering if jump not in own}
    leads_to: dict[str, list[str]] = {}
    for jump in jumps:
        if jump.chain in proxys and jump.target in proxys:
            leads_to.setdefault(jump.chain, []).append(jump.target)
    if _MARK in proxys:
        # What is marked there is masqueraded here.
        leads_to.setdefault(_MARK, []).append(_POSTROUTING)
    waiting = list(blocked)
    while waiting:
        chain = waiting.pop()
        for target in leads_to.get(chain, ()):
            if target in proxys and target not in blocked:
                blocked[target] = blocked[chain]
                waiting.append(target)
    gone = sorted(proxys - blocked.keys())
    return Removal([jump for jump in own if jump.target not in blocked], gone, blocked)
