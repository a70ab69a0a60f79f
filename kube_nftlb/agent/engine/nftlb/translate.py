"""NftlbFarm -> what this node shall have of it, in nftlb and in the agent's own table. No I/O."""

import functools
from collections.abc import Mapping

from pydantic import BaseModel

from kube_nftlb import names
from kube_nftlb.agent.endpoints import selection
from kube_nftlb.agent.engine.nftlb import marks
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.table import traffic_policy
from kube_nftlb.api.base import Nftlb, nftlb_field
from kube_nftlb.api.farm import Address, Farm, FarmSpec
from kube_nftlb.netfilter.transaction import Contents
from kube_nftlb.nftlb import objects

_DEFAULT_SCHED_PARAM = "srcip"
"""nftlb makes no rules for the scheduler hash with the sched-param none that it itself defaults to."""


def farm_view(
    farm: Farm,
    present: objects.Farm | None,
    facts: NodeFacts = NodeFacts(),  # noqa: B008 - immutable
) -> objects.Farm:
    """The farm for nftlb on the node of ``facts``.

    It has the backends chosen, with the marks that ``present``, what nftlb has, gave them; not yet those for which no
    mark is free before others are gone. Raises ValueError where a farm has more backends than there are marks.
    """
    name = names.nftlb_farm_name(farm.metadata.namespace, farm.metadata.name)
    spec = farm.spec
    backends = {_short(each.backend.name): each for each in selection.chosen(spec, facts)}
    asked = {short: each.backend.mark for short, each in backends.items() if each.backend.mark is not None}
    given = marks.allocate(backends, {b.name: b.mark for b in present.backends.values()} if present else {}, asked)
    had = {b.name: b.options for b in present.backends.values()} if present else {}
    return objects.Farm(
        name,
        _options(spec, present),
        {each.name: each for address in spec.addresses for each in _addresses(name, spec, address, facts)},
        {
            short: objects.Backend(short, given[short], each.state, _wire_values(each.backend, had.get(short, {})))
            for short, each in backends.items()
            if short in given
        },
        {session.client: short for session in spec.sessions if (short := _short(session.backend)) in given},
    )


def own_contents(farm: Farm, seen: objects.Farm, present: objects.Farm, facts: NodeFacts) -> Contents:
    """What a farm has in the agent's own table, where nftlb has or shall have it as it is ``seen``.

    Connections are led to those backends alone that nftlb has at ``present``; give the same twice for afterwards.
    """
    spec = farm.spec
    endpoints = selection.candidates(spec, facts)
    listeners = [
        traffic_policy.Listener(address.type, claim, ranges)
        for address in spec.addresses
        for ranges in (traffic_policy.allowed(address, facts),)
        for each in _addresses(seen.name, spec, address, facts)
        for claim in each.claims()
    ]
    usable = [
        (seen.backends[short].mark, backend.weight)
        for backend in endpoints.cluster
        if (short := _short(backend.name)) in seen.backends
        and short in present.backends
        and present.backends[short].state != "down"
    ]
    here = sorted({backend.ip for backend in spec.backends if backend.node_name == facts.name and backend.ready})
    return traffic_policy.contents(spec, seen, listeners, endpoints, usable, here)


def _short(backend: str) -> str:
    """A backend's name in nftlb."""
    return names.shorten(backend, names.NFTLB_OBJECT_NAME_MAX)


def _options(spec: FarmSpec, present: objects.Farm | None) -> dict[str, str]:
    had = present.options if present is not None else {}
    options = {**_wire_values(spec, had), "state": "up"}
    if had.get("queue", "-1") != "-1":
        # An earlier version's; the agent's own table has it now.
        options["queue"] = "-1"
    if spec.scheduler == "hash" and spec.sched_param == "none":
        options["sched-param"] = _DEFAULT_SCHED_PARAM
    return options


def _addresses(farm: str, spec: FarmSpec, address: Address, facts: NodeFacts) -> list[objects.Address]:
    """One for each part of a list of ports: so that a list can grow and shrink without touching what stays."""
    protocol = spec.protocol.lower()
    ips = facts.port_ips.get(spec.family, ()) if address.type == "NodePort" else (address.ip,)
    return [
        objects.Address(names.address_name(farm, ip, protocol, ports), spec.family, ip, ports, protocol)
        for ip in ips
        for ports in address.ports.split(",")
    ]


def _wire_values(model: BaseModel, present: Mapping[str, str]) -> dict[str, str]:
    """The fields that nftlb has, by its names for them.

    One without a value is sent only to take the place of the value that nftlb has: most farms have few of them.
    """
    values = {}
    for field, name in _wire_fields(type(model)):
        value = getattr(model, field)
        text = name.unset if value is None else _wire_value(value)
        if text != name.unset or present.get(name.key, text) != text:
            values[name.key] = text
    return values


@functools.cache
def _wire_fields(model: type[BaseModel]) -> list[tuple[str, Nftlb]]:
    """The fields that nftlb has a name for. Looking for it is most of the work, and the models do not change."""
    return [(field, name) for field in model.model_fields if (name := nftlb_field(model, field)) is not None]


def _wire_value(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)
