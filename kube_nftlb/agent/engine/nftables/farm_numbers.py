"""The numbers by which packets tell the farms that remember clients apart. Pure: no I/O."""

from kube_nftlb.agent.engine.nftables import layout


class FarmNumbers:
    """The numbers in use. A free one stays free as long as possible: clients may be remembered with it."""

    def __init__(self, first: int = 1) -> None:
        """Begin with an ordinal. One that is random is hardly that of a farm that went before the agent started."""
        self._of: dict[str, int] = {}
        self._used: set[int] = set()
        self._last = first - 1

    def of(self, farm: str) -> int | None:
        """Return the number of a farm, by its name; a new one if it has none, or None if all are in use."""
        if (known := self._of.get(farm)) is not None:
            return known
        for step in range(layout.FARMS_MAX):
            ordinal = (self._last + step) % layout.FARMS_MAX + 1
            if (number := layout.farm_number(ordinal)) not in self._used:
                self.set(farm, number)
                self._last = ordinal
                return number
        return None

    def set(self, farm: str, number: int) -> None:
        """Note the number that a farm has in the kernel."""
        if self._of.get(farm) != number:
            self.free(farm)
            self._of[farm] = number
            self._used.add(number)

    def free(self, farm: str) -> None:
        """Forget the number of a farm."""
        if (number := self._of.pop(farm, None)) is not None:
            self._used.discard(number)
