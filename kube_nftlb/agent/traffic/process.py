"""Run the process that counts, and pass its reports on."""

import asyncio
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable
from typing import Final

import structlog

from kube_nftlb.netfilter.traffic import report
from kube_nftlb.netfilter.traffic.report import Report

_INTERVAL_S: Final = 5.0
_RETRY_S: Final = 30.0
_ERROR_MAX: Final = 300

_log = structlog.get_logger()


async def run(add: Callable[[Report], None]) -> None:
    """Count until cancelled. The process is started again if it ends; without it the agent serves as well."""
    accounting = True
    while True:
        process: Process | None = None
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "kube_nftlb.netfilter.traffic", str(_INTERVAL_S)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=report.LINE_MAX,
            )
            async for line in _lines(process):
                each = report.decode(line)
                if accounting and not each.bytes_counted:
                    _log.warning("bytes are not counted: net.netfilter.nf_conntrack_acct is 0, and cannot be written")
                accounting = each.bytes_counted
                add(each)
            _, told = await process.communicate()
            _log.warning("the count of traffic ended, starting it again", error=_shortened(told), seconds=_RETRY_S)
        except Exception:
            # Whatever it is: the agent has more important work.
            _log.exception("cannot count traffic, starting again", seconds=_RETRY_S)
        finally:
            if process is not None:
                await _end(process)
        await asyncio.sleep(_RETRY_S)


async def _lines(process: Process) -> AsyncIterator[bytes]:
    while process.stdout is not None and (line := await process.stdout.readline()):
        yield line


async def _end(process: Process) -> None:
    if process.stdin is not None:
        # It ends with its standard input, also where it is not our own child.
        process.stdin.close()
    if process.returncode is None:
        process.kill()
        await process.wait()


def _shortened(told: bytes) -> str:
    return told.decode(errors="replace").strip()[-_ERROR_MAX:]
