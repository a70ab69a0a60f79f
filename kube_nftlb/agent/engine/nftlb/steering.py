"""Lead clients of this node to endpoints of other nodes, which nftlb's one list of backends per farm cannot do.

With the traffic policy Local nftlb schedules the node's own endpoints. But connections from the node itself, or from
its pods, to an address reached from outside may go to any endpoint: they get their mark in the agent table, before
nftlb would give them one (NftlbFarm, spec.trafficPolicy). Pure: no I/O.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kube_nftlb.agent.endpoints import shares
from kube_nftlb.agent.engine.nftlb.translate import short_name
from kube_nftlb.agent.model import NodeFarm
from kube_nftlb.agent.table import layout
from kube_nftlb.agent.table.traffic_policy import local_clients
from kube_nftlb.api.farm import FarmSpec
from kube_nftlb.netfilter.table_text import ADDRESS_TYPE, Chain, Contents, NamedSet, TableFamily
from kube_nftlb.nftlb import objects

_MASQUERADED = 0x80000000
"""The bit of a connection mark that makes nftlb masquerade (its option -m)."""


class _Slot(NamedTuple):
    mark: int
    weight: int


def contents(farm: NodeFarm, present: objects.Farm | None) -> Contents:
    """Return what leads clients of this node; only to backends that nftlb has in ``present``, and keeps as they are."""
    local, cluster = farm.candidates.local, farm.candidates.cluster
    if farm.refuses or farm.spec.traffic_policy == "Cluster" or not local or cluster == local:
        return Contents()
    backends = present.backends if present is not None else {}
    requested = {short_name(each.backend.name): each.backend.mark for each in farm.endpoints}
    of_mark = {mark: short for short, mark in requested.items() if mark is not None}
    slots = [
        _Slot(backends[short].mark, backend.weight)
        for backend in cluster
        if (short := short_name(backend.name)) in requested and short in backends and backends[short].state != "down"
        if requested[short] in (None, backends[short].mark) and of_mark.get(backends[short].mark, short) == short
    ]
    outside = [each for address in farm.addresses if address.type != "ClusterIP" for each in address.listeners()]
    if not outside or not slots:
        return Contents()
    family = layout.TABLE_FAMILY[farm.spec.family]
    schedule = Chain(f"schedule-{farm.name}", tuple(_schedule(farm.spec, farm.name, family, slots)))
    chain = Chain(
        f"local-clients-{farm.name}", tuple(f"{source} goto {schedule.name}" for source in local_clients(family))
    )
    elements = {layout.listener(layout.NO_ENDPOINTS, listener, f"goto {chain.name}") for listener in outside}
    return Contents(frozenset(elements), (schedule, chain), tuple(_sticky(farm.spec, farm.name, family)))


def _schedule(spec: FarmSpec, farm: str, family: str, slots: Sequence[_Slot]) -> Iterator[str]:
    """Yield the rules that give a new connection the mark of a backend, as nftlb's scheduler would."""
    extra = int(spec.mark or "0", 16) | (_MASQUERADED if spec.mode == "snat" else 0)
    # A tenant chooses the weights, and the rule has a number for each part.
    parts = shares.of_weights([slot.weight for slot in slots], max(shares.NUMBERS_MAX, len(slots)))
    marks = [slot.mark | extra for slot, part in zip(slots, parts, strict=True) for _ in range(part)]
    choice = ", ".join(f"{number} : {mark:#x}" for number, mark in enumerate(marks))
    order = "inc" if spec.scheduler == "rr" else "random"
    schedule = f"ct mark set numgen {order} mod {len(marks)} map {{ {choice} }}"
    # A flow is new until it is answered. Its backend is the first packet's, whatever mark the others would get.
    yield "ct status dnat return"
    if spec.persistence != "srcip":
        yield schedule
        return
    sticky = _sticky_name(spec, farm)
    alive = ", ".join(f"{mark:#x}" for mark in sorted(set(marks)))
    yield f"ct mark set {family} saddr map @{sticky}"
    yield f"ct mark != {{ {alive} }} ct mark set 0"
    yield f"ct mark 0 {schedule}"
    yield f"update @{sticky} {{ {family} saddr : ct mark }}"


def _sticky(spec: FarmSpec, farm: str, family: TableFamily) -> Iterator[NamedSet]:
    if spec.persistence == "srcip":
        declaration = f"type {ADDRESS_TYPE[family]} : mark; flags dynamic,timeout; timeout {spec.persist_ttl}s;"
        yield NamedSet(_sticky_name(spec, farm), declaration, kind="map")


def _sticky_name(spec: FarmSpec, farm: str) -> str:
    """Return a name with the timeout in it, which cannot be changed in an existing map."""
    return f"sticky-{spec.persist_ttl}-{farm}"
