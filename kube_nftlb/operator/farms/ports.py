"""The Service ports that farms are built from, and the addresses of each farm."""

from collections.abc import Iterator
from typing import NamedTuple

from kube_nftlb import names
from kube_nftlb.api.base import FAMILIES, Family
from kube_nftlb.api.kubernetes.service import Service, ServicePort
from kube_nftlb.endpointslices.slices import canonical_ip
from kube_nftlb.operator.farms.annotations import Listen
from kube_nftlb.operator.farms.external_addresses import (
    External,
    external_policy,
    internal_policy,
    without_source_ranges,
)
from kube_nftlb.operator.farms.spec import Spec


class PortKey(NamedTuple):
    """The identity of what a farm is built from: a Service port (``""`` without a name) in one family."""

    namespace: str
    service: str
    port: str
    family: Family
    external: bool = False
    """True for the second farm of a port: that of the addresses reached from outside the cluster."""

    @property
    def plain_name(self) -> str:
        """The name of its farm, unless that is taken."""
        return names.farm_name(self.service, self.port, self.family, external=self.external)


def port_keys(service: Service, most: int) -> tuple[PortKey, ...]:
    """Return the keys of the farms of up to ``most`` ports of a Service, without its endpoints."""
    addresses, outside = cluster_ips(service), without_source_ranges(service)
    return tuple(
        key
        for port in service.spec.ports[:most]
        for family in addresses
        for key in _keys(service, outside, family, port)
    )


def serves(service: Service) -> bool:
    """Return True if the Service is ours: it has a cluster IP and no label for another proxy."""
    if names.LABEL_PROXY_NAME in service.metadata.labels:
        return False
    return service.spec.type != "ExternalName" and service.spec.cluster_ip not in ("", "None")


def cluster_ips(service: Service) -> dict[Family, str]:
    """Return the Service's cluster IP of each family; none if it is not ours."""
    return allocated_ips(service) if serves(service) else {}


def allocated_ips(service: Service) -> dict[Family, str]:
    """Return the cluster IP of each family that the API server has given the Service, whoever serves it."""
    if service.spec.type == "ExternalName":
        return {}
    addresses: dict[Family, str] = {}
    for text in service.spec.cluster_ips or (service.spec.cluster_ip,):
        for family in FAMILIES:
            if (ip := canonical_ip(text, family)) is not None:
                addresses.setdefault(family, ip)
    return addresses


def farm_ports(
    service: Service, addresses: dict[Family, str], outside: External, listen: Listen, most: int
) -> Iterator[tuple[PortKey, ServicePort, list[Spec]]]:
    """Yield the key, port and addresses of each farm of a Service, for up to ``most`` of its ports.

    A port has a second farm for the addresses reached from outside if a traffic policy is Local: clients get other
    backends there, and these sessions must not count inside. Otherwise a client gets the same backend at each address.
    """
    for port in service.spec.ports[:most]:
        for family, ip in addresses.items():
            ports = "" if listen.all_ports else listen.ports or str(port.port)
            inner: Spec = {"type": "ClusterIP", "ip": ip, "ports": ports}
            outer = outside.of(family, port, ports)
            key, *second = _keys(service, outside, family, port)
            if second and outer:
                yield key, port, [inner]
                yield second[0], port, outer
            else:
                yield key, port, [inner, *outer]


def _keys(service: Service, outside: External, family: Family, port: ServicePort) -> tuple[PortKey, ...]:
    """Return the keys of the farms of a port, one or two."""
    key = PortKey(service.metadata.namespace, service.metadata.name, port.name or "", family)
    local = "Local" in (internal_policy(service), external_policy(service))
    is_outside = bool(outside.ips[family]) or (outside.node_ports and bool(port.node_port))
    return (key, key._replace(external=True)) if is_outside and local else (key,)
