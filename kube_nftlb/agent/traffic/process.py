"""Run the process that counts, and pass its reports on."""

import asyncio
import sys
from collections.abc import Callable
from typing import Final

import structlog

from kube_nftlb.netfilter.traffic.process import counting_process
from kube_nftlb.netfilter.traffic.report import Report

_INTERVAL_S: Final = 5.0
_RETRY_S: Final = 30.0

_log = structlog.get_logger()


async def run(add: Callable[[Report], None]) -> None:
    """Count until cancelled. The process is started again if it ends; without it the agent serves as well."""
    accounting = True
    while True:
        try:
            async with counting_process(
                (sys.executable, "-m", "kube_nftlb.netfilter.traffic", str(_INTERVAL_S))
            ) as process:
                async for each in process.reports():
                    if accounting and not each.bytes_counted:
                        _log.warning(
                            "bytes are not counted: net.netfilter.nf_conntrack_acct is 0, and cannot be written"
                        )
                    accounting = each.bytes_counted
                    add(each)
                _, error = await process.outcome()
                _log.warning("the count of traffic ended, starting it again", error=error, seconds=_RETRY_S)
        except Exception:
            # Whatever it is: the agent has more important work.
            _log.exception("cannot count traffic, starting again", seconds=_RETRY_S)
        await asyncio.sleep(_RETRY_S)
