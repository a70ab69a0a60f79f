"""The engine that programs nftlb: decisions become objects of nftlb, these become requests in a safe order.

nftlb answers 200 although nft failed, so that success is what the kernel says (``drift``). Its defects are dealt with
here and in ``plan`` and ``mirror``: see docs/nftlb-defects.md.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import structlog

from kube_nftlb import errors, metrics
from kube_nftlb.agent.clock import Clock
from kube_nftlb.agent.connections.connections import Connections, Table
from kube_nftlb.agent.engine.base import Applied, FarmChange
from kube_nftlb.agent.engine.nftlb import direct, plan
from kube_nftlb.agent.engine.nftlb.mirror import Mirror
from kube_nftlb.agent.engine.nftlb.stale_sessions import StaleSessions, gone_marks
from kube_nftlb.agent.engine.nftlb.startup_file import StartupFile
from kube_nftlb.agent.engine.nftlb.suspects import Suspects
from kube_nftlb.agent.engine.nftlb.translate import listeners
from kube_nftlb.agent.engine.nftlb.verify import RulesReader, Verifier
from kube_nftlb.agent.engine.nftlb.wanted import Target, Wanted, incomplete
from kube_nftlb.agent.model import Blocker, NodeFarm, Programmed
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.table import layout, policies, traffic_policy
from kube_nftlb.agent.table.table import AgentTable
from kube_nftlb.api.listeners import Listener
from kube_nftlb.netfilter.libnftables import Nftables
from kube_nftlb.netfilter.transaction import Contents
from kube_nftlb.nftlb import objects
from kube_nftlb.nftlb.client import NftlbClient
from kube_nftlb.nftlb.requests import Step

_log = structlog.get_logger()

_ENDS_NFTLB = (
    "nftlb ended twice as it was sent this farm, which stays as it was on this node: the farm is tried again after an "
    "hour or when its spec changes, and the logs of the container nftlb have more"
)
PING_EVERY_S = 1
"""The interval of checks that nftlb answers."""


class NftlbEngine:
    """See ``Engine``."""

    name: ClassVar[str] = "nftlb"

    def __init__(
        self,
        client: NftlbClient,
        reader: RulesReader,
        conntrack: Table,
        connections: Connections,
        nft: Nftables,
        table: AgentTable,
        startup_file: Path,
        clock: Clock,
    ) -> None:
        self._client = client
        self._table = table
        self._clock = clock
        self._suspects = Suspects(clock)
        self.mirror = Mirror(client, reader, nft, self._suspects, self._keep_out_of_startup_file)
        self.verifier = Verifier(self.mirror.present, reader, self.mirror.sessions)
        self._stale = StaleSessions(self.mirror.present, self.mirror.sessions, conntrack)
        self._connections = connections
        self._wanted = Wanted(self.mirror.present, table)
        self._startup_file = StartupFile(startup_file)
        self._loaded = False
        self._told_of_defects = False
        self._pinged_at = float("-inf")
        self._targets: dict[str, objects.Farm] = {}
        """The farms as they were last applied."""
        self._in_flight: Mapping[str, Target] = {}
        """The targets of requests that nftlb may have and did not answer: it may yet end over them."""
        self._table_before: dict[str, dict[str, Contents]] = {}
        """What the agent table had of farms, by owner, when they were last verified: until they are so again."""
        self._deferred: dict[str, Contents] = {}
        """Contents of the agent table, by farm, that can wait for a quiet moment."""
        self._unsaved = ""
        """Reason the start-up file was not written when last tried; empty if it was."""

    @property
    def unreachable(self) -> str:
        """See ``Engine``."""
        return ""

    @property
    def programmed(self) -> Mapping[str, Programmed]:
        """See ``Engine``."""
        return self.mirror.programmed

    @property
    def suspects(self) -> Collection[str]:
        """See ``Engine``: nftlb has ended over them."""
        return self._suspects.names

    def unsupported(self, farm: NodeFarm) -> Blocker | None:
        """See ``Engine``."""
        if (left_out_s := self._suspects.left_out_s(farm.name, farm.version)) > 0:
            return Blocker("NftlbDefect", _ENDS_NFTLB, retry_after_s=left_out_s)
        if blocker := direct.unsupported(farm.spec):
            return blocker
        if len(farm.endpoints) > (most := objects.MARK_LAST - objects.MARK_FIRST + 1):
            return Blocker("Unsupported", f"nftlb serves at most {most} backends per farm, not {len(farm.endpoints)}")
        return None

    def owners(self, listeners: Collection[Listener]) -> set[str]:
        """See ``Engine``."""
        return self.mirror.owners(listeners)

    def restarted(self) -> bool:
        """See ``Engine``."""
        return self.mirror.restarted()

    def overlay(self, farm: NodeFarm) -> Contents:
        """See ``Engine``."""
        return traffic_policy.contents(farm)

    async def restore(self) -> None:
        """See ``Engine``. nftlb loads its start-up file itself."""

    async def set_node(self, node: NodeFacts) -> None:
        """See ``Engine``. It is the agent table that depends on the node."""

    async def blank(self) -> bool:
        """See ``DaemonEngine``. nftlb may load what is in its start-up file at any time."""
        return not self._startup_file.has_farms() and not await self.verifier.has_rules()

    async def load(self) -> bool:
        """See ``Engine``."""
        restarted = self.mirror.restarted()
        # To read thousands of farms takes a while, so that nobody could tell if it hangs.
        await self.mirror.ping()
        await self.mirror.sync()
        if restarted:
            self.mirror.forget_sessions()
        await self.mirror.restore_sessions()
        self._startup_file.loaded()
        if restarted:
            # Or this agent was: who knows what went on before.
            await self._connections.rules_back(self.mirror.programmed)
        if restarted and self._loaded:
            metrics.NFTLB_STARTS.inc()
            _log.warning("nftlb was restarted")
        self._loaded = True
        if not (self._client.patched or self._told_of_defects):
            self._told_of_defects = True
            _log.warning(
                "nftlb lacks the patches of kube-nftlb, so some changes of a farm interrupt others",
                version=self._client.version,
            )
        return self._startup_file.lost(self.mirror.present)

    def rules(self, changes: Sequence[FarmChange]) -> dict[str, Contents]:
        """See ``Engine``."""
        self._deferred = {}
        return self._wanted.rules(changes)

    async def begin(self, changes: Callable[[], Sequence[FarmChange]]) -> Collection[str]:
        """See ``Engine``. nftlb has loaded what it had, and takes farms one by one."""
        del changes
        return ()

    async def is_missing(self) -> bool:
        """See ``Engine``. The agent table knows which listeners nftlb has, and has their clients wait."""
        return False

    async def apply(self, changes: Sequence[FarmChange]) -> Applied:
        """See ``Engine``.

        Rules that keep clients out are added to the agent table before nftlb changes, and removed afterwards.
        """
        targets = self._wanted.targets(changes)
        if self._wanted.untranslatable:
            return Applied(rules_refused=dict(self._wanted.untranslatable), nothing_done=True)
        await self._keep_ingress(changes)
        overlays = {each.name: each for each in changes if each.overlay is not None}
        after = {name: self._wanted.overlay(each, targets[name], targets[name]) for name, each in overlays.items()}
        # Nobody has been served at the addresses of a new farm, so clients need not be refused at once: often the
        # first endpoint is already on its way.
        deferred = {
            name
            for name, contents in after.items()
            if name not in self.mirror.present and contents and layout.is_deferrable(contents)
        }
        self._deferred = {name: contents for name, contents in self._deferred.items() if name not in after}
        self._deferred.update({name: after.pop(name) for name in deferred})
        before = {
            name: self._wanted.overlay(overlays[name], targets[name], self.mirror.present.get(name)) for name in after
        } | {policies.rules_owner(each.name): each.policies for each in changes}
        before = {owner: self._table.owned(owner) | contents for owner, contents in before.items()}
        self._remember_table(changes)
        if rules_refused := await self._table.update(before):
            return Applied(rules_refused=rules_refused, nothing_done=True)
        refused, changed = await self._bring(targets, changes)
        # Those that are refused may still be where they were: their clients are kept out there as before.
        done = {name: contents for name, contents in after.items() if name not in refused}
        done |= {policies.rules_owner(each.name): each.policies_after for each in changes if each.name not in refused}
        rules_refused = await self._table.update(done)
        return Applied(refused, rules_refused, incomplete=incomplete(changes, targets), changed=changed)

    def _remember_table(self, changes: Iterable[FarmChange]) -> None:
        for each in changes:
            if each.name in self.mirror.present and not (each.keep or each.handed_over):
                owners = (each.name, policies.rules_owner(each.name))
                self._table_before.setdefault(each.name, {owner: self._table.owned(owner) for owner in owners})

    async def _bring(
        self, targets: dict[str, Target], changes: Sequence[FarmChange]
    ) -> tuple[dict[str, str], set[str]]:
        """Bring nftlb to the targets. Return what it refused and why, and the farms for which it was sent anything."""
        self._suspects.expect({each.name: each.farm.version for each in changes if each.farm is not None})
        refused, changed = await self._carry_out(targets)
        self._suspects.cleared(each.name for each in changes if each.farm is not None and not each.keep)
        await self._stale.clean(self._clock.now())
        for name, farm in targets.items():
            if farm is None:
                self._startup_file.gone(name)
                self._targets.pop(name, None)
                self._table_before.pop(name, None)
            else:
                self._targets[name] = farm
        return refused, changed

    async def _carry_out(self, targets: Mapping[str, Target]) -> tuple[dict[str, str], set[str]]:
        steps = self._plan(targets)
        self._stale.expect(gone_marks(steps, targets, self.mirror.present))
        self._in_flight = targets
        failed = await self.mirror.apply(steps)
        self._in_flight = {}
        return failed, {step.name for step in steps}

    def _keep_out_of_startup_file(self) -> None:
        """Have nftlb start without the suspects that it should not have, or did not have before it ended."""
        there, targets = self.mirror.present, self._in_flight
        if names := {name for name in self._suspects.names if name not in there or targets.get(name, ...) is None}:
            self._startup_file.cut(names)

    def _plan(self, targets: Mapping[str, Target]) -> list[Step]:
        return plan.steps(self.mirror.present, targets, patched=self._client.patched)

    async def _keep_ingress(self, changes: Iterable[FarmChange]) -> None:
        """Keep nftlb's ingress chains, which must exist before the first farm in the mode dsr."""
        routing = next((each.farm.direct for each in changes if each.farm is not None and each.farm.direct), None)
        if routing is None or not any(each.farm and each.farm.direct and not each.farm.suspended for each in changes):
            return
        keeper = direct.keeper(routing.inlets)
        if failed := await self.mirror.apply(self._plan({keeper.name: keeper})):
            raise errors.KernelError(f"nftlb refuses the farm that keeps its ingress chains: {failed}")
        self._startup_file.verified(keeper)

    async def drift(self, name: str | None = None) -> str | None:
        """See ``Engine``."""
        if name is None:
            return await self.verifier.base()
        # Compared now, as nftlb may have been restarted with older farms since it was told.
        target = self._targets.get(name)
        if target is not None and (left := self._plan({name: target})):
            return f"nftlb has not taken {type(left[0]).__name__}"
        farm = self.mirror.present.get(name)
        drift = await self.verifier.farm(name)
        if drift is None and farm is not None and self.mirror.present.get(name) is farm:
            self._startup_file.verified(farm)
            self._table_before.pop(name, None)
        return drift

    async def repair(self, name: str | None = None) -> None:
        """See ``Engine``."""
        if name is None:
            await self.mirror.rebuild()
        else:
            await self.mirror.reload(name)
        await self._connections.rules_back(self.mirror.programmed)

    async def revert(self, name: str) -> bool:
        """See ``Engine``. nftlb may have taken a change that the kernel has refused."""
        if (farm := self._startup_file.farm(name)) is None:
            return False
        before = self._table_before.get(name, {})
        if await self._table.update({owner: self._table.owned(owner) | each for owner, each in before.items()}):
            return False
        refused, _ = await self._carry_out({name: farm})
        self._targets[name] = farm
        if name in refused or await self.drift(name) is not None:
            return False
        await self._table.update(before)
        return True

    async def forget_stale(self, name: str) -> None:
        """See ``Engine``."""
        await self._stale.release(name, set())

    async def maintain(self, *, busy: bool) -> str | None:
        """See ``Engine``."""
        now = self._clock.now()
        if now - self._pinged_at > PING_EVERY_S:
            self._pinged_at = now
            await self.mirror.ping()
        deferred, self._deferred = self._deferred, {}
        refused = await self._table.update(deferred)
        await self._stale.again(now)
        try:
            if self._startup_file.save_if_due(
                now, present=len(self.mirror.present), in_conflict=self._in_conflict, busy=busy
            ):
                self._unsaved = ""
        except OSError as error:
            self._unsaved = _cannot_save(error)
        return self._unsaved or (f"the kernel refused rules in the agent table: {refused}" if refused else None)

    def _in_conflict(self, farm: objects.Farm) -> bool:
        return bool(self.mirror.owners(set(listeners(farm))) - {farm.name})

    async def aclose(self) -> str | None:
        """See ``Engine``. The next agent does not know which backends are gone, and nftlb may start before it."""
        now = self._clock.now()
        try:
            # First, as the cleanup may fail.
            problem = self._save()
            await self._stale.clean(now)
            await self._stale.again(now)
        finally:
            await self._client.close()
        return problem

    def _save(self) -> str | None:
        try:
            self._startup_file.save(present=len(self.mirror.present), in_conflict=self._in_conflict)
        except OSError as error:
            return _cannot_save(error)
        return None


def _cannot_save(error: OSError) -> str:
    _log.warning("cannot write nftlb's start-up file", error=str(error))
    return f"cannot write nftlb's start-up file: {error}"
