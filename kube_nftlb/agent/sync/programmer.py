"""Facts → decisions → changes → the engines: one path for every farm, whatever triggered it."""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

import structlog

from kube_nftlb import names
from kube_nftlb.agent.clock import Clock
from kube_nftlb.agent.dsr import modes
from kube_nftlb.agent.dsr.modes import PodVip
from kube_nftlb.agent.dsr.pod_addresses import PodLinks
from kube_nftlb.agent.engine.engines import Engines
from kube_nftlb.agent.model import Version
from kube_nftlb.agent.sync.apply import Applier, Outcome
from kube_nftlb.agent.sync.changes import Changes, FarmChange
from kube_nftlb.agent.sync.decide import Decision, Facts, Keep, Serve, Withdraw, cannot_change, decide
from kube_nftlb.agent.sync.inputs import Inputs
from kube_nftlb.agent.sync.policy_programmer import PolicyProgrammer
from kube_nftlb.agent.sync.problems import log_fields
from kube_nftlb.agent.sync.progress import Problem
from kube_nftlb.agent.sync.timing import Timing
from kube_nftlb.agent.table import layout
from kube_nftlb.agent.table.table import AgentTable
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm
from kube_nftlb.api.listeners import Listener

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """The outcome of programming farms."""

    refused: Mapping[str, str] = field(default_factory=dict)
    """Reasons that the engine refused farms, by name on the node."""
    incomplete: Collection[str] = ()
    """Names of farms that must be applied again."""


class Programmer:
    """Decides on farms, and programs the engine and the agent table."""

    def __init__(
        self, inputs: Inputs, engines: Engines, table: AgentTable, links: PodLinks, clock: Clock, timing: Timing
    ) -> None:
        self._inputs = inputs
        self._index = inputs.index
        self._engines = engines
        self._table = table
        self._links = links
        self._clock = clock
        self._timing = timing
        self._changes = Changes(inputs.policies)
        self.applier = Applier(engines, table)
        self.policies = PolicyProgrammer(inputs, engines, table, self._changes)
        self.links_read_at = float("-inf")
        self.changed: set[str] = set()
        """Names of farms that the engine has changed, until that is logged."""
        self._orphans: set[str] = set()
        """Farms of an earlier agent that the engine did not let go."""

    async def program(self, keys: Collection[FarmKey]) -> ProgramResult:
        """Program these farms, and with them those that must leave an address first."""
        self._refused_since(await self._table.update({layout.ENVIRONMENT: self._inputs.environment}))
        await self._engines.set_node(self._index.node)
        self._inputs.add(self._index.measure(keys), self._inputs.seen_version + 1)
        await self._gather(keys)
        while True:
            asked = {name: farm for key in keys if (farm := self._index.get(key)) for name in (_name(key),)}
            changes = self._changes_of(keys)
            asked |= {each.name: farm for each in changes if (farm := self._farm(each.name)) is not None}
            applied = await self.applier.apply(changes)
            self.changed.update(applied.changed)
            self._rules_refused(applied.rules_refused, asked)
            if not applied.decide_again:
                self._programmed(changes, applied)
                return ProgramResult(applied.refused, applied.incomplete)
            # These farms stay as they are, so no other farm may get an address of theirs.
            await self._index.probe()

    def _programmed(self, changes: Iterable[FarmChange], applied: Outcome) -> None:
        now = self._clock.now()
        for each in changes:
            # Before a farm is programmed without an endpoint, its clients would only come back to that.
            if each.keep or each.name in applied.refused:
                continue
            self._inputs.cuts.changed(each.name, each.farm, now)
            key = self._index.key(each.name)
            if each.farm is None and key is not None and self._index.is_removed(key):
                self._index.forget(key)

    async def update_policies(self) -> None:
        """Write changed policies to the kernel."""
        self._refused_since(await self.policies.update())

    async def withdraw(self, names_: Iterable[str]) -> Outcome:
        """Withdraw farms from their engines. Policies that keep clients out stay in the agent table."""
        changes = []
        for name in names_:
            rules = self.policies.rules(name)
            changes.append(FarmChange(name, overlay=None, policies=rules, policies_after=rules))
        return await self.applier.apply(changes)

    async def adopt(self) -> bool:
        """Start from what the engine has; what is as wanted already is not touched.

        Return True if a farm is missing that was verified.
        """
        lost = await self._engines.load()
        await self._engines.set_node(self._index.node)
        await self.read_links(self._index.stateless())
        orphans = [name for name in self._engines.programmed if self._index.key(name) is None]
        # Before the table is replaced, which has the rules that keep clients from farms that are gone.
        self._orphans = set((await self.withdraw(orphans)).refused)
        await self.policies.take()
        await self._index.probe()
        # Also those that were deleted and not withdrawn yet: policies apply to them until they are.
        keys = self._known()
        self._index.measure(keys)
        changes = self._changes_of(keys, forget=False)
        others = {layout.ENVIRONMENT: self._inputs.environment, **self._inputs.policies.sets()}
        self.applier.expect(changes, others)
        _log.info("adopted farms", farms=len(self._engines.programmed), removed=len(orphans))
        return lost

    async def begin(self) -> None:
        """Have the engines serve all farms, once the agent table has the rules that keep clients out."""
        self.changed.update(await self.applier.begin(lambda: self._changes_of(self._known(), forget=False)))
        if not await self._engines.is_missing():
            await self._table.refuse()

    def _known(self) -> set[FarmKey]:
        """Return all farms, also those that are gone and not withdrawn."""
        programmed = {key for name in self._engines.programmed if (key := self._index.key(name)) is not None}
        return self._index.all() | programmed

    async def withdraw_orphans(self) -> None:
        """Withdraw the farms of an earlier agent that could not be withdrawn before."""
        if orphans := [name for name in self._orphans if self._index.key(name) is None]:
            refused = (await self.withdraw(orphans)).refused
            _log.warning("withdrew farms of an earlier agent", farms=orphans, refused=dict(refused))
            self._orphans = set(refused)

    async def create_table(self) -> None:
        """Recreate the agent table; clients of farms whose rules the kernel refuses are refused."""
        asked = {_name(key): farm for key in self._index if (farm := self._index.get(key)) is not None}
        self._rules_refused(await self._table.create(), asked)

    # Facts.

    async def _gather(self, keys: Collection[FarmKey]) -> None:
        """Do all I/O that decisions need: links, pods' addresses, kernel features."""
        await self.read_links(self._index.stateless(keys))
        await self._index.probe()
        await self._links.provide({_name(key): vips for key in keys if (vips := self._pod_vips(key)) is not None})

    async def read_links(self, keys: Collection[FarmKey]) -> bool:
        """Read the node's interfaces and pods if farms depend on them. Return True if they have changed."""
        self.links_read_at = self._clock.now()
        if not keys:
            return False
        return await self._links.look()

    async def maintain_links(self, now: float) -> None:
        """Read the links again if that is due, and clean up addresses of pods if nothing else is to be done."""
        if now - self.links_read_at > self._timing.links_every_s:
            keys = self._index.stateless()
            if await self.read_links(keys):
                self._inputs.add(keys, self._inputs.seen_version)
        if not self._inputs.has_work:
            await self._links.tidy()

    def _pod_vips(self, key: FarmKey) -> frozenset[PodVip] | None:
        """Return the addresses that pods need for a farm; None if they keep what they have."""
        farm = self._index.get(key)
        decision = self._decide(key) if farm is not None and farm.spec.mode == "dsr" else None
        if isinstance(decision, Keep):
            return None
        if not isinstance(decision, Serve) or decision.farm.direct is None:
            return frozenset()
        vips = {address.ip for address in decision.farm.addresses}
        return modes.pod_vips(decision.farm.spec, vips, self._links.links)

    def _facts(self, key: FarmKey) -> Facts:
        return self._index.facts(key, self._links.links, self._clock.now())

    def _farm(self, name: str) -> Farm | None:
        key = self._index.key(name)
        return self._index.get(key) if key is not None else None

    # Decisions.

    def decide(self, key: FarmKey) -> Decision:
        """Decide on a farm, and report its problem."""
        decision = self._decide(key)
        farm = self._index.get(key)
        if decision.problem is not None:
            self._inputs.problems.report(key, decision.problem, farm)
        again_at = self._clock.now() + self._timing.back_off_s
        if isinstance(decision, Withdraw) and decision.retry:
            self._index.back_off(key, again_at)
        if isinstance(decision, Serve) and decision.look_again:
            self._index.look_again(key, again_at)
        if isinstance(decision, Keep) and decision.retry_after_s is not None:
            self._index.look_again(key, self._clock.now() + decision.retry_after_s)
        return decision

    def _decide(self, key: FarmKey) -> Decision:
        try:
            return decide(self._facts(key), self._engines.unsupported, partial(self._stuck_owners, _name(key)))
        except Exception as error:
            # One unexpected farm must not end the service of all others.
            farm = self._index.get(key)
            _log.exception("cannot decide on a farm", **log_fields(key, farm))
            generation = farm.metadata.generation if farm is not None else 0
            return Keep(Problem("Unsupported", f"unexpected error: {error!r}", generation))

    def _stuck_owners(self, name: str, listeners: Iterable[Listener]) -> dict[Listener, str]:
        wanted = list(listeners)
        owners = {owner: self._index.key(owner) for owner in self._engines.owners(wanted) - {name}}
        stuck = {owner for owner, key in owners.items() if key is not None and self._is_stuck(key)}
        if not stuck:
            return {}
        return {each: min(found) for each in wanted if (found := self._engines.owners([each]) & stuck)}

    def _is_stuck(self, key: FarmKey) -> bool:
        try:
            programmed = self._engines.programmed.get(_name(key))
            programmed_by = programmed.engine if programmed is not None else None
            return cannot_change(self._facts(key), self._engines.unsupported, programmed_by)
        except Exception:
            # Its own decision reports that, and keeps it as it is.
            _log.debug("cannot decide on the owner of an address", namespace=key.namespace, farm=key.name)
            return True

    def _changes_of(self, keys: Iterable[FarmKey], *, forget: bool = True) -> list[FarmChange]:
        """Return the changes for these farms, and for those that own an address which one of them needs."""
        changes: dict[str, FarmChange] = {}
        waiting: deque[tuple[str, FarmKey | None]] = deque((_name(key), key) for key in keys)
        while waiting:
            name, key = waiting.popleft()
            if name in changes:
                continue
            changes[name] = change = self._change(name, key, forget=forget)
            if change.farm is not None and not change.keep:
                owners = self._engines.owners(list(change.farm.listeners)) - changes.keys()
                waiting.extend((owner, self._index.key(owner)) for owner in owners)
        return list(changes.values())

    def _change(self, name: str, key: FarmKey | None, *, forget: bool) -> FarmChange:
        decision = self.decide(key) if key is not None else Withdraw()
        facts = self._facts(key) if key is not None else Facts(None)
        if forget and key is not None and self._index.is_removed(key):
            key = None
        return self._changes.make(
            key,
            name,
            decision,
            facts,
            self._engines.programmed.get(name),
            owned=self._table.owned(name),
            restricted=key is not None and self._index.restricted(key),
        )

    def _rules_refused(self, refused: Mapping[str, str], asked: Mapping[str, Farm]) -> None:
        """Note why the kernel refused rules, unless a farm has changed since it was ``asked`` for."""
        for name, why in refused.items():
            key = self._index.key(name)
            if key is not None and _version(self._index.get(key)) == _version(asked.get(name)):
                self._index.refuse_rules(key, why)
                self.decide(key)
                self._index.back_off(key, self._clock.now() + self._timing.back_off_s)

    def _refused_since(self, refused: Mapping[str, str]) -> None:
        """Note why the kernel refused rules of farms that do not wait to be programmed anyway."""
        waiting = self._inputs.queue.waiting
        asked = {
            name: farm
            for name in refused
            if (farm := self._farm(name)) is not None and self._index.key(name) not in waiting
        }
        self._rules_refused({name: refused[name] for name in asked}, asked)


def _version(farm: Farm | None) -> Version | None:
    return Version.of(farm) if farm is not None else None


def _name(key: FarmKey) -> str:
    return names.node_farm_name(*key)
