"""Services by namespace, by the names of their farms, and by their external IPs. No I/O."""

from collections.abc import Iterable, Sequence, Set

from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.kubernetes.service import Service
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.multimap import Multimap
from kube_nftlb.operator.farms.external_addresses import external_ips
from kube_nftlb.operator.farms.naming import Contender
from kube_nftlb.operator.farms.ports import PortKey


class ServiceIndex:
    """Finds Services without a scan of all."""

    def __init__(self) -> None:
        self._in: Multimap[str, ServiceKey] = Multimap()
        self._contenders: Multimap[FarmKey, Contender] = Multimap()
        self._ports: dict[ServiceKey, list[Contender]] = {}
        self._asking: Multimap[str, ServiceKey] = Multimap()

    def move(
        self, key: ServiceKey, before: Service | None, after: Service | None, ports: Iterable[PortKey] = ()
    ) -> None:
        """Replace a Service by its new state, None being one that does not exist; ``ports`` are those that it has."""
        for contender in self._ports.pop(key, ()):
            self._contenders.discard(_name(contender.port), contender)
        if after is not None:
            joined = self._ports[key] = [_contender(after, port) for port in ports]
            for contender in joined:
                self._contenders.add(_name(contender.port), contender)
            self._in.add(key.namespace, key)
        else:
            self._in.discard(key.namespace, key)
        for service, join in ((before, False), (after, True)):
            for ip in external_ips(service) if service is not None else ():
                self._asking.set(ip, key, present=join)

    def in_namespace(self, namespace: str) -> Set[ServiceKey]:
        """Return the Services of a namespace."""
        return self._in.get(namespace)

    def ports(self, key: ServiceKey) -> Sequence[PortKey]:
        """Return the ports of a Service that are to have a farm, one for each family."""
        return [contender.port for contender in self._ports.get(key, ())]

    def contenders(self, port: PortKey) -> Iterable[Contender]:
        """Return all Service ports with the same plain farm name as this one."""
        return self._contenders.get(_name(port))

    def asking_for(self, ips: Iterable[str]) -> frozenset[ServiceKey]:
        """Return the Services that ask for one of these external IPs."""
        return frozenset().union(*(self._asking.get(ip) for ip in ips))

    def asking(self) -> frozenset[ServiceKey]:
        """Return the Services that ask for any external IP."""
        return self.asking_for(self._asking.keys())


def _name(port: PortKey) -> FarmKey:
    return FarmKey(port.namespace, port.plain_name)


def _contender(service: Service, port: PortKey) -> Contender:
    return Contender(service.metadata.created_s, port)
