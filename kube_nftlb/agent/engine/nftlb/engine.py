"""The engine that programs nftlb: farms become objects of nftlb, these become requests in a safe order.

nftlb answers 200 although nft failed, so that success is what the kernel says (``drift``). Its defects are dealt with
here and in ``steps`` and ``mirror``: see docs/nftlb-defects.md.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import structlog

from kube_nftlb import errors, metrics
from kube_nftlb.agent.clock import Clock
from kube_nftlb.agent.connections.connections import Connections, Table
from kube_nftlb.agent.engine.base import TAKEN, Applied, FarmChanges
from kube_nftlb.agent.engine.nftlb import groups, marks, steering
from kube_nftlb.agent.engine.nftlb.mirror import Mirror, listeners
from kube_nftlb.agent.engine.nftlb.stale_sessions import StaleSessions
from kube_nftlb.agent.engine.nftlb.startup_file import StartupFile
from kube_nftlb.agent.engine.nftlb.steps import plan_steps
from kube_nftlb.agent.engine.nftlb.suspects import Suspects
from kube_nftlb.agent.engine.nftlb.translate import keeper, translate
from kube_nftlb.agent.engine.nftlb.verify import RulesReader, Verifier
from kube_nftlb.agent.engine.sent import SentFarms
from kube_nftlb.agent.model import Blocker, NodeFarm
from kube_nftlb.agent.table import traffic_policy
from kube_nftlb.netfilter.libnftables import Nftables
from kube_nftlb.netfilter.table_text import Contents
from kube_nftlb.nftlb import objects
from kube_nftlb.nftlb.client import LACKS_PATCHES, NftlbClient
from kube_nftlb.nftlb.requests import Step

Target = objects.Farm | None
"""A farm as nftlb is to have it, or None if it is to go."""

_log = structlog.get_logger()

_ENDS_NFTLB = (
    "nftlb ended twice as it was sent this farm, which stays as it was on this node: the farm is tried again after an "
    "hour or when its spec changes, and the logs of the container nftlb have more"
)
PING_EVERY_S = 1
"""The interval of checks that nftlb answers."""


class NftlbEngine:
    """See ``DaemonEngine``."""

    def __init__(
        self,
        client: NftlbClient,
        reader: RulesReader,
        conntrack: Table,
        connections: Connections,
        nft: Nftables,
        startup_file: Path,
        clock: Clock,
    ) -> None:
        self._client = client
        self._clock = clock
        self._suspects = Suspects(clock)
        self.mirror = Mirror(client, reader, nft, self._suspects, self._keep_out_of_startup_file)
        self.verifier = Verifier(self.mirror.present, reader, self.mirror.sessions)
        self._stale = StaleSessions(self.mirror.present, self.mirror.sessions, conntrack)
        self._connections = connections
        self._startup_file = StartupFile(startup_file)
        self._loaded = False
        self._pinged_at = float("-inf")
        self._targets: dict[str, objects.Farm] = {}
        """The farms as they were last applied."""
        self._deleted: dict[str, objects.Farm] = {}
        """The farms that nftlb has deleted, as they were, until the kernel is known to have none of their rules."""
        self._in_flight: Mapping[str, Target] = {}
        """The targets of requests that nftlb may have and did not answer: it may yet end over them."""
        self._unsaved: str | None = None
        """Reason the start-up file was not written when last tried; None if it was."""

    @property
    def sent(self) -> SentFarms:
        """See ``Engine``."""
        return self.mirror.sent

    @property
    def suspects(self) -> Collection[str]:
        """See ``DaemonEngine``: nftlb has ended over them."""
        return self._suspects.names

    def unsupported(self, farm: NodeFarm) -> Blocker | None:
        """See ``Engine``."""
        if (retry_after_s := self._suspects.retry_after_s(farm.name, farm.version)) > 0:
            return Blocker("NftlbDefect", _ENDS_NFTLB, retry_after_s=retry_after_s)
        if len(farm.endpoints) > (most := objects.MARK_LAST - objects.MARK_FIRST + 1):
            return Blocker("Unsupported", f"nftlb serves at most {most} backends per farm, not {len(farm.endpoints)}")
        if (why := groups.unsupported(farm)) is not None:
            return Blocker("Unsupported", why)
        return None

    def restarted(self) -> bool:
        """See ``DaemonEngine``."""
        return self.mirror.restarted()

    def contents(self, farm: NodeFarm) -> Contents:
        """See ``Engine``."""
        steered = steering.contents(farm, self.mirror.present.get(farm.name))
        return traffic_policy.contents(farm) | groups.contents(farm) | steered

    async def blank(self) -> bool:
        """See ``DaemonEngine``. nftlb may load what is in its start-up file at any time."""
        return not self._startup_file.has_farms() and not await self.verifier.has_rules()

    async def load(self) -> bool:
        """See ``Engine``."""
        restarted = self.mirror.restarted()
        # To read thousands of farms takes a while, so that nobody could tell if it hangs.
        await self.mirror.ping()
        if not self._client.patched:
            raise errors.EngineUnreachableError(LACKS_PATCHES)
        # A farm that stays as an earlier agent left it is never told what it has.
        await self.mirror.sync(None if self._loaded else self._startup_file.read_ingress())
        restarted = self._client.adopted() or restarted
        if restarted:
            self.mirror.forget_sessions()
        await self.mirror.restore_sessions()
        self._startup_file.loaded()
        if restarted:
            # Or this agent was: who knows what went on before.
            await self._connections.rules_back(self.mirror.sent)
        if restarted and self._loaded:
            metrics.NFTLB_STARTS.inc()
            _log.warning("nftlb was restarted")
        self._loaded = True
        return self._startup_file.lost(self.mirror.present)

    async def apply(self, changes: FarmChanges) -> Applied:
        """See ``Engine``."""
        targets, untranslatable = self._translated(changes)
        farms = {name: farm for name, farm in changes.items() if farm is not None and name in targets}
        if without_ingress := await self._keep_ingress(farms):
            untranslatable |= without_ingress
            farms = {name: farm for name, farm in farms.items() if name not in without_ingress}
            targets = {name: target for name, target in targets.items() if name not in without_ingress}
        self._suspects.expect({name: farm.version for name, farm in farms.items()})
        before = {name: self.mirror.present.get(name) for name in targets}
        for name, target in targets.items():
            if target is None:
                # At once: it may be deleted though something fails after it, and then nobody asks for it again.
                self._startup_file.forget(name)
                self._targets.pop(name, None)
        refused, changed = await self._carry_out(targets)
        self._suspects.cleared(farms)
        await self._stale.clean(self._clock.now())
        for name, target in targets.items():
            if target is None:
                if (farm := before[name]) is not None and name not in refused:
                    self._deleted[name] = farm
            else:
                self._targets[name] = target
                self._deleted.pop(name, None)
        incomplete = {name for name, farm in farms.items() if _lacks_endpoints(farm, targets[name])}
        return Applied(untranslatable | refused, incomplete, changed)

    def _translated(self, changes: FarmChanges) -> tuple[dict[str, Target], dict[str, str]]:
        """Return what nftlb is to have, and why it cannot have the other farms."""
        targets: dict[str, Target] = {}
        refused: dict[str, str] = {}
        for name, farm in changes.items():
            try:
                targets[name] = translate(farm, self.mirror.present.get(name)) if farm is not None else None
            except Exception as error:
                # One unexpected farm must not end the service of all others.
                _log.exception("cannot translate a farm", farm=name)
                refused[name] = f"unexpected error: {error!r}"
        for name, farm in changes.items():
            # Two farms never share a listener, and one that is refused stays where it is.
            if refused and farm is not None and self.sent.owners(list(farm.listeners)) & refused.keys() - {name}:
                targets.pop(name, None)
                refused.setdefault(name, TAKEN)
        return targets, refused

    async def _carry_out(self, targets: Mapping[str, Target]) -> tuple[dict[str, str], set[str]]:
        self.mirror.locate(targets)
        steps = self._steps(targets)
        self._stale.expect(marks.gone(steps, targets, self.mirror.present))
        self._in_flight = targets
        failed = await self.mirror.send_steps(steps)
        self._in_flight = {}
        for name in failed.keys() - self.mirror.present.keys():
            # It is not served as it was either: an nftlb that restarts is not to serve it so.
            self._startup_file.forget(name)
        return failed, {step.name for step in steps}

    def _keep_out_of_startup_file(self) -> None:
        """Have nftlb start without the suspects that it should not have, or did not have before it ended."""
        present, targets = self.mirror.present, self._in_flight
        if names := {name for name in self._suspects.names if name not in present or targets.get(name, ...) is None}:
            self._startup_file.remove(names)

    def _steps(self, targets: Mapping[str, Target]) -> list[Step]:
        return plan_steps(self.mirror.present, targets)

    async def _keep_ingress(self, farms: Mapping[str, NodeFarm]) -> dict[str, str]:
        """Keep nftlb's ingress chains, which must exist before the first farm in the mode dsr.

        Return the farms that cannot be served, and why.
        """
        direct = {name: each.direct for name, each in farms.items() if not each.suspended}
        routing = next(filter(None, direct.values()), None)
        if routing is None:
            return {}
        keeps = keeper(routing.inlets)
        if failed := await self.mirror.send_steps(self._steps({keeps.name: keeps})):
            why = f"nftlb refuses the farm that keeps its ingress chains: {failed[keeps.name]}"
            return {name: why for name, each in direct.items() if each is not None}
        self._startup_file.verified(keeps)
        return {}

    async def drift(self, name: str | None = None) -> str | None:
        """See ``Engine``."""
        if name is None:
            return await self.verifier.base()
        # Compared now, as nftlb may have been restarted with older farms since it was told.
        target = self._targets.get(name)
        if target is not None and (steps := self._steps({name: target})):
            return f"nftlb has not taken {type(steps[0]).__name__}"
        farm = self.mirror.present.get(name)
        drift = await self.verifier.farm(name)
        if drift is None and farm is not None and self.mirror.present.get(name) is farm:
            self._startup_file.verified(farm)
        return drift

    async def repair(self, name: str | None = None) -> None:
        """See ``Engine``."""
        if name is None:
            await self.mirror.rebuild()
        else:
            await self.mirror.reload(name)
        await self._connections.rules_back(self.mirror.sent)

    async def revert(self, name: str) -> bool:
        """See ``Engine``. nftlb may have taken a change that the kernel has refused.

        Addresses that other farms have got meanwhile do not come back.
        """
        if (before := self._startup_file.farm(name)) is None:
            return False
        addresses = {key: each for key, each in before.addresses.items() if not self._is_taken(before, each)}
        if before.addresses and not addresses:
            return False
        farm = replace(before, addresses=addresses)
        refused, _ = await self._carry_out({name: farm})
        self._targets[name] = farm
        return name not in refused and await self.drift(name) is None

    async def leftover(self, name: str) -> str | None:
        """See ``DaemonEngine``. nftlb answers ``success`` also if the kernel refuses what it writes."""
        leftover = await self.verifier.leftover(self._deleted[name]) if name in self._deleted else None
        if leftover is None:
            self._deleted.pop(name, None)
        return leftover

    async def forget_stale(self, name: str) -> None:
        """See ``DaemonEngine``."""
        await self._stale.release(name, set())

    async def maintain(self, *, busy: bool) -> str | None:
        """See ``Engine``."""
        now = self._clock.now()
        if now - self._pinged_at > PING_EVERY_S:
            self._pinged_at = now
            await self.mirror.ping()
        await self._stale.again(now)
        try:
            if self._startup_file.save_if_due(
                now, present=len(self.mirror.present), in_conflict=self._in_conflict, busy=busy
            ):
                self._unsaved = None
        except OSError as error:
            self._unsaved = _cannot_save(error)
        return self._unsaved

    def _is_taken(self, farm: objects.Farm, address: objects.Address) -> bool:
        return self._in_conflict(replace(farm, addresses={address.name: address}))

    def _in_conflict(self, farm: objects.Farm) -> bool:
        return bool(self.sent.owners(set(listeners(farm))) - {farm.name})

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
            present = (farm for name, farm in self.mirror.present.items() if name not in self._suspects)
            self._startup_file.save(present, in_conflict=self._in_conflict)
        except OSError as error:
            return _cannot_save(error)
        return None


def _lacks_endpoints(farm: NodeFarm, target: Target) -> bool:
    """Return True if all marks are in use until other backends are gone."""
    return (
        not (farm.suspended or farm.spec.mode == "local")
        and target is not None
        and len(target.backends) < len(farm.endpoints)
    )


def _cannot_save(error: OSError) -> str:
    _log.warning("cannot write nftlb's start-up file", error=str(error))
    return f"cannot write nftlb's start-up file: {error}"
