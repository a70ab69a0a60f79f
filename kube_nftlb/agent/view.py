"""NftlbFarm -> what this node shall have of it, in nftlb and in the agent's own table. No I/O."""

from collections.abc import Mapping
from typing import NamedTuple

from pydantic import BaseModel

from kube_nftlb import names
from kube_nftlb.agent import marks, steering
from kube_nftlb.agent.endpoints import choose
from kube_nftlb.agent.nftables import Contents
from kube_nftlb.agent.node_facts import NodeFacts
from kube_nftlb.api.backend import Backend
from kube_nftlb.api.base import nftlb_field
from kube_nftlb.api.farm import Address, Farm, FarmSpec
from kube_nftlb.nftlb import objects

_DEFAULT_SCHED_PARAM = "srcip"
"""nftlb makes no rules for the scheduler hash with the sched-param none that it itself defaults to."""


class View(NamedTuple):
    """A farm as a node has it: in nftlb, and in the agent's own table before and after nftlb has come to it."""

    farm: objects.Farm
    before: Contents
    after: Contents


def node_view(farm: Farm, present: objects.Farm | None, facts: NodeFacts) -> View:
    """A farm on the node of ``facts``; backends keep the marks that ``present``, what nftlb has, gave them.

    nftlb schedules the node's own backends with the traffic policy Local, else the cluster's. Those that are for the
    node's own clients alone are off in nftlb, where they can be chosen by their mark. Raises ValueError where a farm
    has more backends than there are marks.
    """
    spec = farm.spec
    endpoints = choose(spec, facts)
    scheduled = endpoints.local or endpoints.cluster
    backends = {_short(backend): backend for backend in (*scheduled, *endpoints.cluster)}
    known = present.backends if present is not None else {}
    given = marks.allocate(backends, {name: backend.mark for name, backend in known.items()})
    up = {_short(backend) for backend in scheduled}
    name = names.nftlb_farm_name(farm.metadata.namespace, farm.metadata.name)
    listened = [(address, each) for address in spec.addresses for each in _addresses(name, spec, address, facts)]
    seen = objects.Farm(
        name,
        _options(spec, present),
        {each.name: each for _, each in listened},
        {
            short: objects.Backend(
                short,
                given[short],
                "up" if short in up else "off",
                _wire_values(backend, known[short].options if short in known else {}),
            )
            for short, backend in backends.items()
        },
    )
    listeners = [
        steering.Listener(address.type, claim, steering.allowed(address, facts))
        for address, each in listened
        for claim in each.claims()
    ]
    choice = [(_short(backend), backend.weight) for backend in endpoints.cluster]
    here = sorted({backend.ip for backend in backends.values() if backend.node_name == facts.name})

    def own(present_only: bool) -> Contents:
        usable = [
            (given[short], weight)
            for short, weight in choice
            if not present_only or (short in known and known[short].state != "down")
        ]
        return steering.contents(spec, seen, listeners, endpoints, usable, here)

    return View(seen, own(present_only=True), own(present_only=False))


def farm_view(farm: Farm, present: objects.Farm | None, facts: NodeFacts = NodeFacts()) -> objects.Farm:  # noqa: B008 - immutable
    """What nftlb shall have of a farm; see ``node_view``."""
    return node_view(farm, present, facts).farm


def _short(backend: Backend) -> str:
    return names.shorten(backend.name, names.NFTLB_OBJECT_NAME_MAX)


def _options(spec: FarmSpec, present: objects.Farm | None) -> dict[str, str]:
    had = present.options if present is not None else {}
    options = {**_wire_values(spec, had), **_wire_values(spec.limits, had), "state": "up"}
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
    for field in type(model).model_fields:
        if (name := nftlb_field(type(model), field)) is not None:
            value = getattr(model, field)
            text = name.unset if value is None else _wire_value(value)
            if text != name.unset or present.get(name.key, text) != text:
                values[name.key] = text
    return values


def _wire_value(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)
