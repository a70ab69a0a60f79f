"""A farm of this node as nftlb is to have it. Pure: no I/O."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from pydantic import BaseModel

from kube_nftlb import names
from kube_nftlb.agent.engine.nftlb import groups, marks
from kube_nftlb.agent.model import DirectRouting, NodeAddress, NodeFarm
from kube_nftlb.api.backend import Backend
from kube_nftlb.api.base import Nftlb, nftlb_field
from kube_nftlb.api.farm import FarmSpec
from kube_nftlb.nftlb import objects

_DEFAULT_SCHED_PARAM = "srcip"
"""nftlb makes no rules for the scheduler hash with the sched-param none, which is its own default."""

_BY_CONNECTION = "srcip srcport"
KEEPER = "Keeper"
"""The name of a farm of our own in nftlb; those of users never begin with a capital."""
_KEPT_IP = "169.254.255.254"
"""A link-local address, which no farm may have (``api/rules.IP``), of the last 256, which nobody may (RFC 3927)."""

_WIRE_FIELDS: Final[Mapping[type[BaseModel], list[tuple[str, Nftlb]]]] = {
    model: [(field, name) for field in model.model_fields if (name := nftlb_field(model, field)) is not None]
    for model in (FarmSpec, Backend)
}
"""The fields that nftlb has a name for. Once for all farms, as finding them is most of the work."""


def translate(farm: NodeFarm, present: objects.Farm | None) -> objects.Farm:
    """Return the farm as nftlb is to have it.

    Backends keep the marks that they have in ``present``, what nftlb has now. Those for which no mark is free before
    others are gone are left out. Raises ValueError if a farm has more backends than there are marks.
    """
    had = present.backends if present is not None else {}
    short = {each.backend.name: short_name(each.backend.name) for each in farm.endpoints}
    requested = {short[each.backend.name]: mark for each in farm.endpoints if (mark := each.backend.mark) is not None}
    numbers = marks.allocate(short.values(), {name: each.mark for name, each in had.items()}, requested)
    weights = groups.weights(farm)
    addresses = _by_name(_address(farm, address) for address in farm.addresses)
    backends = {}
    for each in farm.endpoints:
        if (name := short[each.backend.name]) in numbers:
            options = _wire_values(
                _weighed(each.backend, weights.get(each.backend.name)), had[name].options if name in had else {}
            )
            backends[name] = objects.Backend(name, numbers[name], "up" if each.schedulable else "off", options)
    sessions = {client: short[backend] for client, backend in farm.fixed_sessions if short.get(backend) in backends}
    translated = objects.Farm(farm.name, _options(farm, present), addresses, backends, sessions)
    return _for_mode(farm, translated)


def _for_mode(farm: NodeFarm, translated: objects.Farm) -> objects.Farm:
    if farm.suspended:
        options = {**translated.options, "mode": "dnat", "state": "down"}
        return replace(translated, options=options, backends={}, sessions={})
    if farm.spec.mode == "local":
        # With backends, or for the node's own connections, nftlb asks nft for a chain that does not exist.
        return replace(translated, options={**translated.options, "intra-connect": "off"}, backends={})
    if farm.direct is not None:
        return _routed(translated, farm.spec, farm.direct)
    return translated


def _weighed(backend: Backend, weight: int | None) -> Backend:
    return backend if weight is None else backend.model_copy(update={"weight": weight})


def short_name(backend: str) -> str:
    """Return a backend's name in nftlb."""
    return names.shorten(backend, names.NFTLB_OBJECT_NAME_MAX)


def _options(farm: NodeFarm, present: objects.Farm | None) -> dict[str, str]:
    spec = farm.spec
    had = present.options if present is not None else {}
    options = {**_wire_values(spec, had), "state": "up"}
    if had.get("queue", "-1") != "-1":
        # An earlier version's; the agent table has it now.
        options["queue"] = "-1"
    if farm.groups and spec.scheduler == "rr":
        options["scheduler"] = "weight"
    if spec.scheduler == "hash" and spec.sched_param == "none":
        options["sched-param"] = _DEFAULT_SCHED_PARAM
    return options


def _address(farm: NodeFarm, address: NodeAddress) -> objects.Address:
    """Return one address for each part of a list of ports: a list can grow and shrink without touching what stays."""
    protocol = address.protocol.lower()
    name = objects.address_name(farm.name, address.ip, protocol, address.ports)
    return objects.Address(name, farm.spec.family, address.ip, address.ports, protocol)


def _wire_values(model: BaseModel, present: Mapping[str, str]) -> dict[str, str]:
    """Return the fields that nftlb has, by its names for them.

    One without a value is sent only to replace the value that nftlb has: most farms have few of them.
    """
    values = {}
    for field, name in _WIRE_FIELDS[type(model)]:
        value = getattr(model, field)
        text = name.unset if value is None else _wire_value(value)
        if text != name.unset or present.get(name.key, text) != text:
            values[name.key] = text
    return values


def _wire_value(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def _routed(farm: objects.Farm, spec: FarmSpec, routing: DirectRouting) -> objects.Farm:
    """Return a farm in the mode dsr, with the interfaces and MAC addresses by which its packets go.

    nftlb would find the interface by the address, and a backend's MAC address in the neighbour table. So the address
    need not be on the node, and neighbours need not be resolved.
    """
    backends = {
        name: replace(backend, options={**backend.options, "ether-addr": routing.macs[backend.options["ip-addr"]]})
        for name, backend in farm.backends.items()
    }
    options = {**farm.options, **_scheduling(spec), "oface": routing.bridge}
    return replace(
        farm,
        options=options,
        addresses=_by_name(_at_inlets(farm, routing.inlets)),
        backends=backends,
        sessions={},
    )


def keeper(inlets: Mapping[str, str]) -> objects.Farm:
    """Return a farm without backends that must be in nftlb before any in the mode dsr, and stay when they go.

    When the last listener leaves the ingress, nftlb continues to use what it frees then (docs/nftlb-defects.md). With a
    listener of ours there is no last one.
    """
    plain = objects.Farm(KEEPER, {}, {KEEPER: objects.Address(KEEPER, "ipv4", _KEPT_IP, "1", "tcp")})
    return objects.Farm(KEEPER, {"mode": "dsr", "scheduler": "rr", "state": "up"}, _by_name(_at_inlets(plain, inlets)))


def _scheduling(spec: FarmSpec) -> dict[str, str]:
    """nftlb schedules each packet anew: only what gives all packets of a connection one backend is of use."""
    if spec.scheduler == "symhash" and spec.persistence == "none":
        return {"persistence": "none"}
    fields = next((chosen for chosen in (spec.persistence, spec.sched_param) if chosen != "none"), _BY_CONNECTION)
    return {"scheduler": "hash", "sched-param": fields, "persistence": "none"}


def _at_inlets(farm: objects.Farm, inlets: Mapping[str, str]) -> Iterator[objects.Address]:
    for address in farm.addresses.values():
        for interface, mac in sorted(inlets.items()):
            # A bridge takes the MAC address of one of its ports, so it may change at any time, and does not matter.
            ports = f"{address.ports} {interface}"
            name = objects.address_name(farm.name, address.ip, address.protocol, ports)
            yield replace(address, name=name, interface=interface, mac=mac)


def _by_name(addresses: Iterable[objects.Address]) -> dict[str, objects.Address]:
    return {address.name: address for address in addresses}
