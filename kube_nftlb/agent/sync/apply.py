"""Carry out changes: the agent table first, then the engines, then the agent table again, then connections.

There is no moment without the rules that keep clients out: they are in the agent table before an engine changes,
wherever a farm is before or after, and go once it has. A farm that is refused stays where it was, and so do its rules.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from kube_nftlb import names
from kube_nftlb.agent.connections.connections import Connections
from kube_nftlb.agent.engine.base import Applied
from kube_nftlb.agent.engine.engines import Engines
from kube_nftlb.agent.model import SentFarm
from kube_nftlb.agent.sync.changes import FarmChange
from kube_nftlb.agent.sync.waiting_farms import Restricted, WaitingFarms
from kube_nftlb.agent.table import layout, unserved
from kube_nftlb.agent.table.policies import rules_owner
from kube_nftlb.agent.table.table import AgentTable
from kube_nftlb.api.listeners import Listener
from kube_nftlb.netfilter.table_text import Chain, Contents

_RESTRICTING = (f"{layout.POLICY}-", f"{layout.SOURCE_RANGES}-")
"""How the names of the maps begin that lead to what restricts clients."""


@dataclass(frozen=True, slots=True)
class Outcome(Applied):
    """The outcome of changes, by the names of farms."""

    rules_refused: Mapping[str, str] = field(default_factory=dict)
    """Reasons that the kernel refused a farm's rules in the agent table; it stays as it was."""
    decide_again: bool = False
    """True if not all was done, because rules were refused, or nftlb went away: decide again, and apply that."""


class Applier:
    """Changes the engines and the agent table."""

    def __init__(self, engines: Engines, table: AgentTable, connections: Connections) -> None:
        self._engines = engines
        self._table = table
        self._connections = connections
        self._served: dict[str, SentFarm | None] = {}
        """What the engines had of farms before the changes that are not done yet."""
        self._waiting = WaitingFarms(engines, table)
        self._verified: dict[str, dict[str, Contents]] = {}
        """What the agent table had of farms that have changed since, by owner, when they were last verified."""

    async def apply(self, changes: Sequence[FarmChange]) -> Outcome:
        """Carry out changes. Return what was refused, and whether the rest is to be decided again."""
        changed = [each for each in changes if not each.keep]
        for each in changed:
            self._served.setdefault(each.name, self._engines.sent.get(each.name))
            if each.name in self._engines.sent:
                owners = (each.name, rules_owner(each.name))
                self._verified.setdefault(each.name, {owner: self._table.owned(owner) for owner in owners})
        restricted = self._waiting.restricted(changes)
        if rules_refused := await self._table.update(_of_both(dict(self._before(changes)))):
            return Outcome(rules_refused=rules_refused, decide_again=True)
        self._connections.applying({each.name: each.farm for each in changed})
        outcome = await self._carry_out(changes, changed, restricted)
        if not outcome.decide_again:
            self._connections.applied()
        return outcome

    async def _carry_out(
        self, changes: Sequence[FarmChange], changed: Sequence[FarmChange], restricted: Restricted
    ) -> Outcome:
        away = self._engines.unreachable
        done = await self._engines.apply({each.name: each.farm for each in changed})
        if self._engines.unreachable != away:
            return Outcome(done.refused, done.incomplete, done.changed, decide_again=True)
        after = dict(self._after(changes, done.refused))
        carried_out = [each for each in changes if each.name not in done.refused]
        if lost := self._waiting.lost(carried_out, restricted, after):
            after[layout.EARLIER] = self._table.owned(layout.EARLIER) | lost
        rules_refused = await self._table.update(after)
        self._waiting.note(carried_out)
        for each in changed:
            if each.name not in done.refused:
                # Sooner, clients would only come back to what they had.
                self._connections.changed(each.name, each.farm, self._served.pop(each.name))
                if each.is_withdrawal:
                    self.verified(each.name)
        return Outcome(done.refused, done.incomplete, done.changed, rules_refused)

    async def begin(self, changes: Callable[[], Iterable[FarmChange]]) -> Collection[str]:
        """Have an engine serve all farms that has none (see ``TableEngine``). Return those that it was sent."""
        return await self._engines.begin(lambda: {each.name: each.farm for each in changes() if not each.keep})

    def expect(self, changes: Iterable[FarmChange], others: Mapping[str, Contents]) -> None:
        """Have the agent table begin with what all farms need before any is changed, beside the contents of others.

        Clients are refused wherever an engine has a farm and none should be, or another: a new agent does not know why.
        """
        changes = list(changes)
        served = {each.name: frozenset(self._listeners(each)) for each in changes}
        rules = {name: self.refused(name, served.get(name, frozenset())) for name in self._engines.sent}
        for each in changes:
            overlay = self._overlay_after(each)
            contents = overlay if overlay is not None else self._table.owned(each.name)
            contents = self._unshadowed(each, contents) | self._given_up(each)
            rules[each.name] = rules.get(each.name, Contents()) | contents
            rules[rules_owner(each.name)] = self._unshadowed(each, each.policies)
        lost = self._waiting.lost(changes, self._waiting.restricted(changes), rules)
        earlier = others.get(layout.EARLIER, Contents()) | lost
        self._table.expect({**rules, **others, layout.EARLIER: earlier})
        self._waiting.note(changes)

    def verified(self, name: str) -> None:
        """Note that the kernel has a farm as it was last applied."""
        self._verified.pop(name, None)

    async def revert(self, name: str) -> bool:
        """Serve a farm as it was when it was last verified. Return False if its engine cannot."""

        def has_another(listener: Listener) -> bool:
            return bool(self._engines.owners([listener]) - {name})

        before = {owner: layout.without(each, has_another) for owner, each in self._verified.get(name, {}).items()}
        both = {owner: self._table.owned(owner) | contents for owner, contents in before.items()}
        if await self._table.update(both) or not await self._engines.revert(name):
            return False
        await self._table.update(before)
        self.verified(name)
        return True

    def _before(self, changes: Sequence[FarmChange]) -> Iterator[tuple[str, Contents]]:
        for each in changes:
            overlay, is_new = self._overlay(each), each.name not in self._engines.sent
            # Nobody has been served at the addresses of a new farm: it is served first, and its clients refused then.
            if overlay is not None and not (is_new and _can_follow(overlay)):
                yield each.name, self._table.owned(each.name) | self._unshadowed(each, overlay)
            owner = rules_owner(each.name)
            yield owner, self._table.owned(owner) | self._unshadowed(each, each.policies)

    def _after(self, changes: Iterable[FarmChange], refused: Collection[str]) -> Iterator[tuple[str, Contents]]:
        for each in changes:
            if each.name in refused:
                continue
            overlay = self._overlay_after(each)
            given_up = self._given_up(each)
            if given_up and overlay is None:
                overlay = self._table.owned(each.name) if each.keep else Contents()
            if overlay is not None:
                yield each.name, self._unshadowed(each, overlay) | given_up
            yield rules_owner(each.name), self._unshadowed(each, each.policies_after)

    def _overlay(self, change: FarmChange) -> Contents | None:
        """Return a farm's part of the agent table with what its engine has of it now; None: as it is."""
        if change.overlay is None or change.farm is None:
            return change.overlay
        return self._engines.contents(change.farm) | change.overlay

    def _overlay_after(self, change: FarmChange) -> Contents | None:
        """Return the same once the farm is served: before, who comes to an address of a pool is to try again."""
        overlay = self._overlay(change)
        return overlay if overlay is None or change.farm is None else overlay | unserved.served(change.farm)

    def _unshadowed(self, change: FarmChange, contents: Contents) -> Contents:
        """Return contents without those for listeners at which nftlb, which is away, has a farm in vain.

        The engine nftables serves another farm there, whose clients they are not for.
        """
        if not (self._engines.unreachable and (change.keep or change.is_withdrawal)):
            return contents
        return layout.without(contents, lambda listener: self._engines.is_shadowed(listener, change.name))

    def _given_up(self, change: FarmChange) -> Contents:
        """Return what refuses clients where nftlb, which is away, has a farm that it is not to serve any more.

        It stays until nftlb answers, since a farm that waits does not get back the rules that it had before.
        """
        if not self._engines.unreachable or self._waits_to_move(change):
            return Contents()
        listeners = self._engines.in_nftlb(change.name)
        return layout.given_up(
            each for each in listeners if not change.keep or self._engines.is_shadowed(each, change.name)
        )

    def _waits_to_move(self, change: FarmChange) -> bool:
        """Return True if nftlb, which is away, serves a farm until the engine nftables does."""
        return change.farm is not None and not change.keep and not self._engines.in_nftables(change.name)

    def _listeners(self, change: FarmChange) -> Iterable[Listener]:
        if change.farm is not None and not change.keep:
            return change.farm.listeners
        sent = self._engines.sent.get(change.name)
        return sent.listeners if change.keep and sent is not None else ()

    def refused(self, name: str, served: Set[Listener] = frozenset()) -> Contents:
        """Return what refuses the clients of a farm wherever an engine has it and it is not to be ``served``.

        Where nftlb has it, clients whom the engine nftables serves are not refused.
        """
        in_nftables, in_nftlb = self._engines.in_nftables(name), self._engines.in_nftlb(name)
        return layout.refused(in_nftables - served) | layout.given_up(in_nftlb - served)


def _of_both(before: dict[str, Contents]) -> dict[str, Contents]:
    """Have clients of a listener that passes from one farm to another pass the restrictions of both meanwhile."""
    values: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for contents in before.values():
        for entry in contents.elements:
            if entry.set.startswith(_RESTRICTING):
                values[entry[:2]].add(entry.value)
    contested = {key: tuple(sorted(found)) for key, found in values.items() if len(found) > 1}
    chains = {key: Chain(f"both-{names.digest(*found)}", found) for key, found in contested.items()}
    if not chains:
        return before
    return {owner: _restricted_by(contents, chains) for owner, contents in before.items()}


def _restricted_by(contents: Contents, chains: Mapping[tuple[str, str], Chain]) -> Contents:
    both = {chains[entry[:2]] for entry in contents.elements if entry[:2] in chains}
    elements = frozenset(
        entry._replace(value=f"jump {chains[entry[:2]].name}") if entry[:2] in chains else entry
        for entry in contents.elements
    )
    return Contents(elements, (*contents.chains, *sorted(both, key=lambda each: each.name)), contents.sets)


def _can_follow(contents: Contents) -> bool:
    """Return True if contents can be added after a farm is served: refusals, and sets of listeners."""
    return not (contents.chains or contents.sets) and all(
        entry.value == layout.REFUSE or entry.set.startswith((layout.LISTENERS, layout.NOT_FROM_NODE))
        for entry in contents.elements
    )
