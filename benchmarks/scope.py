"""The parts of the scenarios to measure."""

from typing import NamedTuple


class Scope(NamedTuple):
    """The scope of a run."""

    full: bool = False
    """Run the long form, which takes hours."""
    services: frozenset[int] = frozenset()
    """Limit a scenario to these numbers of Services; empty for all."""

    def select(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Return the selected ones of a scenario's numbers of Services, in their order."""
        return tuple(size for size in sizes if not self.services or size in self.services)
