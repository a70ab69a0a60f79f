"""Take a node over from kube-proxy: once the agent serves what kube-proxy's rules do, and it is gone, remove these.

Both may be there for a while: each translates a connection as a whole, and the first one wins. A kube-proxy that lives
would write its rules anew, so they are removed once in the life of an agent; if they return, the agent says so.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import structlog

from kube_nftlb import errors, metrics
from kube_nftlb.agent.clock import Clock
from kube_nftlb.agent.kube_proxy.rules import Fingerprint, ProxyRules
from kube_nftlb.agent.kube_proxy.served import Ours, Served, unserved
from kube_nftlb.agent.sync.loop_state import LoopState
from kube_nftlb.agent.sync.progress import KubeProxy, Progress
from kube_nftlb.netfilter.table_text import FAMILIES
from kube_nftlb.prose import some_of

_log = structlog.get_logger()

QUIET_S = 5.0
"""Time in seconds that kube-proxy's ports must be free, as a kube-proxy that is restarted comes back.

Also that the agent must have served what kube-proxy's rules serve: the operator writes a Service's farms one by one.
"""
POLL_PRESENT_S = 1.0
POLL_ABSENT_S = 10.0
"""Intervals in seconds between looks while there is something of kube-proxy, and while there is not."""

_PROXY_EVERY_S = 0.2
"""Interval in seconds between looks for the rules of a kube-proxy to which the node goes back."""

_BY_HAND = "stop it on this node, then restart the agent, which removes its rules"

_LEGACY = (
    "there is a table nat of iptables-legacy, which the agent does not read: see if iptables-legacy-save and"
    " ip6tables-legacy-save show the chain KUBE-SERVICES; if so, restart the node, or remove kube-proxy's chains alone"
)


class Ports(Protocol):
    """Tells on which of kube-proxy's ports other processes listen."""

    def __call__(self) -> list[int]:
        """Return the ports. Raises KernelError."""


class Takeover:
    """Keeps ``progress.kube_proxy`` up to date, and removes what kube-proxy left."""

    def __init__(
        self,
        rules: ProxyRules,
        progress: Progress,
        clock: Clock,
        *,
        ports: Ports,
        legacy_nat: Callable[[], bool],
        unserved: Callable[[Collection[Served]], list[Served]],
        cleanup: bool,
        on_change: Callable[[], None],
        on_removed: Callable[[str], None],
    ) -> None:
        """With ``cleanup`` off, rules are only reported. ``on_removed`` gets a sentence about what was removed.

        ``legacy_nat`` returns True where there may be rules that are not read. ``unserved`` returns what the agent
        does not serve of what the rules do.
        """
        self._rules = rules
        self._progress = progress
        self._clock = clock
        self._ports = ports
        self._legacy_nat = legacy_nat
        self._unserved = unserved
        self._cleanup = cleanup
        self._on_change = on_change
        self._on_removed = on_removed
        self._free_since: float | None = None
        self._served_since: float | None = None
        self._read: tuple[set[Fingerprint], list[Served]] | None = None
        """What the rules serve, and their fingerprints as it was read: there may be tens of thousands."""
        self._stale: set[str] | None = None
        """The rules that were there before the agent, or beside a kube-proxy: who writes others lives."""
        self._removed = False

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self.look()
            state = self._progress.kube_proxy
            await self._clock.sleep(POLL_ABSENT_S if state is not None and state.gone else POLL_PRESENT_S)

    async def look(self) -> None:
        """Look once, and remove what can be removed."""
        try:
            state = await self._look()
        except (errors.KernelError, OSError) as error:
            state = KubeProxy("KubeProxyUnknown", str(error))
        except Exception as error:
            # The node is served all the same, and its status must not keep telling what was.
            state = KubeProxy("KubeProxyUnknown", f"internal error: {error!r}")
            if state != self._progress.kube_proxy:
                _log.exception("cannot look for kube-proxy")
        metrics.KUBE_PROXY_RULES.set(state.rules)
        if state != self._progress.kube_proxy:
            _log.info("kube-proxy", reason=state.reason, message=state.message)
            self._progress.kube_proxy = state
            self._on_change()

    async def _look(self) -> KubeProxy:
        now = self._clock.now()
        found, busy_ports = await self._rules.found(), await asyncio.to_thread(self._ports)
        names = ", ".join(found)
        if self._stale is None or busy_ports or not found:
            self._stale = set(found)
        if busy_ports or not found:
            self._read = self._served_since = None
        if busy_ports:
            self._free_since = None
            listens = f"another process listens on port {' and '.join(map(str, busy_ports))}, as kube-proxy does"
            rules = f"; its rules: {names}" if found else "; it has no rules"
            return KubeProxy("KubeProxyRuns", f"{listens}{rules}", rules=bool(found))
        if self._free_since is None:
            self._free_since = now
        if not found and self._legacy_nat():
            return KubeProxy("KubeProxyUnknown", _LEGACY)
        if not found:
            return KubeProxy("NoKubeProxy", "there are no rules of kube-proxy, and nobody listens on its ports")
        if self._removed or not self._stale.issuperset(found):
            message = f"a kube-proxy that does not listen on its ports has written rules: {names}; {_BY_HAND}"
            return KubeProxy("KubeProxyRulesReturned", message, rules=True)
        return await self._look_at_rules(found, now, self._free_since)

    async def _look_at_rules(self, found: Sequence[str], now: float, free_since: float) -> KubeProxy:
        """Remove the rules that a kube-proxy has left, if they can be."""
        names = ", ".join(found)
        if not self._cleanup:
            message = f"kube-proxy left rules: {names}; kubeProxy.cleanup of the chart is off"
            return KubeProxy("KubeProxyRulesLeft", message, rules=True)
        if self._waits:
            return self._pending(names, "once all farms are programmed")
        if missing := self._unserved(await self._served(fresh=False)):
            self._served_since = None
            return self._pending(
                names, f"once farms serve what they do: there is none for {some_of([*map(str, missing)])}"
            )
        self._served_since = now if self._served_since is None else self._served_since
        if now - max(free_since, self._served_since) < QUIET_S:
            return self._pending(names, f"if kube-proxy does not come back within {QUIET_S:.0f} s")
        if self._unserved(await self._served(fresh=True)):
            self._served_since = None
            return self._pending(names, "once farms serve what they do")
        return await self._remove(found)

    @staticmethod
    def _pending(names: str, when: str) -> KubeProxy:
        return KubeProxy(
            "KubeProxyRulesPending", f"kube-proxy left rules: {names}; they are removed {when}", rules=True
        )

    async def _served(self, *, fresh: bool) -> list[Served]:
        """Return what the rules serve, read again if they are others, or with ``fresh``."""
        fingerprints = {each for family in FAMILIES for each in await self._rules.fingerprints(family)}
        if fresh or self._read is None or self._read[0] != fingerprints:
            self._read = fingerprints, await self._rules.served()
        return self._read[1]

    @property
    def _waits(self) -> bool:
        progress = self._progress
        # Not until nothing is pending, since changes may never stop: all farms that there were are programmed.
        return progress.lag.done_at is None or bool(progress.engine_error or progress.pass_error)

    async def _remove(self, found: Sequence[str]) -> KubeProxy:
        # Before the attempt: whatever ends it, what has been removed is not removed again.
        self._removed = True
        try:
            done = ", ".join(await self._rules.remove())
        except errors.KernelError:
            # Only what is still there is tried again.
            self._stale = set(found).intersection(await self._rules.found())
            self._removed = False
            raise
        _log.info("rules of kube-proxy removed", rules=done)
        self._on_removed(f"kube-proxy is gone, and the rules that it left are removed: {done}")
        return KubeProxy("NoKubeProxy", f"the rules that kube-proxy left are removed: {done}")


def unserved_by(state: LoopState, served: Collection[Served]) -> list[Served]:
    """Return what no engine serves yet of what kube-proxy's rules do; all before the farms are known."""
    if not state.complete:
        return list(served)
    index = state.index
    return unserved(served, Ours(state.has_listener, index.node.port_ips, index.slices.of, index.of_service))


async def until_proxy_serves(
    rules: ProxyRules,
    ports: Ports,
    families: Sequence[str],
    clock: Clock,
    timeout_s: float,
    *,
    gone: bool,
) -> bool:
    """Wait until a kube-proxy that lives has rules for all these families (``ip``, ``ip6``); return False if none has.

    Rules may be there that a kube-proxy left long ago, with endpoints that have gone. So those that are there at the
    first look count only once they have been written anew, as every kube-proxy does at its start, or once another
    process has listened on kube-proxy's ports for QUIET_S: that one runs, and wrote them before the first look. With
    ``gone`` there were none when ``Takeover`` last looked, so all are new.
    """
    deadline = clock.now() + timeout_s
    before: dict[str, set[Fingerprint]] | None = {family: set() for family in families} if gone else None
    listens_since: float | None = None
    while (now := clock.now()) < deadline:
        try:
            fingerprints = {family: await rules.fingerprints(family) for family in families}
            busy_ports = await asyncio.to_thread(ports)
        except errors.KernelError as error:
            _log.warning("cannot look for rules of kube-proxy", error=str(error))
        else:
            before = fingerprints if before is None else before
            listens_since = (now if listens_since is None else listens_since) if busy_ports else None
            lives = listens_since is not None and now - listens_since >= QUIET_S
            if all(fingerprints[family] if lives else fingerprints[family] - before[family] for family in families):
                return True
        await clock.sleep(_PROXY_EVERY_S)
    return False
