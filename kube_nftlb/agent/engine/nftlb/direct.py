"""The mode dsr in nftlb. Pure: no I/O.

nftlb finds the interface by the address, and a backend's MAC address in the neighbour table. It is told both instead:
the address need not be on the node, and neighbours need not be resolved.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from kube_nftlb.agent.model import DirectRouting
from kube_nftlb.api.farm import FarmSpec
from kube_nftlb.nftlb import objects

_BY_CONNECTION = "srcip srcport"

KEEPER = "Keeper"
"""The name of a farm of our own in nftlb; those of users never begin with a capital."""
_KEPT_IP = "192.0.2.1"
"""An address for documentation (RFC 5737), which nobody has."""


def routed(farm: objects.Farm, spec: FarmSpec, routing: DirectRouting) -> objects.Farm:
    """Return a farm with the interfaces and MAC addresses by which its packets go."""
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
