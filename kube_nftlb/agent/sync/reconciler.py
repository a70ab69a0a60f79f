"""The loop that brings nftlb to what the farms say, and keeps it there.

Watch events only mark a farm dirty. The loop takes some dirty farms, plans and applies; when nothing is dirty, or what
was applied waits too long, it compares what was applied with the kernel; when that is done too, it looks whether
anybody else has changed nftables, and repairs.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import structlog

from kube_nftlb import errors, metrics, names
from kube_nftlb.agent.dsr import modes
from kube_nftlb.agent.dsr.pod_addresses import Segment
from kube_nftlb.agent.engine.nftlb import plan
from kube_nftlb.agent.engine.nftlb.engine import NftlbEngine
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.sync.farm_index import Farms
from kube_nftlb.agent.sync.problems import Problems, where
from kube_nftlb.agent.sync.programming_latency import ProgrammingLatency
from kube_nftlb.agent.sync.progress import Problem, Progress
from kube_nftlb.agent.sync.queue import CHUNK_MAX, fitting_chunk, next_farms
from kube_nftlb.agent.sync.stale_connections import Partings, leftovers
from kube_nftlb.agent.table import policies, traffic_policy
from kube_nftlb.agent.table import table as own_table
from kube_nftlb.agent.table.policies import Policies
from kube_nftlb.agent.table.table import OwnTable
from kube_nftlb.api.base import Family
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm
from kube_nftlb.api.policy import PolicyKey
from kube_nftlb.netfilter.transaction import Contents
from kube_nftlb.nftlb import objects

_log = structlog.get_logger()

CHECK_CHUNK = 8
"""Farms compared with the kernel per pass."""
CHECK_AFTER_S = 0.05
"""How long nothing must have changed before what was applied is compared: the next change goes first."""
CHECK_WITHIN_S = 3
"""What was applied is compared after this time at the latest, however much else there is to do."""
POLL_S = 0.25
"""How often the kernel is asked whether anybody has changed nftables, while there is nothing else to do."""
LOOK_EVERY_S = 1
"""How often that is done at the least, and how often nftlb is asked whether it is there."""
AUDIT_EVERY_S = 60
"""How long after a change of nftables every farm has been compared once more."""
AUDIT_STEP = 4
"""Farms compared per poll in the background."""
LINKS_EVERY_S = 5
"""How often the node's interfaces and pods are looked at while a farm depends on them."""
RETIRED_MAX = 64
"""So many IPv6 farms may be retired before they are removed."""
REBUILT_MAX = 256
"""But only where there are no more farms than these: nftlb makes so many anew in a second."""
SAVE_EVERY_S = 2
"""How often the start-up file is written at most."""
SAVE_WITHIN_S = 60
"""And how often at the least, while changes come without pause."""
RETRY_S = 0.2
"""How long the loop waits when nftlb does not answer."""
_GENERATIONS = 2**32
"""Where the kernel's number of transactions begins anew."""

_SEE_NFTLB = "it is tried again in a minute, and nftlb's log on this node says more"


@dataclass(frozen=True, slots=True)
class _Unchecked:
    """A farm that was applied, and not compared yet: dirty since which resourceVersion, when applied, what failed."""

    since: int
    applied_at: float
    fault: str


class Reconciler:
    """Holds the farms, and brings the engine to them."""

    def __init__(self, engine: NftlbEngine, table: OwnTable, segment: Segment, on_progress: Callable[[], None]) -> None:
        """``on_progress`` is called whenever ``progress`` may have changed."""
        self._engine = engine
        self._table = table
        self._segment = segment
        self._linked_at = 0.0
        self._on_progress = on_progress
        self.progress = Progress()
        self._problems = Problems(self.progress.problems)
        self._policies = Policies()
        self.farms = Farms(engine, table, segment, self._policies, self._problems)
        self._dirty: dict[FarmKey, int] = {}
        self._in_work: dict[FarmKey, int] = {}
        self._unchecked: dict[FarmKey, _Unchecked] = {}
        self._chunk = CHUNK_MAX
        self._seen = 0
        self._wake = asyncio.Event()
        self._stopping = False
        self._listed = False
        self._adopted = False
        self._applied: dict[str, objects.Farm] = {}
        self._late: dict[str, Contents] = {}
        self._learned = False
        self._environment = own_table.environment({}, {})
        self._generation = 0
        self._doings = engine.doings
        self._foreign_change = False
        self._own_table_doubted = False
        self._looked_at = 0.0
        self._to_audit: list[str] = []
        self._audit_at: float | None = None
        self._partings = Partings(engine)
        self._unsaved = False
        self._maybe_retired = False
        self._saved_at = 0.0
        self._latency = ProgrammingLatency(datetime.now(UTC))
        self._sent: set[str] = set()
        self._told_troubles: tuple[int, str, str] | None = None

    # What the watch tells. These return at once.

    def put(self, farm: Farm, since: int | None = None) -> None:
        """A farm was created or changed; one whose generation is known already is not looked at again.

        ``since`` is the resourceVersion before which it may have been so; the farm's own where nothing else is known.
        """
        if not (concerned := self.farms.put(farm)):
            return
        key = FarmKey(farm.metadata.namespace, farm.metadata.name)
        _log.debug("farm seen", **where(key, farm), generation=farm.metadata.generation)
        self._latency.changed(key, farm)
        self._mark(concerned, int(farm.metadata.resource_version or 0) if since is None else since)

    def refuse(
        self,
        key: FarmKey,
        problem: Problem,
        resource_version: int,
        refers: policies.References | None = None,
    ) -> None:
        """A farm was created or changed in a way that our model does not take, such as a newer version's.

        What nftlb has of it stays as it is, and the problem is reported. ``refers`` is what is to be believed of a farm
        that was never understood.
        """
        self.farms.freeze(key, problem, refers)
        self._mark([key], resource_version)

    def remove(self, key: FarmKey, resource_version: int) -> None:
        """A farm was deleted."""
        self._latency.gone(key)
        if concerned := self.farms.remove(key):
            self._mark(concerned, resource_version)

    def replace_all(self, farms: Iterable[Farm], resource_version: int) -> None:
        """The complete list: what is not on it is gone. Only after the first of these is anything deleted."""
        present = {FarmKey(farm.metadata.namespace, farm.metadata.name): farm for farm in farms}
        before = self._seen
        for key in self.farms.all() - present.keys():
            self.remove(key, before + 1)
        for farm in present.values():
            self.put(farm, before + 1)
        self._listed = True
        self.seen(resource_version)

    def seen(self, resource_version: int) -> None:
        """The watch has come to here."""
        self._seen = max(self._seen, resource_version)
        self._wake.set()

    def learn(self, facts: NodeFacts, service_ranges: Mapping[Family, Iterable[str]]) -> None:
        """The node, or the cluster's ranges for Services, have changed; every farm is looked at again."""
        environment = own_table.environment(facts.pod_cidrs, service_ranges)
        if self._learned and (facts, environment) == (self.farms.facts, self._environment):
            return
        self._learned = True
        self._environment = environment
        self.farms.learn(facts)
        self._mark(self.farms, self._seen)

    def replace_policies(self, raws: Iterable[policies.Json], resource_version: int) -> None:
        """The complete list of policies. Before the first of these nothing is done at all."""
        self._policies.replace_all(raws, resource_version)
        self._wake.set()

    def put_policy(self, raw: policies.Json) -> None:
        """A policy was created or changed."""
        self._policies.put(raw)
        self._policies_seen(raw)

    def remove_policy(self, raw: policies.Json) -> None:
        """A policy was deleted; ``raw`` is its last state, with the resourceVersion of the deletion."""
        metadata = raw["metadata"]
        self._policies.remove(PolicyKey(metadata["namespace"], metadata["name"]), int(metadata["resourceVersion"]))
        self._policies_seen(raw)

    def _policies_seen(self, raw: policies.Json) -> None:
        self._policies.seen(int(raw["metadata"]["resourceVersion"]))
        self._wake.set()

    @property
    def present(self) -> Mapping[str, objects.Farm]:
        """What nftlb has."""
        return self._engine.present

    @property
    def served(self) -> Mapping[str, objects.Farm]:
        """What nftlb has for a farm that there is; farms that were retired are not among it."""
        return self.farms.served()

    # What is counted for the metrics.

    def states(self) -> Counter[str]:
        """How many farms there are in each state."""
        return self.farms.states(self._dirty.keys() | self._in_work.keys() | self._unchecked.keys())

    @property
    def policy_count(self) -> int:
        """How many policies there are."""
        return self._policies.count

    @property
    def settled(self) -> bool:
        """Whether nothing is left to do, not even a look at what was put off."""
        left = self._todo or self._in_work or self._unchecked or self._foreign_change or self._maybe_retired
        return self._adopted and not left

    # The loop.

    async def run(self) -> None:
        """Work until it is told to stop, or cancelled."""
        while not self._stopping:
            self.progress.began_at = time.monotonic()
            try:
                await self._pass()
                self.progress.nftlb_error = ""
            except errors.NftlbUnreachableError as error:
                self.progress.nftlb_error = str(error)
                await self._pause(f"nftlb is not reachable: {error}", RETRY_S)
            except errors.KubeNftlbError as error:
                await self._pause(str(error), RETRY_S)
            except Exception as error:
                # One farm that nobody thought of must not end the service of all others.
                _log.exception("pass failed")
                await self._pause(f"unexpected: {error!r}", 1)
        await self._end()

    async def _end(self) -> None:
        """What nobody does later: the next agent does not know which backends have gone, and nftlb may start first."""
        with suppress(errors.KubeNftlbError):
            await self._partings.begin({}, time.monotonic())
            await self._partings.again(time.monotonic())
            while self._adopted and self._unchecked:
                await self._check_some()
        self._saved_at = float("-inf")
        self._save_meanwhile()

    def stop(self) -> None:
        """Have ``run`` end with the pass that it is at."""
        self._stopping = True
        self._wake.set()

    async def _pause(self, message: str, seconds: float) -> None:
        """After a failure nothing is taken for granted: what was in work is done again, after a new look at nftlb."""
        self._adopted = False
        self._dirty = {key: entry.since for key, entry in self._unchecked.items()} | self._in_work | self._dirty
        self._in_work = {}
        self._unchecked = {}
        if message != self.progress.last_error:
            _log.warning("pass failed", error=message)
        self.progress.last_error = message
        self._report()
        await asyncio.sleep(seconds)

    async def _pass(self) -> None:
        if not (self._listed and self._learned and self._policies.listed):
            self._wake.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), LOOK_EVERY_S)
            return
        if not self._adopted:
            await self._adopt()
        if time.monotonic() - self._looked_at > LOOK_EVERY_S:
            await self._look_after()
        if self._unchecked and (self._overdue() or await self._quiet(CHECK_AFTER_S)):
            await self._check_some()
        if self._todo and self._adopted:
            await self._work()
        if self._todo or self._unchecked:
            self._save_meanwhile()
            return
        self._save(self._applied.values())
        self._report_news()
        if await self._quiet(POLL_S):
            await self._look_after()

    async def _quiet(self, seconds: float) -> bool:
        """Wait for so long, or until something is dirty; whether nothing is."""
        self._wake.clear()
        if self._todo:
            return False
        try:
            await asyncio.wait_for(self._wake.wait(), seconds)
        except TimeoutError:
            return True
        return not self._todo

    @property
    def _todo(self) -> bool:
        return bool(self._dirty) or self._policies.pending

    async def _adopt(self) -> None:
        """Begin with what nftlb has; what is as wanted already is not touched."""
        await self._engine.sync()
        await self._look_at_links(self.farms.stateless())
        # Before the guards of farms that are gone go with them.
        orphans: dict[str, objects.Farm | None] = {
            name: None for name in self.present if self.farms.key(name) is None and name != modes.KEEPER
        }
        await self._apply(orphans)
        self._sent -= orphans.keys()
        self._late = {}
        await self._take_policies()
        await self.farms.probe()
        wanted = {name: self.farms.view(key) for name, key in self.farms.named().items()}
        # What nftlb does not have yet is told when it has it.
        own = {name: self.farms.contents(name, farm, self.present.get(name)) for name, farm in wanted.items()}
        own |= {name: own.get(name, Contents()) | more for name, more in self.farms.leaving(wanted).items()}
        guards = self.farms.guards(dict.fromkeys(self.present) | wanted)
        self._table.expect({own_table.ENVIRONMENT: self._environment, **own, **self._policies.sets(), **guards})
        if await self._engine.own_table_fault(own_table.TABLE, self._table.state):
            await self._create_table()
        self._policies.done()
        lost = self._applied.keys() - self.present.keys()
        self._mark(self.farms, 0 if lost else self._seen)
        await self._notice()
        # Whatever has happened to nftables while nobody looked is looked for once all farms are as they should be.
        self._foreign_change = self._maybe_retired = True
        self._adopted = True
        self._told_troubles = None
        _log.info("adopted nftlb", farms=len(self.present), removed=len(orphans))

    async def _work(self) -> None:
        started = time.perf_counter()
        await self._notice()
        await self._update_policies()
        for key in next_farms(self._dirty, self._chunk, self._comes_or_goes):
            self._in_work[key] = self._dirty.pop(key)
        chunk = len(self._in_work)
        failed = await self._reconcile(list(self._in_work))
        for key, since in self._in_work.items():
            earlier = self._unchecked.get(key, _Unchecked(since, started, ""))
            fault = failed.get(names.nftlb_farm_name(*key), "")
            self._unchecked[key] = replace(earlier, fault=fault)
            if not fault and self.farms.is_short(key):
                self._dirty.setdefault(key, since)
        self._in_work = {}
        self._chunk = fitting_chunk(chunk, time.perf_counter() - started, self._chunk)
        await self._notice()
        self._audit_at = self._audit_at or time.monotonic() + AUDIT_EVERY_S
        self._unsaved = True
        metrics.SYNC_SECONDS.observe(time.perf_counter() - started)
        self._report()

    async def _take_policies(self) -> set[FarmKey]:
        """Work with the policies as they are now; the farms whose guards become others by it, which are then dirty."""
        changed: dict[PolicyKey, policies.Policy | None] = {}
        for key, raw in self._policies.take().items():
            # In a thread, since the largest take half a second.
            changed[key] = await asyncio.to_thread(policies.policy, raw) if raw is not None else None
        turned = self._policies.turn(changed)
        self._mark(turned, self._seen + 1)
        for key, policy in changed.items():
            what = "policy taken" if policy is not None else "policy removed"
            _log.info(what, namespace=key.namespace, policy=key.name, farms=self._policies.referring(key))
        return turned

    async def _update_policies(self) -> None:
        """Bring the policies that changed to the kernel, with all guards that this concerns, in one transaction."""
        if not self._policies.pending:
            return
        sets = self._policies.sets()
        turned = await self._take_policies()
        # A dirty farm may still have a guard that asks a policy which is gone, and which it no longer refers to.
        farms = {names.nftlb_farm_name(*key): None for key in turned | self._dirty.keys()}
        gone = dict.fromkeys(sets, Contents())
        await self._update_table(gone | self._policies.sets() | self.farms.guards(farms))
        self._policies.done()

    def _overdue(self) -> bool:
        oldest = next(iter(self._unchecked.values()))
        return time.perf_counter() - oldest.applied_at > CHECK_WITHIN_S

    async def _notice(self) -> None:
        """Before and after we may change nftables ourselves: whether somebody else has, since the last time.

        How many transactions nftlb made of a request is not known. What others did beside one is found by the audit.
        """
        before, self._doings = self._doings, self._engine.doings
        last, self._generation = self._generation, await self._engine.generation()
        transactions = (self._generation - last) % _GENERATIONS
        if self._doings.requests == before.requests and transactions > self._doings.runs - before.runs:
            self._foreign_change = self._own_table_doubted = True

    async def _check_some(self) -> None:
        await self._notice()
        for key in list(self._unchecked)[:CHECK_CHUNK]:
            # A farm that has changed again is compared when that change is applied.
            if key not in self._dirty:
                await self._check(key, self._unchecked[key].fault)
            del self._unchecked[key]
        await self._notice()
        self._report()

    async def _reconcile(self, keys: Iterable[FarmKey]) -> dict[str, str]:
        """Apply; what failed, by the farm's name in nftlb."""
        keys = list(keys)
        await self._update_table({own_table.ENVIRONMENT: self._environment})
        await self._look_at_links(self.farms.stateless(keys))
        await self._segment.provide({names.nftlb_farm_name(*key): self.farms.pod_vips(key) for key in keys})
        await self.farms.probe()
        wanted = self.farms.with_holders({names.nftlb_farm_name(*key): self.farms.view(key) for key in keys})
        self._maybe_retired = self._maybe_retired or None in wanted.values()
        if any(farm is not None and farm.ingress for farm in wanted.values()):
            await self._keep_ingress()
        own = {name: self.farms.contents(name, farm, farm) for name, farm in wanted.items()}
        # Nobody has been served at the addresses of a new farm, so that it has no backend need not be told at once:
        # often the first is already on its way.
        late = {name for name in own if name not in self.present and own[name] and own_table.can_wait(own[name])}
        self._late = {name: contents for name, contents in self._late.items() if name not in own}
        self._late.update({name: own.pop(name) for name in late})
        # What keeps connections from a farm is there before the farm changes, and goes after that.
        before = {name: self.farms.contents(name, wanted[name], self.present.get(name)) for name in own}
        before |= self.farms.guards(wanted)
        before = {name: self._table.owned(name) | contents for name, contents in before.items()}
        if refused := await self._update_table(before):
            # They stay as they are, and so another one may not get an address of theirs.
            await self.farms.probe()
            wanted = {name: self.farms.view(key) if (key := self.farms.key(name)) else None for name in wanted}
            own = {name: self.farms.contents(name, wanted[name], wanted[name]) for name in own if name not in refused}
            self._late = {name: late for name, late in self._late.items() if wanted.get(name, late) is not None}
        failed = await self._apply(wanted)
        done = {name: farm for name, farm in wanted.items() if name not in failed}
        await self._update_table(own | self.farms.guards(done))
        return failed

    async def _update_table(self, owners: Mapping[str, Contents]) -> Collection[str]:
        """Update the own table; the farms whose contents the kernel refuses, by their names in nftlb."""
        asked = self.farms.asked(owners)
        refused = await self._table.update(owners, self._closed)
        self.farms.reject(refused, asked)
        return refused

    async def _create_table(self) -> None:
        """Make the own table anew; nobody gets to a farm whose contents the kernel refuses."""
        asked = self.farms.asked(self.farms.named())
        self.farms.reject(await self._table.create(self._closed), asked)

    def _closed(self, name: str) -> Contents:
        return traffic_policy.closed(self.present[name]) if name in self.present else Contents()

    async def _apply(self, wanted: Mapping[str, objects.Farm | None]) -> dict[str, str]:
        steps = plan.steps(self.present, wanted)
        self._sent.update(step.name for step in steps)
        self._partings.expect(leftovers(steps, wanted, self.present))
        failed = await self._engine.apply(steps)
        cut = {name: addresses for name in wanted if (addresses := self.farms.cut_off(name))}
        await self._partings.begin(cut, time.monotonic())
        return failed

    async def _check(self, key: FarmKey, fault: str) -> None:
        """Compare a farm with the kernel; one that fails twice is taken out, so that it cannot hurt the others."""
        name = names.nftlb_farm_name(*key)
        farm = self.farms.view(key)
        if farm is None:
            self._latency.dropped(key)
            self._applied.pop(name, None)
            if name in self._sent and name not in self.present:
                self._sent.discard(name)
                _log.info("farm removed", **where(key, self.farms.get(key)))
            return
        if not (fault := fault or self._unfinished(name, farm) or await self._engine.fault(name)):
            self._succeed(key, farm)
            return
        _log.warning("farm is not in the kernel as planned", **where(key, self.farms.get(key)), fault=fault)
        await self._engine.sync()
        await self.farms.probe()
        await self._apply(self.farms.with_holders({name: farm}))
        if name in self.present and await self._engine.fault(name):
            await self._engine.reload(name)
        if not (fault := self._unfinished(name, farm) or await self._engine.fault(name)):
            self._succeed(key, farm)
            return
        await self._apply({name: None})
        self._applied.pop(name, None)
        self.farms.leave(key)
        self._latency.dropped(key)
        self.farms.fail(key, "Refused", f"nftlb or the kernel refused it: {fault}; {_SEE_NFTLB}")
        await self._repair_base()

    def _unfinished(self, name: str, farm: objects.Farm) -> str:
        """In words, whether nftlb still differs from what is wanted; else empty."""
        left = plan.steps(self.present, {name: farm})
        return f"nftlb has not taken {type(left[0]).__name__}" if left else ""

    def _succeed(self, key: FarmKey, farm: objects.Farm) -> None:
        # Mostly it is what nftlb has, and then not kept twice.
        present = self.present.get(farm.name)
        self._applied[farm.name] = farm if present is None or present != farm else present
        # It may have been deleted while it was compared.
        if (asked := self.farms.succeed(key)) is None:
            self._latency.dropped(key)
            return
        self._latency.programmed(key)
        if self.farms.remark(key) and (self._problems.solved(key) or farm.name in self._sent):
            self._sent.discard(farm.name)
            generation, backends = asked.metadata.generation, len(farm.backends)
            _log.info("farm programmed", **where(key, asked), generation=generation, backends=backends)

    # The modes that need more of the node than nftlb.

    async def _keep_ingress(self) -> None:
        keeper = modes.keeper(self._segment.links)
        if failed := await self._engine.apply(plan.steps(self.present, {keeper.name: keeper})):
            raise errors.KernelError(f"nftlb does not take the farm that keeps its ingress chains: {failed}")
        self._applied[keeper.name] = keeper

    async def _look_at_links(self, keys: Iterable[FarmKey]) -> bool:
        """For farms that depend on them; whether they have changed."""
        if not any(True for _ in keys):
            return False
        self._linked_at = time.monotonic()
        return await self._segment.look()

    async def _look_after_links(self, now: float) -> None:
        if now - self._linked_at > LINKS_EVERY_S:
            self._linked_at = now
            if (keys := self.farms.stateless()) and await self._look_at_links(keys):
                self._mark(keys, self._seen)
        if not self._todo:
            await self._segment.tidy()

    # Looking after what is there already.

    async def _look_after(self) -> None:
        now = time.monotonic()
        if now - self._looked_at > LOOK_EVERY_S:
            self._looked_at = now
            await self._engine.ping()
        await self._notice()
        if self._foreign_change:
            if self._engine.restarted():
                metrics.NFTLB_STARTS.inc()
                _log.warning("nftlb was started anew")
                # Its start-up file may be older than the last changes.
                self._adopted = False
                return
            if self._own_table_doubted:
                self._own_table_doubted = False
                await self._repair_own_table()
            # What is dirty, or was not compared yet, is no damage: it is not in the kernel yet.
            if not self._dirty and not self._unchecked:
                self._foreign_change = False
                await self._repair_base()
                self._audit_at = now
        await self._update_table(self._late)
        self._late = {}
        # What is dirty, or was not compared yet, is no damage.
        if not self._dirty and not self._unchecked:
            await self._audit(now)
        await self._look_after_links(now)
        if self._maybe_retired:
            await self._bury_retired()
        await self._partings.again(now)
        await self._notice()
        self._mark(self.farms.to_retry(now), self._seen)

    async def _audit(self, now: float) -> None:
        """Compare some farms more, when their time has come."""
        # A round is ended first, or only its first farms would ever be compared.
        if self._audit_at is not None and now >= self._audit_at and not self._to_audit:
            await self._repair_base()
            self._to_audit, self._audit_at = list(self.present), None
        for name in self._to_audit[:AUDIT_STEP]:
            if name in self.present and (fault := await self._engine.fault(name)):
                await self._repair_farm(name, fault)
            # A backend may have gone while no agent was there to part its clients from it.
            await self._engine.part(name, set())
        del self._to_audit[:AUDIT_STEP]

    async def _bury_retired(self) -> None:
        """Remove those that were retired: without harm when no IPv6 farm is wanted any more.

        Else nftlb's rules are made anew. New connections wait for as long as that takes nftlb, and so it is done only
        where that is a second, and where there are many.
        """
        self._maybe_retired = False
        ipv6 = [name for name, farm in self.present.items() if farm.ipv6]
        if ipv6 and not any(self.farms.key(name) for name in ipv6):
            await self._engine.apply(plan.steps(self.present, dict.fromkeys(ipv6)))
            return
        retired = [name for name in ipv6 if self.farms.key(name) is None and not self.present[name].persistent]
        if len(retired) <= RETIRED_MAX or len(self.present) > REBUILT_MAX:
            return
        if self._dirty or self._unchecked:
            self._maybe_retired = True
            return
        _log.warning("removing retired farms", farms=len(retired))
        await self._engine.apply(plan.burial(self.present, retired))

    async def _repair_base(self) -> None:
        """Somebody has changed nftables: see that all farms are listened for, and make nftlb write them if not."""
        await self._repair_own_table()
        if not (fault := await self._engine.base_fault()):
            return
        await self._engine.sync()
        gone = (self.farms.key(name) for name in self._applied if name not in self.present)
        lost = [key for key in gone if key is not None]
        if lost:
            self._mark(lost, self._seen)
        if fault := await self._engine.base_fault():
            self._repaired(fault)
            await self._engine.rebuild()

    async def _repair_own_table(self) -> None:
        if fault := await self._engine.own_table_fault(own_table.TABLE, self._table.state):
            self._repaired(fault)
            await self._create_table()

    async def _repair_farm(self, name: str, fault: str) -> None:
        self._repaired(fault, name)
        await self._engine.reload(name)
        if await self._engine.fault(name) and (key := self.farms.key(name)) is not None:
            self._mark([key], self._seen)

    def _repaired(self, fault: str, name: str = "") -> None:
        self.progress.drift_repaired += 1
        metrics.DRIFT_REPAIRED.inc()
        key = self.farms.key(name)
        whose = where(key, self.farms.get(key)) if key is not None else {}
        _log.warning("repaired a difference in the kernel", **whose, fault=fault)

    # What is told to others.

    def _mark(self, keys: Iterable[FarmKey], since: int) -> None:
        for key in keys:
            self._dirty.setdefault(key, since)
            self.progress.changed_at = max(self.progress.changed_at, since)
        if self._dirty:
            metrics.LAST_QUEUED.set_to_current_time()
            self.progress.backlog.queued(self.progress.changed_at, time.monotonic())
        self._wake.set()

    def _comes_or_goes(self, key: FarmKey) -> bool:
        """Whether a farm is not served yet, or is gone: somebody waits for it, more than for one backend more."""
        return key not in self.farms or names.nftlb_farm_name(*key) not in self.present

    def _report(self) -> None:
        unchecked = (entry.since for entry in self._unchecked.values())
        open_ = [*self._dirty.values(), *self._in_work.values(), *unchecked]
        self.progress.pending = len(open_)
        # What is in work since an event is not done; all that came before that event is.
        self.progress.watermark = max(min(open_) - 1, 0) if open_ else self._seen
        if self._adopted:
            self.progress.backlog.advanced(
                self.progress.watermark, self.progress.changed_at, time.monotonic(), pending=bool(open_)
            )
        self.progress.policy_watermark = self._policies.watermark
        self.progress.policy_changed_at = self._policies.changed_at
        self._told_troubles = self._troubles()
        self._on_progress()

    def _report_news(self) -> None:
        """As ``_report`` where nothing is to be done: most of the time there is nothing new then."""
        told = self.progress.watermark, self.progress.policy_watermark, self._told_troubles
        if (self._seen, self._policies.watermark, self._troubles()) != told:
            self._report()

    def _troubles(self) -> tuple[int, str, str]:
        return self.progress.drift_repaired, self.progress.last_error, self.progress.nftlb_error

    def _save_meanwhile(self) -> None:
        """While changes come without pause: a file that lacks the newest farms is better than one of an hour ago.

        But not one that lacks most, as it would after the agent's start, until all have been compared.
        """
        if time.monotonic() - self._saved_at >= SAVE_WITHIN_S and len(self._applied) * 10 >= len(self.present) * 9:
            # One that has not been compared since it gave an address away would be loaded with it.
            self._save(farm for farm in self._applied.values() if not self._engine.holders(farm))
            self._unsaved = True

    def _save(self, farms: Iterable[objects.Farm]) -> None:
        now = time.monotonic()
        if self._unsaved and now - self._saved_at >= SAVE_EVERY_S:
            self._saved_at = now
            try:
                self._engine.save(farms)
                self._unsaved = False
            except OSError as error:
                self.progress.last_error = f"cannot write nftlb's start-up file: {error}"
                _log.warning("cannot write nftlb's start-up file", error=str(error))
