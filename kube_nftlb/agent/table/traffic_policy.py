"""What a farm has in the agent's own table: connections that are refused, dropped, led elsewhere, or masqueraded.

nftlb schedules one list of backends per farm. With the traffic policy Local that is the node's own. But what comes from
the node itself, or from its pods, to an address reached from outside may go to any backend: its connections get their
mark here, before nftlb would give them one (NftlbFarm, spec.trafficPolicy). No I/O.
"""

import ipaddress
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kube_nftlb.agent.endpoints.topology import Endpoints
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.table import table as own_table
from kube_nftlb.api.farm import Address, FarmSpec
from kube_nftlb.api.values import AddressType
from kube_nftlb.netfilter.transaction import Chain, Contents, Element, NamedSet
from kube_nftlb.nftlb import layout, objects

_MASQUERADED = 0x80000000
"""The bit of a connection mark that makes nftlb masquerade (its option -m)."""


class Listener(NamedTuple):
    """What a farm listens on: the type of the address, the address itself, and the ranges of those that get in."""

    type: AddressType
    claim: objects.Claim
    ranges: tuple[str, ...] = ()


def allowed(address: Address, facts: NodeFacts) -> tuple[str, ...]:
    """The ranges whose clients get in at an address, without overlaps; nothing where everybody does.

    With the node's own address in one, its processes get in where they have the address itself for a source, too.
    """
    ranges = [ipaddress.ip_network(text) for text in address.source_ranges]
    own = [ipaddress.ip_address(ip) for ips in facts.port_ips.values() for ip in ips]
    if address.ip and any(ip in network for ip in own for network in ranges):
        ranges.append(ipaddress.ip_network(address.ip))
    four = ipaddress.collapse_addresses(network for network in ranges if isinstance(network, ipaddress.IPv4Network))
    six = ipaddress.collapse_addresses(network for network in ranges if isinstance(network, ipaddress.IPv6Network))
    return tuple(str(network) for network in (*four, *six))


def contents(
    spec: FarmSpec,
    farm: objects.Farm,
    listeners: Sequence[Listener],
    endpoints: Endpoints,
    marks: Sequence[tuple[int, int]],
    here: Iterable[str],
) -> Contents:
    """A farm's part of the table.

    ``marks``: mark and weight of those of the cluster's backends that nftlb has. ``here``: the addresses of the
    backends that run on this node.
    """
    guards = _guards(farm, listeners) | _listened(listeners)
    if nobody := refusal(farm):
        return guards | nobody
    masqueraded = Contents(frozenset(_masquerading(spec, listeners, here)))
    if spec.traffic_policy == "Cluster" or endpoints.cluster == endpoints.local:
        return guards | masqueraded
    return guards | masqueraded | _steered(spec, farm, listeners, endpoints, marks)


def refusal(farm: objects.Farm) -> Contents:
    """What a farm without a usable backend has: its new connections are refused, wherever it listens.

    nftlb would let them run into a timeout. In the mode local it is the node that answers.
    """
    if farm.options.get("mode") == "local" or any(backend.state == "up" for backend in farm.backends.values()):
        return Contents()
    return closed(farm)


def closed(farm: objects.Farm) -> Contents:
    """What a farm has that nobody is to reach: its new connections are refused, whatever its backends."""
    return refused(farm.claims())


def refused(claims: Iterable[objects.Claim]) -> Contents:
    """What refuses new connections to these."""
    return Contents(frozenset(own_table.listener(own_table.VERDICTS, claim, own_table.REFUSE) for claim in claims))


def _listened(listeners: Sequence[Listener]) -> Contents:
    return Contents(frozenset(own_table.listener(own_table.LISTENERS, entry.claim) for entry in listeners))


def _guards(farm: objects.Farm, listeners: Sequence[Listener]) -> Contents:
    """Connections from elsewhere than a listener's ranges are dropped, as kube-proxy does."""
    table = layout.family(farm)
    guarded = [entry for entry in listeners if entry.ranges]
    if not guarded:
        return Contents()
    numbers = {ranges: number for number, ranges in enumerate(sorted({entry.ranges for entry in guarded}))}
    chains = tuple(
        Chain(f"ranges-{number}-{farm.name}", (f"{table} saddr {{ {', '.join(ranges)} }} return", "drop"))
        for ranges, number in numbers.items()
    )
    elements = (
        own_table.listener(own_table.RANGES, entry.claim, f"jump ranges-{numbers[entry.ranges]}-{farm.name}")
        for entry in guarded
    )
    return Contents(frozenset(elements), chains)


def _steered(
    spec: FarmSpec,
    farm: objects.Farm,
    listeners: Sequence[Listener],
    endpoints: Endpoints,
    marks: Sequence[tuple[int, int]],
) -> Contents:
    name = farm.name
    inside = {entry.claim for entry in listeners if entry.type == "ClusterIP"}
    outside = {entry.claim for entry in listeners if entry.type != "ClusterIP"}
    table = layout.family(farm)
    near = (f"{table} saddr @{own_table.LOCAL_PODS}-{table}", "fib saddr type local")
    if not endpoints.local:
        # nftlb has all backends; who may not reach them is dropped.
        chain = Chain(f"near-{name}", (*(f"{source} return" for source in near), "drop"))
        verdicts = {own_table.listener(own_table.VERDICTS, claim, own_table.DROP) for claim in inside}
        verdicts |= {own_table.listener(own_table.VERDICTS, claim, f"goto {chain.name}") for claim in outside}
        return Contents(frozenset(verdicts), (chain,) if outside else ())
    if not outside or not marks:
        return Contents()
    pick = Chain(f"pick-{name}", tuple(_pick(spec, farm, table, marks)))
    chain = Chain(f"near-{name}", tuple(f"{source} goto {pick.name}" for source in near))
    verdicts = {own_table.listener(own_table.VERDICTS, claim, f"goto {chain.name}") for claim in outside}
    return Contents(frozenset(verdicts), (pick, chain), tuple(_sticky(spec, farm, table)))


def _pick(spec: FarmSpec, farm: objects.Farm, table: str, marks: Sequence[tuple[int, int]]) -> Iterator[str]:
    """The rules that give a new connection the mark of a backend, as nftlb's scheduler would."""
    extra = int(spec.mark or "0", 16) | (_MASQUERADED if spec.mode == "snat" else 0)
    slots = [mark | extra for mark, weight in marks for _ in range(weight)]
    choice = ", ".join(f"{number} : {mark:#x}" for number, mark in enumerate(slots))
    order = "inc" if spec.scheduler == "rr" else "random"
    schedule = f"ct mark set numgen {order} mod {len(slots)} map {{ {choice} }}"
    # A flow is new until it is answered. Its backend is the first packet's, whatever mark the others would get.
    yield "ct status dnat return"
    if spec.persistence != "srcip":
        yield schedule
        return
    sticky = _sticky_name(spec, farm)
    alive = ", ".join(f"{mark:#x}" for mark in sorted(set(slots)))
    yield f"ct mark set {table} saddr map @{sticky}"
    yield f"ct mark != {{ {alive} }} ct mark set 0"
    yield f"ct mark 0 {schedule}"
    yield f"update @{sticky} {{ {table} saddr : ct mark }}"


def _sticky(spec: FarmSpec, farm: objects.Farm, table: str) -> Iterator[NamedSet]:
    if spec.persistence == "srcip":
        address = "ipv6_addr" if table == "ip6" else "ipv4_addr"
        declaration = f"type {address} : mark; flags dynamic,timeout; timeout {spec.persist_ttl}s;"
        yield NamedSet(_sticky_name(spec, farm), declaration, kind="map", dynamic=True)


def _sticky_name(spec: FarmSpec, farm: objects.Farm) -> str:
    """With the time in it: a map's own cannot be changed."""
    return f"sticky-{spec.persist_ttl}-{farm.name}"


def _masquerading(spec: FarmSpec, listeners: Iterable[Listener], here: Iterable[str]) -> Iterator[Element]:
    """Who takes the node's address on the way to a backend, as with kube-proxy, where nftlb does not do it anyway."""
    if spec.mode != "dnat" or spec.masquerade == "Never":
        return
    for kind, claim, _ in listeners:
        if kind == "ClusterIP":
            yield own_table.listener(own_table.MASQUERADE, claim, own_table.FROM_OUTSIDE)
        elif spec.traffic_policy == "Cluster":
            yield own_table.listener(own_table.MASQUERADE, claim, own_table.ALWAYS)
        else:
            yield own_table.listener(own_table.MASQUERADE, claim, own_table.FROM_ITSELF)
    for ip in here:
        yield own_table.hairpin(ip)
