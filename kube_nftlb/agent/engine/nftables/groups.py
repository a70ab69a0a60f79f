"""The groups of a farm in the table, and the chains that draw one and lead on to what chooses within it. No I/O.

The priority of the packet is where the group is left from one rule to the next (see ``affinity``).
"""

import re
from collections.abc import Iterator
from typing import NamedTuple, Self

from kube_nftlb.agent.engine.nftables import choice as packets
from kube_nftlb.agent.engine.nftables import layout
from kube_nftlb.agent.engine.nftables.affinity import Pick
from kube_nftlb.agent.engine.nftables.choice import PLACE, Choice
from kube_nftlb.agent.engine.nftables.layout import TableFamily, Target
from kube_nftlb.netfilter.nftables import expressions

REFUSED, DROPPED, NONE = "x", "d", "o"
"""How a chain's name tells that nobody serves a group, or that it has no share."""

_WAY = r"random|symhash|hash-[a-z.]+"
_TO = r"(?:[xdo]|(?:\d+_)?[1-9]\d*)"
_DRAW = re.compile(
    rf"(?P<pick>pick-)?draw-(?P<draw>{_WAY})-(?P<numbers>[1-9]\d*)-(?P<kind>rr|{_WAY})-(?P<to>{_TO}(?:\.{_TO})*)"
    rf"(?P<inside>-inside)?{PLACE}"
)


class Members(NamedTuple):
    """The endpoints among which connections are scheduled, and those for clients of this node where these get others.

    Where clients are remembered, they are given by their numbers.
    """

    endpoints: tuple[Target, ...] = ()
    inside: tuple[Target, ...] = ()
    picks: tuple[int, ...] = ()
    inside_picks: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Their number, with each as often as its weight asks for."""
        return len(self.picks or self.endpoints)

    @property
    def inside_size(self) -> int:
        """The same of those for clients of this node."""
        return len(self.inside_picks or self.inside)


class Group(NamedTuple):
    """A group of endpoints, by the position of its reference, and how many of the numbers that are drawn lead to it."""

    number: int
    share: int
    members: Members = Members()


class Draw(NamedTuple):
    """A chain that draws one of several groups.

    ``draw`` is the way to draw, ``kind`` that to choose within a group: random, rr, symhash, or hash with the fields.
    ``to`` has for each group, by its number, how many endpoints it has, after the counter of rr; or why it has none.
    """

    family: TableFamily
    all_ports: bool
    remembers: bool
    draw: str
    numbers: int
    kind: str
    to: tuple[str, ...]
    inside: bool

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Return the chain of a name, or None if it is not one of these."""
        if (found := _DRAW.fullmatch(name)) is None:
            return None
        place = (packets.family(found), bool(found["all"]), bool(found["pick"]))
        to = tuple(found["to"].split("."))
        return cls(*place, found["draw"], int(found["numbers"]), found["kind"], to, bool(found["inside"]))

    @property
    def name(self) -> str:
        """See ``Rules``."""
        name = f"draw-{self.draw}-{self.numbers}-{self.kind}-{'.'.join(self.to)}{'-inside' if self.inside else ''}"
        return layout.name(f"pick-{name}" if self.remembers else name, self.family, all_ports=self.all_ports)

    @property
    def chains(self) -> dict[int, str]:
        """The chains that choose within the groups that are served, by the group's number."""
        choices = {number: self._choice(number, each) for number, each in enumerate(self.to)}
        return {number: self._within(choice) for number, choice in choices.items() if choice is not None}

    def rules(self) -> Iterator[bytes]:
        """See ``Rules``. If the number that is drawn goes before it is looked up, it is the first group that serves."""
        number = _choice(self.draw, self.numbers).drawn(
            self.family, packets.after_listener(self.family, all_ports=self.all_ports)
        )
        load = number + packets.listener(self.family, all_ports=self.all_ports)
        shares = layout.name(layout.SHARES, self.family, all_ports=self.all_ports)
        draw = load + expressions.found(shares, 0, 0) + expressions.set_priority(0)
        yield packets.is_family(self.family) + draw
        chains = self.chains
        for group, each in enumerate(self.to):
            if each != NONE:
                drawn = expressions.priority_is(layout.group_code(layout.NUMBER_MARK, group))
                if self.remembers:
                    drawn = expressions.priority_is(layout.group_code(0, group), layout.ENDPOINT_MASK)
                to = layout.DROP if each == DROPPED else chains.get(group, layout.REFUSE)
                yield drawn + (expressions.go_to(to) if to else expressions.drop())
        yield from (expressions.go_to(chain) for chain in list(chains.values())[:1])

    def _within(self, choice: Choice) -> str:
        if self.remembers:
            return Pick(self.family, self.all_ports, choice).name
        return layout.name(choice.name, self.family, all_ports=self.all_ports)

    def _choice(self, group: int, to: str) -> Choice | None:
        if to in (REFUSED, DROPPED, NONE):
            return None
        counter, _, size = to.rpartition("_")
        kind = self.kind if int(size) > 1 else "random"
        return _choice(kind, int(size))._replace(counter=int(counter or 0), inside=self.inside, group=group)


def _choice(kind: str, modulus: int) -> Choice:
    kind, _, fields = kind.partition("-")
    return Choice(kind, modulus, fields.replace(".", " "))
