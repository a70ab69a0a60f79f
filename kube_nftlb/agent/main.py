"""Run the agent until a signal: start its duties, and stop them in the order that connections need."""

import asyncio
import gc
import signal
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import structlog

from kube_nftlb import logs
from kube_nftlb.agent.clock import MonotonicClock
from kube_nftlb.agent.duties import Duty, open_agent
from kube_nftlb.agent.kube_proxy.ports import held_by_others
from kube_nftlb.agent.shutdown import GRACE_S, ShutdownReason, clean_up, shutdown_reason
from kube_nftlb.netfilter.notifications import set_own_name
from kube_nftlb.settings import AgentSettings

_PROGRAM = "nftlb-agent"
_GARBAGE_OBJECTS = 20_000
"""Number of new objects that start a search for cycles, instead of 700.

With thousands of farms an eighth of the processor time of a start was spent on it, and nothing was found.
"""
_LAST_PASS_S = 5
"""Maximum time in seconds for the loop to end its pass: a cancelled one leaves connections to what has gone."""

_log = structlog.get_logger()


def main(settings: AgentSettings) -> None:
    """Run the agent until SIGTERM or SIGINT.

    What it has programmed stays, and goes on working. Only where its DaemonSet is deleted, or no longer selects the
    node and kube-proxy has taken over, all is taken away.

    Raises UsageError where the metrics or health address cannot be listened on.
    """
    gc.set_threshold(_GARBAGE_OBJECTS, *gc.get_threshold()[1:])
    logs.configure(settings.log_level, settings.log_format)
    structlog.contextvars.bind_contextvars(node=settings.node_name)
    # Changes by this program are told from those by others, which may run on Python too.
    set_own_name(_PROGRAM)
    asyncio.run(_run(settings))


async def _run(settings: AgentSettings) -> None:
    async with AsyncExitStack() as stack:
        agent = await open_agent(settings, stack)
        reconciling = asyncio.create_task(agent.reconciler.run(), name="reconcile")
        stop_first, stop_after_handover = _started(agent.stop_first), _started(agent.stop_after_handover)
        on_proxy_ports = _started(agent.on_proxy_ports)
        tasks = [reconciling, *stop_first, *stop_after_handover, *on_proxy_ports, *_started(agent.duties)]
        _log.info("agent started")
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        stopped = asyncio.create_task(stop.wait(), name="stop")
        done, _ = await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
        clock = MonotonicClock()
        killed_at = clock.now() + GRACE_S
        if done == {stopped} and agent.announcing is not None:
            # While all else goes on: until another node has an address, clients come here.
            await agent.announcing.hand_over()
        await _end(stop_first)
        why = ShutdownReason.RESTART
        if done == {stopped}:
            # Changes are programmed until kube-proxy has taken over.
            proxy = agent.reconciler.progress.kube_proxy
            why = await shutdown_reason(
                agent.daemon_set,
                agent.own_node,
                agent.proxy_rules,
                held_by_others,
                clock,
                partial(_end, on_proxy_ports),
                proxy_gone=proxy is not None and proxy.gone,
            )
        if agent.announcing is not None:
            if why is not ShutdownReason.RESTART:
                await agent.announcing.give_up()
            await agent.announcing.end()
        await _end(stop_after_handover)
        agent.reconciler.stop()
        await asyncio.wait([reconciling], timeout=_LAST_PASS_S)
        await _end([stopped, *tasks])
        for task in done - {stopped}:
            task.result()
        await clean_up(why, agent.kube, agent.own_node, settings.nftlb, agent.nft, killed_at - clock.now())
    _log.info("agent stopped")


def _started(duties: Mapping[str, Duty]) -> list[asyncio.Task[None]]:
    return [asyncio.create_task(run(), name=name) for name, run in duties.items()]


async def _end(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
