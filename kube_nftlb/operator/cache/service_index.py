"""Services by what they select, by the names of their farms, and by their external IPs. No I/O."""

from collections.abc import Iterable, Mapping, Sequence, Set

from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.kubernetes.service import Service
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.multimap import Multimap
from kube_nftlb.operator.farms.external_addresses import external_ips
from kube_nftlb.operator.farms.naming import Contender
from kube_nftlb.operator.farms.ports import PortKey
from kube_nftlb.operator.model.pods import selects

_Label = tuple[str, str, str]
"""A namespace, and key and value of a label."""


class ServiceIndex:
    """Finds Services without a scan of all."""

    def __init__(self) -> None:
        self._selectors: dict[ServiceKey, Mapping[str, str]] = {}
        """Of Services with ports to serve."""
        self._selecting: Multimap[_Label, ServiceKey] = Multimap()
        """Those Services, each by one label of its selector."""
        self._contenders: Multimap[FarmKey, Contender] = Multimap()
        self._ports: dict[ServiceKey, list[Contender]] = {}
        self._asking: Multimap[str, ServiceKey] = Multimap()

    def move(
        self, key: ServiceKey, before: Service | None, after: Service | None, ports: Iterable[PortKey] = ()
    ) -> None:
        """Replace a Service by its new state, None being one that does not exist; ``ports`` are those that it has."""
        for contender in self._ports.pop(key, ()):
            self._contenders.discard(_name(contender.port), contender)
        if (selector := self._selectors.pop(key, None)) is not None:
            self._selecting.discard(_label(key.namespace, selector), key)
        if after is not None:
            joined = self._ports[key] = [_contender(after, port) for port in ports]
            for contender in joined:
                self._contenders.add(_name(contender.port), contender)
            if joined:
                selector = self._selectors[key] = after.spec.selector or {}
                self._selecting.add(_label(key.namespace, selector), key)
        for service, join in ((before, False), (after, True)):
            for ip in external_ips(service) if service is not None else ():
                self._asking.set(ip, key, present=join)

    def selecting(self, namespace: str, labels: Mapping[str, str]) -> set[ServiceKey]:
        """Return the Services with ports to serve that select a Pod with these labels."""
        candidates = (key for label in labels.items() for key in self._selecting.get((namespace, *label)))
        return {key for key in candidates if selects(self._selectors[key], labels)}

    def without_selector(self, namespace: str) -> Set[ServiceKey]:
        """Return the Services with ports to serve that select no Pods."""
        return self._selecting.get(_label(namespace, {}))

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


def _label(namespace: str, selector: Mapping[str, str]) -> _Label:
    """Return what a Service is found by; an empty label if it selects no Pods."""
    return namespace, *min(selector.items(), default=("", ""))


def _name(port: PortKey) -> FarmKey:
    return FarmKey(port.namespace, port.plain_name)


def _contender(service: Service, port: PortKey) -> Contender:
    return Contender(service.metadata.created_s, port)
