"""What of the scenarios is to be measured."""

from typing import NamedTuple


class Options(NamedTuple):
    """How much of each scenario."""

    full: bool = False
    """All of it, which takes hours, instead of a short form."""
    services: frozenset[int] = frozenset()
    """Only these numbers of Services, of those that a scenario measures; empty: all of them."""

    def wanted(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Those among a scenario's numbers of Services, in their order."""
        return tuple(size for size in sizes if not self.services or size in self.services)
