"""Gather facts, plan, and apply the plan: one path for every farm, whatever triggered it."""

from collections.abc import Collection, Iterable, Mapping

import structlog

from kube_nftlb import names
from kube_nftlb.agent.clock import Clock
from kube_nftlb.agent.dsr.pod_addresses import PodLinks
from kube_nftlb.agent.engine.engines import Engines
from kube_nftlb.agent.model import Version
from kube_nftlb.agent.sync.apply import Applier, Outcome
from kube_nftlb.agent.sync.changes import Changes, FarmChange
from kube_nftlb.agent.sync.decide import Facts, Keep, Serve, Withdraw
from kube_nftlb.agent.sync.earlier_rules import EarlierRules
from kube_nftlb.agent.sync.load_balancers import InKernel
from kube_nftlb.agent.sync.loop_state import LoopState
from kube_nftlb.agent.sync.plan import Known, Plan, Planned, plan
from kube_nftlb.agent.sync.policy_programmer import PolicyProgrammer
from kube_nftlb.agent.sync.timing import Timing
from kube_nftlb.agent.table import layout, policy_sets
from kube_nftlb.agent.table.policies import policy_of
from kube_nftlb.agent.table.table import AgentTable
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm
from kube_nftlb.api.listeners import Listener
from kube_nftlb.netfilter.nftables.reading import ContentsReader
from kube_nftlb.netfilter.table_text import Contents

_log = structlog.get_logger()


class Programmer:
    """Plans what becomes of farms, and has it applied to the engines and the agent table."""

    def __init__(
        self,
        state: LoopState,
        engines: Engines,
        table: AgentTable,
        reader: ContentsReader,
        links: PodLinks,
        clock: Clock,
        timing: Timing,
    ) -> None:
        self._state = state
        self._index = state.index
        self._engines = engines
        self._table = table
        self._links = links
        self._clock = clock
        self._timing = timing
        self._changes = Changes(state.policies)
        self.applier = Applier(engines, table, state.connections)
        table.fallback = self._instead_of_refused
        self.policies = PolicyProgrammer(state, engines, table, self._changes)
        self._earlier = EarlierRules(reader)
        self.links_read_at = float("-inf")
        self._orphans: set[str] = set()
        """Farms of an earlier agent that the engines did not let go."""

    async def program(self, keys: Collection[FarmKey]) -> Outcome:
        """Program these farms, and with them those that must leave an address first. Return what was refused."""
        environment = {layout.ENVIRONMENT: self._state.environment, layout.POOLS: self._state.pools.contents}
        # If more pools come while the kernel works, they wait for the next time.
        self._state.pools.pending = False
        self._refused_since(await self._table.update(environment))
        await self._engines.set_node(self._index.node)
        self._state.add(self._index.measure(keys), self._state.seen_version + 1)
        if await self.read_links(self._index.stateless(keys)):
            # The next look will find what this one has: the others would not learn of it.
            self._state.add(set(self._index.stateless()).difference(keys))
        while True:
            planned = await self._plan(keys)
            self._take_away(planned)
            outcome = await self.applier.apply([each.change for each in planned.values()])
            self._state.changed.update(outcome.changed)
            farms = {name: each.farm for name, each in planned.items()}
            refused = self._rules_refused(outcome.rules_refused, farms)
            if not outcome.decide_again:
                self._state.add(refused)
                self._state.policies.have_rules(keys)
                self._forget_withdrawn(planned, outcome.refused)
                self._state.expected |= {name: planned[name].expected for name in map(_name, keys)}
                return outcome
            # Farms whose rules are refused stay as they are, so no other farm may get an address of theirs.

    async def _plan(self, keys: Collection[FarmKey]) -> Plan:
        """Plan once all is known that the decisions need: links, pods' addresses, kernel features."""
        while True:
            await self._index.probe()
            links = self._links.links
            planned = self._planned(keys)
            vips = {name: each.pod_vips for name, each in planned.items() if each.pod_vips is not None}
            await self._links.provide(vips)
            if self._links.links is links:
                break
            # A pod could not be given an address: it is no endpoint.
        for each in planned.values():
            self._note(each)
        return planned

    def _planned(self, keys: Collection[FarmKey]) -> Plan:
        links, now = self._links.links, self._clock.now()

        def facts(key: FarmKey) -> Facts:
            return self._index.facts(key, links, now)

        index, table = self._index, self._table
        planned = plan(keys, Known(facts, index.key, index.owners, self._engines, table.owned, self._changes))
        served = (each.key for each in planned.values() if isinstance(each.decision, Serve))
        # At once: a farm may change before it is applied.
        self._state.policies.sending(key for key in served if key is not None)
        return planned

    def _note(self, planned: Planned) -> None:
        """Report the problem of a farm, and have it decided on again when that is due."""
        key, decision, now = planned.key, planned.decision, self._clock.now()
        if key is None:
            return
        served = not (isinstance(decision, Withdraw) and decision.lasts)
        waits = isinstance(decision, Serve) or (isinstance(decision, Keep) and decision.is_engine_away)
        self._state.load_balancers.planned(key, planned.farm, served=served, stays=not waits)
        if decision.problem is not None:
            self._state.problems.report(key, decision.problem, self._index.get(key))
        elif not served:
            self._state.problems.clear(key)
        if isinstance(decision, Withdraw) and decision.retry:
            self._index.back_off(key, now + self._timing.back_off_s)
        if isinstance(decision, Serve) and decision.look_again:
            self._index.look_again(key, now + self._timing.back_off_s)
        if isinstance(decision, Keep) and decision.retry_after_s is not None:
            self._index.look_again(key, now + decision.retry_after_s)

    def _take_away(self, planned: Plan) -> None:
        """Note what the kernel will have no more, before it changes: nobody is to be told of it now."""
        changed: dict[FarmKey, InKernel | None] = {}
        for each in planned.values():
            if each.key is not None and each.change.keep:
                self._state.load_balancers.refused(each.key)
            elif each.key is not None:
                changed[each.key] = each.in_kernel
        self._state.load_balancers.changes(changed)

    def _forget_withdrawn(self, planned: Plan, refused: Collection[str]) -> None:
        for name, each in planned.items():
            is_gone = each.change.is_withdrawal and name not in refused
            if is_gone and each.key is not None and self._index.is_removed(each.key):
                self._index.forget(each.key)
                # One may have been found while it was being deleted.
                self._state.problems.forget(each.key)

    def _instead_of_refused(self, subject: str) -> Contents:
        if (policy := policy_of(subject)) is not None:
            return policy_sets.admitting_nobody(policy)
        return self.applier.refused(subject)

    async def update_policies(self) -> None:
        """Write changed policies to the kernel, and those again that it refused a while ago."""
        self._refused_since(await self.policies.update(self._clock.now()))

    async def withdraw(self, names_: Iterable[str]) -> Outcome:
        """Withdraw farms from their engines, and return what was refused.

        Policies that keep clients out stay in the agent table.
        """
        rules = {name: self.policies.rules(name) for name in names_}
        return await self.applier.apply(
            [FarmChange(name, overlay=None, policies=each, policies_after=each) for name, each in rules.items()]
        )

    async def adopt(self) -> bool:
        """Start from what the engine has; what is as wanted already is not touched.

        Return True if a farm is missing that was verified.
        """
        await self._earlier.read()
        lost = await self._engines.load()
        self._earlier.adopt(self._engines, self._is_nftlbs)
        self._state.load_balancers.keep(lambda key: _name(key) in self._engines.sent)
        await self._engines.set_node(self._index.node)
        await self.read_links(self._index.stateless())
        orphans = [name for name in self._engines.sent if self._index.key(name) is None]
        # Before the table is replaced, which has the rules that keep clients from farms that are gone.
        self._orphans = set((await self.withdraw(orphans)).refused)
        await self.policies.take()
        # Also those that were deleted and not withdrawn yet: policies apply to them until they are.
        keys = self._known()
        self._index.measure(keys)
        self._state.pools.pending = False
        given_up = self._table.owned(layout.EARLIER) if self._engines.unreachable else Contents()
        others = {
            layout.ENVIRONMENT: self._state.environment,
            layout.POOLS: self._state.pools.contents,
            layout.EARLIER: self._earlier.contents | given_up,
            **self._state.policies.contents(),
        }
        self.applier.expect([each.change for each in (await self._plan(keys)).values()], others)
        _log.info("adopted farms", farms=len(self._engines.sent), removed=len(orphans))
        return lost

    async def begin(self) -> None:
        """Have the engines serve all farms, once the agent table has the rules that keep clients out."""
        changed = await self.applier.begin(lambda: [each.change for each in self._planned(self._known()).values()])
        self._state.changed.update(changed)
        if not await self._engines.is_missing():
            await self._table.refuse()

    def _is_nftlbs(self, listener: Listener) -> bool:
        """Return True if nftlb is to serve a listener."""
        key = self._index.owner(listener)
        return key is not None and (farm := self._index.get(key)) is not None and farm.spec.engine == "nftlb"

    def _known(self) -> set[FarmKey]:
        """Return all farms, also those that are gone and not withdrawn."""
        sent = {key for name in self._engines.sent if (key := self._index.key(name)) is not None}
        return self._index.all() | sent

    async def withdraw_orphans(self) -> None:
        """Withdraw the farms of an earlier agent that could not be withdrawn before."""
        if orphans := [name for name in self._orphans if self._index.key(name) is None]:
            refused = (await self.withdraw(orphans)).refused
            _log.warning("withdrew farms of an earlier agent", farms=orphans, refused=dict(refused))
            self._orphans = set(refused)

    async def create_table(self) -> None:
        """Recreate the agent table; clients of farms whose rules the kernel refuses are refused."""
        farms = {_name(key): self._index.get(key) for key in self._index}
        self._state.add(self._rules_refused(await self._table.create(), farms))

    async def read_links(self, keys: Collection[FarmKey]) -> bool:
        """Read the node's interfaces and pods if farms depend on them. Return True if they have changed."""
        self.links_read_at = self._clock.now()
        if not keys:
            return False
        return await self._links.look()

    async def maintain_links(self, now: float) -> None:
        """Read the links again if that is due, and clean up addresses of pods if nothing else is to be done."""
        if now - self.links_read_at > self._timing.links_every_s:
            keys, incomplete = self._index.stateless(), self._links.incomplete
            self._links.incomplete = False
            # Which farms lack a pod that could not be given an address is not known.
            if await self.read_links(keys) or incomplete:
                self._state.add(keys)
        if not self._state.has_work:
            await self._links.tidy(self._may_be_served, self._is_as_before)

    def _may_be_served(self, name: str) -> bool:
        """Return True if an engine may have a farm as an earlier agent left it: nobody may know while nftlb is away."""
        return bool(self._engines.unreachable) or name in self._engines.sent or self._index.key(name) is not None

    def _is_as_before(self, name: str) -> bool:
        """Return True if an engine may have a farm as it was before it was last planned."""
        key = self._index.key(name)
        waits = key is not None and (key in self._state.queue or self._index.is_refused(key))
        return waits or self._engines.is_away(name)

    def _rules_refused(self, refused: Mapping[str, str], farms: Mapping[str, Farm | None]) -> list[FarmKey]:
        """Note why the kernel refused rules, unless a farm has changed since it was ``asked`` for. Return the farms."""
        self._shared_refused(refused)
        keys = []
        for name, why in refused.items():
            key = self._index.key(name)
            if key is not None and _version(self._index.get(key)) == _version(farms.get(name)):
                self._index.refuse_rules(key, why)
                self._index.back_off(key, self._clock.now() + self._timing.back_off_s)
                keys.append(key)
        return keys

    def _shared_refused(self, refused: Mapping[str, str]) -> None:
        """Note why the kernel refused the ranges of policies or pools; queue the farms whose rules change by that."""
        until = self._clock.now() + self._timing.back_off_s
        for owner, why in refused.items():
            if owner == layout.POOLS:
                _log.warning("the kernel refuses the addresses of pools", error=why)
                self._state.pools.refuse(self._table.owned(owner), until)
            elif (key := policy_of(owner)) is not None:
                _log.warning("the kernel refuses a policy", namespace=key.namespace, policy=key.name, error=why)
                self._state.add(self._state.policies.refuse_ranges(key, why, until))

    def _refused_since(self, refused: Mapping[str, str]) -> None:
        """Note why the kernel refused policies, and rules of farms that do not wait to be programmed anyway."""
        self._shared_refused(refused)
        waiting = self._state.queue.waiting
        keys = {name: key for name in refused if (key := self._index.key(name)) is not None and key not in waiting}
        farms = {name: self._index.get(key) for name, key in keys.items()}
        self._state.add(self._rules_refused({name: refused[name] for name in farms}, farms))


def _version(farm: Farm | None) -> Version | None:
    return Version.of(farm) if farm is not None else None


def _name(key: FarmKey) -> str:
    return names.node_farm_name(*key)
