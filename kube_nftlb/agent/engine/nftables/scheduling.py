"""The chains that depend on farms: one per way to choose and number of endpoints, whatever farms use it. No I/O."""

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple, Self

from kube_nftlb.agent.engine.nftables import choice as packets
from kube_nftlb.agent.engine.nftables import layout
from kube_nftlb.agent.engine.nftables.affinity import Known, Memory, Pick
from kube_nftlb.agent.engine.nftables.choice import CHOICE, PLACE, Choice, Rules
from kube_nftlb.agent.engine.nftables.groups import Draw
from kube_nftlb.agent.engine.nftables.layout import TableFamily

_SCHEDULE = re.compile(rf"{CHOICE}{PLACE}")


class Schedule(NamedTuple):
    """A chain that sends each new connection to an endpoint that is chosen for it."""

    family: TableFamily
    all_ports: bool
    choice: Choice

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Return the chain of a name, or None if it is not one of these."""
        found = _SCHEDULE.fullmatch(name)
        return cls(packets.family(found), bool(found["all"]), Choice.of(found)) if found else None

    @property
    def name(self) -> str:
        """See ``Rules``."""
        return layout.name(self.choice.name, self.family, all_ports=self.all_ports)

    def rules(self) -> Iterator[bytes]:
        """See ``Rules``."""
        to = layout.name(layout.ENDPOINTS, self.family, all_ports=self.all_ports)
        return self.choice.rules(self.family, to)


def leads_to(name: str) -> Collection[str]:
    """Return the chains that a chain leads to, which must exist before it does, and as long as it does."""
    draw = Draw.parse(name)
    return draw.chains.values() if draw is not None else ()


def rank(name: str) -> tuple[bool, str]:
    """Return what sorts chains so that those to which others lead come first."""
    return bool(leads_to(name)), name


def parse(name: str) -> Rules:
    """Return the chain of a name. Raises ValueError if there is none."""
    kinds = (Schedule, Known, Pick, Memory, Draw)
    chain = next((found for kind in kinds if (found := kind.parse(name)) is not None), None)
    if chain is None:
        raise ValueError(f"{name!r} is not the name of a chain that chooses an endpoint")
    return chain
