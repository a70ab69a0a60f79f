"""What the operator does, as handlers that kopf calls.

``kube-nftlb operator`` runs it until SIGTERM. ``kopf run --all-namespaces --module kube_nftlb.operator`` does too, with
the command line of kopf, but ends with each failure of kopf's watches.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import kopf
import structlog

from kube_nftlb import logs, metrics
from kube_nftlb.kube.lease import new_identity
from kube_nftlb.kube.resources import POLICIES, SERVICES
from kube_nftlb.operator import kopf_settings
from kube_nftlb.operator.lifecycle import Operator
from kube_nftlb.settings import OperatorSettings

_RESTART_DELAY_S = 1.0
_LOGIN_EVERY_S = 5.0

_log = structlog.get_logger()


def main(settings: OperatorSettings) -> None:
    """Run until SIGTERM or SIGINT; start again if kopf fails, as it does after an error event of a watch.

    Raises UnavailableError if no API server is known, UsageError if listening on the metrics or health address fails,
    and LeaseLostError when another replica may lead.
    """
    while True:
        memo, crash = kopf.Memo(settings=settings), None
        try:
            # Without an identity, kopf looks up the name of the user, who has none in a container.
            identity: Any = new_identity()
            kopf.run(clusterwide=True, memo=memo, identity=identity)
        except Exception as error:
            crash = error
        if "failure" in memo:
            raise memo.failure
        if crash is None:
            return
        _log.error("watches failed, restarting", error=repr(crash), exc_info=crash)
        metrics.WATCH_RESTARTS.inc()
        # kopf has reset the handler, and the first process of a container ignores a signal without one.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        time.sleep(_RESTART_DELAY_S)


@kopf.on.startup()
async def start(settings: kopf.OperatorSettings, memo: kopf.Memo, **_: Any) -> None:
    """Start all that runs beside kopf, before it watches anything."""
    kopf_settings.configure(settings)
    with _failing(memo):
        own: OperatorSettings = memo.get("settings") or OperatorSettings.from_environment(os.environ)
        logs.configure(own.log_level, own.log_format)
        memo.operator = await Operator.start(own)
        try:
            await memo.operator.until_discoverable()
        except BaseException:
            # kopf does not call ``stop`` if it is told to end before it has started.
            await memo.operator.stop()
            raise


@kopf.on.login()
async def login(memo: kopf.Memo, **_: Any) -> kopf.AiohttpSession:
    """Connect to the API server: once in a while, as kopf asks again at once if it refuses the credentials."""
    now = asyncio.get_running_loop().time()
    if now - memo.get("logged_in_at", -_LOGIN_EVERY_S) < _LOGIN_EVERY_S:
        _log.warning("the API server refuses the credentials, trying again", after_s=_LOGIN_EVERY_S)
        await asyncio.sleep(_LOGIN_EVERY_S)
    memo.logged_in_at = asyncio.get_running_loop().time()
    return await kopf_settings.login(_operator(memo).servers)


@kopf.on.event(SERVICES.group, SERVICES.version, SERVICES.plural)
async def service(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Reconcile the farms of a Service. Nothing is written before everything is listed."""
    _operator(memo).take(SERVICES, event)


@kopf.on.event(POLICIES.group, POLICIES.version, POLICIES.plural)
async def policy(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Reconcile the status of an NftlbPolicy."""
    _operator(memo).take(POLICIES, event)


@kopf.on.probe()
async def health(memo: kopf.Memo, **_: Any) -> Any:
    """Report the health to ``kopf run --liveness``; the chart's probes ask the operator's own port."""
    answer = _operator(memo).probe("/livez")
    if answer.status != 200:
        raise kopf.PermanentError(str(answer.body))
    return answer.body


@kopf.on.cleanup()
async def stop(memo: kopf.Memo, **_: Any) -> None:
    """Stop writing, then let another replica lead, then end."""
    with _failing(memo):
        await _operator(memo).stop()
    await kopf_settings.end_watches()


def _operator(memo: kopf.Memo) -> Operator:
    operator: Operator = memo.operator
    return operator


@contextlib.contextmanager
def _failing(memo: kopf.Memo) -> Iterator[None]:
    """Have kopf end with an error, and keep it for ``main``: kopf raises one of its own instead."""
    try:
        yield
    except Exception as error:
        memo.failure = error
        raise kopf.PermanentError(str(error)) from error
