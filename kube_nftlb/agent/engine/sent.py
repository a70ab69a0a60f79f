"""The farms that an engine has sent to its data plane, by name and by listener. Pure: no I/O."""

from collections.abc import Collection, Iterator, Mapping

from kube_nftlb.agent.model import SentFarm
from kube_nftlb.api.listeners import Listener


class SentFarms(Mapping[str, SentFarm]):
    """The farms that an engine has sent or adopted, by name, and the farm on each listener."""

    def __init__(self) -> None:
        self._farms: dict[str, SentFarm] = {}
        self._owners: dict[Listener, str] = {}

    def __getitem__(self, name: str) -> SentFarm:
        return self._farms[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._farms)

    def __len__(self) -> int:
        return len(self._farms)

    def put(self, name: str, farm: SentFarm) -> None:
        """Note that the engine has a farm, instead of what it had of it."""
        self.remove(name)
        self._farms[name] = farm
        self._owners.update(dict.fromkeys(farm.listeners, name))

    def remove(self, name: str) -> None:
        """Note that the engine does not have a farm any more; another may be on its listeners."""
        if (farm := self._farms.pop(name, None)) is not None:
            for listener in farm.listeners:
                if self._owners.get(listener) == name:
                    del self._owners[listener]

    def clear(self) -> None:
        """Forget all farms."""
        self._farms.clear()
        self._owners.clear()

    def owners(self, wanted: Collection[Listener]) -> set[str]:
        """Return the farms on any of these listeners, or on all ports of one of their addresses."""
        found = {self._owners.get(each) for listener in wanted for each in (listener, listener.whole_address)}
        if whole := {listener.ip for listener in wanted if listener.protocol == "All"}:
            found.update(name for listener, name in self._owners.items() if listener.ip in whole)
        return {name for name in found if name is not None}
