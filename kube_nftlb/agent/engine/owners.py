"""The farm of an engine on each listener. Pure: no I/O."""

from collections.abc import Collection, Iterable

from kube_nftlb.api.listeners import Listener


class ListenerOwners:
    """The farm on each listener, by name."""

    def __init__(self) -> None:
        self._owners: dict[Listener, str] = {}

    def clear(self) -> None:
        """Forget all farms."""
        self._owners.clear()

    def add(self, name: str, listeners: Iterable[Listener]) -> None:
        """Note that a farm is on these listeners."""
        self._owners.update(dict.fromkeys(listeners, name))

    def remove(self, name: str, listeners: Iterable[Listener]) -> None:
        """Note that a farm is not on these listeners any more; another may be."""
        for listener in listeners:
            if self._owners.get(listener) == name:
                del self._owners[listener]

    def of(self, wanted: Collection[Listener]) -> set[str]:
        """Return the farms on any of these listeners, or on all ports of one of their addresses."""
        found = {self._owners.get(each) for listener in wanted for each in (listener, listener.whole_address)}
        if whole := {listener.ip for listener in wanted if listener.protocol == "All"}:
            found.update(name for listener, name in self._owners.items() if listener.ip in whole)
        return {name for name in found if name is not None}
