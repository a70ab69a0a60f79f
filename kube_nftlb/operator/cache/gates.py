"""Pods with the readiness gate in the cache. No I/O."""

import itertools
from collections.abc import Iterable, Mapping

from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.operator.cache.versioned_map import VersionedMap
from kube_nftlb.operator.model.gated_pods import GatedPod
from kube_nftlb.operator.model.pods import PodKey

TURN = 64
"""Maximum number of waiting Pods of a namespace that are looked after at a time; the others wait for their turn."""
SERVICES_MAX = 64
"""Maximum number of Services with farms that a Pod waits for, by name: each costs a look whenever a node reports."""


class Gates:
    """The Pods with the readiness gate."""

    def __init__(self) -> None:
        self.pods: VersionedMap[PodKey, GatedPod] = VersionedMap(lambda pod: pod.resource_version)
        self._waiting: dict[str, dict[PodKey, None]] = {}
        self._at: dict[tuple[str, str], PodKey] = {}
        self._ready_at: dict[ServiceKey, dict[str, int]] = {}

    def put(self, key: PodKey, pod: GatedPod) -> None:
        """Add or replace a Pod."""
        before = self.pods.get(key)
        if not self.pods.put(key, pod):
            return
        self._forget_ips(key, before)
        if pod.prepared:
            # The IP of a Pod that has ended may be another's already.
            self._at.update({(key.namespace, ip): key for ip in pod.ips.values()})
        if pod.waits:
            self._waiting.setdefault(key.namespace, {})[key] = None
        else:
            self._no_longer_waits(key)

    def remove(self, key: PodKey, version: int) -> None:
        """Remove a Pod."""
        # Deletions of others are not remembered.
        if self.pods.get(key) is not None and (before := self.pods.remove(key, version)) is not None:
            self._forget_ips(key, before)
            self._no_longer_waits(key)

    def namespaces(self) -> list[str]:
        """Return the namespaces in which Pods wait."""
        return list(self._waiting)

    def turn(self, namespace: str) -> list[PodKey]:
        """Return the waiting Pods of a namespace whose turn it is."""
        return list(itertools.islice(self._waiting.get(namespace, ()), TURN))

    def count(self) -> int:
        """Return the number of Pods that wait."""
        return sum(map(len, self._waiting.values()))

    def defer(self, key: PodKey) -> bool:
        """Let the other waiting Pods of the namespace have their turn first; return False if all have it anyway."""
        waiting = self._waiting.get(key.namespace, {})
        if key not in waiting or len(waiting) <= TURN:
            return False
        del waiting[key]
        waiting[key] = None
        return True

    def at(self, namespace: str, ip: str) -> GatedPod | None:
        """Return the Pod with an IP, if its containers are ready and it does not terminate."""
        key = self._at.get((namespace, ip))
        return self.pods.get(key) if key is not None else None

    def note_ready(self, service: ServiceKey, ips: Iterable[str], version: int) -> Mapping[str, int]:
        """Note which of the IPs that farms of a Service list are ready in its slices, at their ``version``.

        Return at which version each was first noted, without a time meanwhile at which it was not.
        """
        had = self._ready_at.pop(service, {})
        if ready_at := {ip: had.get(ip, version) for ip in ips}:
            self._ready_at[service] = ready_at
        return ready_at

    def _forget_ips(self, key: PodKey, pod: GatedPod | None) -> None:
        for ip in pod.ips.values() if pod is not None else ():
            # Another Pod may have got it since.
            if self._at.get((key.namespace, ip)) == key:
                del self._at[key.namespace, ip]

    def _no_longer_waits(self, key: PodKey) -> None:
        waiting = self._waiting.get(key.namespace, {})
        waiting.pop(key, None)
        if not waiting:
            self._waiting.pop(key.namespace, None)
