"""The groups of a farm in nftlb, which knows none: in the weights of its backends, and the agent table. Pure: no I/O.

A backend has the weight of its group, times its own, divided by those of its group. The numbers of a backend follow
each other, and may be many, so nftlb chooses at random in place of in turn. The share of a group that nobody serves is
refused in the agent table, before nftlb chooses among the others.
"""

from collections.abc import Mapping
from functools import reduce
from math import gcd
from typing import Final

from kube_nftlb.agent.endpoints import shares
from kube_nftlb.agent.model import NodeFarm, NodeGroup
from kube_nftlb.agent.table import layout
from kube_nftlb.api.farm import FarmSpec
from kube_nftlb.netfilter.table_text import Chain, Contents

NUMBERS_MAX: Final = 1 << 20
"""The maximum sum of the weights of a farm with groups, which no group's share is far from with as many backends as
nftlb has marks for: each has a range of numbers in nftlb's rules.
"""

_SCHEDULERS: Final = ("rr", "weight", "hash")
_SEED: Final = 1
_FIELDS: Final = {
    "srcip": "{family} saddr",
    "dstip": "{family} daddr",
    "srcport": "th sport",
    "dstport": "th dport",
    "srcmac": "ether saddr",
    "dstmac": "ether daddr",
}


def unsupported(farm: NodeFarm) -> str | None:
    """Return why nftlb cannot serve a farm with groups, or None if it can, or the farm has none."""
    if not farm.groups:
        return None
    spec = farm.spec
    lacking = (
        (spec.mode not in ("snat", "dnat"), f"the mode {spec.mode}"),
        (spec.persistence != "none", f"persistence {spec.persistence}"),
        (spec.scheduler not in _SCHEDULERS, f"the scheduler {spec.scheduler}"),
        (spec.traffic_policy != "Cluster", f"the traffic policy {spec.traffic_policy}"),
    )
    if named := [name for is_so, name in lacking if is_so]:
        return f"the engine nftlb has no groups in backendsFrom with {' or '.join(named)}; use the engine nftables"
    return None


def weights(farm: NodeFarm) -> Mapping[str, int]:
    """Return the weights of the backends that are scheduled, by name; none if the farm has no groups."""
    wanted = {
        each.backend.name: (group.weight * each.backend.weight, total)
        for group in farm.groups
        if (total := _total(group))
        for each in group.endpoints
        if each.schedulable
    }
    if not wanted:
        return {}
    multiple = reduce(lambda one, other: one * other // gcd(one, other), (total for _, total in wanted.values()), 1)
    exact = [weight * multiple // total for weight, total in wanted.values()]
    return dict(zip(wanted, shares.of_weights(exact, NUMBERS_MAX), strict=True))


def contents(farm: NodeFarm) -> Contents:
    """Return what refuses the shares of the groups that nobody serves."""
    parts = shares.of_weights([each.weight for each in farm.groups])
    refused = sum(share for group, share in zip(farm.groups, parts, strict=True) if group.refuses)
    if farm.refuses or not refused:
        return Contents()
    verdict = layout.DROP if farm.spec.protocol == "UDP" else layout.REFUSE
    family = layout.TABLE_FAMILY[farm.spec.family]
    # A flow is new until it is answered, and is not drawn for again.
    draw = f"{_number(farm.spec, family, sum(parts))} < {refused} {verdict}"
    chain = Chain(f"refused-share-{farm.name}", ("ct status dnat return", draw))
    listeners = farm.listeners
    elements = {layout.listener(layout.NO_ENDPOINTS, each, f"goto {chain.name}") for each in listeners}
    return Contents(frozenset(elements), (chain,))


def _total(group: NodeGroup) -> int:
    return sum(each.backend.weight for each in group.endpoints if each.schedulable)


def _number(spec: FarmSpec, family: str, modulus: int) -> str:
    """Return the expression that chooses one of ``modulus`` numbers, by the same fields as the scheduler."""
    if spec.scheduler != "hash":
        return f"numgen random mod {modulus}"
    names = spec.sched_param.split() if spec.sched_param != "none" else ["srcip"]
    fields = " . ".join(_FIELDS[name].format(family=family) for name in names)
    return f"jhash {fields} mod {modulus} seed {_SEED:#x}"
