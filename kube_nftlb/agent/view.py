"""NftlbFarm -> the farm that this node's nftlb shall have. No I/O."""

from pydantic import BaseModel

from kube_nftlb import names
from kube_nftlb.agent import marks
from kube_nftlb.api.base import nftlb_key
from kube_nftlb.api.farm import Backend, Farm, FarmSpec
from kube_nftlb.nftlb import objects


def _keys(model: type[BaseModel]) -> dict[str, str]:
    return {field: key for field in model.model_fields if (key := nftlb_key(model, field)) is not None}


_FARM_KEYS = _keys(FarmSpec)
_BACKEND_KEYS = _keys(Backend)

_DEFAULT_SCHED_PARAM = "srcip"
"""nftlb makes no rules for the scheduler hash with the sched-param none that it itself defaults to."""


def farm_view(farm: Farm, present: objects.Farm | None) -> objects.Farm:
    """The farm for nftlb: backends that are ready, with the marks that ``present``, what nftlb has, gave them."""
    name = names.nftlb_farm_name(farm.metadata.namespace, farm.metadata.name)
    spec = farm.spec
    backends = {names.shorten(backend.name, names.NFTLB_OBJECT_NAME_MAX): backend for backend in usable(farm)}
    given = marks.allocate(backends, {b.name: b.mark for b in present.backends.values()} if present else {})
    return objects.Farm(
        name,
        _options(spec),
        {address.name: address for address in _addresses(name, spec)},
        {
            short: objects.Backend(short, given[short], "up", _wire_values(backend, _BACKEND_KEYS))
            for short, backend in backends.items()
        },
    )


def usable(farm: Farm) -> list[Backend]:
    """The backends that new connections may go to."""
    return [backend for backend in farm.spec.backends if backend.ready]


def _options(spec: FarmSpec) -> dict[str, str]:
    options = {**_wire_values(spec, _FARM_KEYS), "state": "up"}
    if spec.scheduler == "hash" and spec.sched_param == "none":
        options["sched-param"] = _DEFAULT_SCHED_PARAM
    return options


def _addresses(farm: str, spec: FarmSpec) -> list[objects.Address]:
    """One for each part of a list of ports: so that a list can grow and shrink without touching what stays."""
    protocol = spec.protocol.lower()
    return [
        objects.Address(names.address_name(farm, address.ip, protocol, ports), spec.family, address.ip, ports, protocol)
        for address in spec.addresses
        for ports in address.ports.split(",")
    ]


def _wire_values(model: BaseModel, keys: dict[str, str]) -> dict[str, str]:
    return {key: _wire_value(getattr(model, field)) for field, key in keys.items()}


def _wire_value(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)
