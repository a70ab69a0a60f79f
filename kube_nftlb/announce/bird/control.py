"""The agent's end of BIRD: the file with its configuration, and its control socket."""

import asyncio
import fcntl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, TextIO

from kube_nftlb import files
from kube_nftlb.announce.bird import answers
from kube_nftlb.announce.bird.answers import Session
from kube_nftlb.announce.bird.files import AGENT, CONFIG, SOCKET

_PATIENCE_S: Final = 2.0
_ANSWER_MAX: Final = 1 << 20
"""Bytes of an answer, which is then an error: BIRD needs about a thousand for a session."""


class BirdControl:
    """The BIRD of a run directory, which its container and the agent share."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._lock: TextIO | None = None

    def begin(self) -> None:
        """Say that an agent runs, until ``end`` or the end of this process. Raises OSError."""
        self._lock = (self._run_dir / AGENT).open("w")
        fcntl.flock(self._lock, fcntl.LOCK_SH)

    def end(self) -> None:
        """Say that the agent ends."""
        if self._lock is not None:
            self._lock.close()

    def write(self, config: str) -> None:
        """Write the configuration. Raises OSError."""
        files.replace(self._run_dir / CONFIG, config)

    async def configure(self) -> str:
        """Have BIRD read its configuration, and return what is wrong with that. Raises OSError, TimeoutError."""
        return answers.error(await self._ask("configure"))

    async def sessions(self) -> list[Session]:
        """Return the BGP sessions. Raises OSError, TimeoutError."""
        return answers.sessions(await self._ask("show protocols all"))

    async def bfd_intervals_ms(self) -> dict[str, int]:
        """Return the interval of BFD with each router that answers, by its address. Raises OSError, TimeoutError."""
        return answers.bfd_intervals_ms(await self._ask("show bfd sessions"))

    async def _ask(self, request: str) -> list[str]:
        async with asyncio.timeout(_PATIENCE_S):
            reader, writer = await asyncio.open_unix_connection(self._run_dir / SOCKET)
            try:
                # It greets first.
                await reader.readline()
                writer.write(f"{request}\n".encode())
                return [line async for line in _answer(reader)]
            except ValueError as error:
                raise OSError(f"its answer has a line that is too long: {error}") from error
            finally:
                writer.close()


async def _answer(reader: asyncio.StreamReader) -> AsyncIterator[str]:
    """Yield the lines of an answer. Raises OSError if there are too many, and ValueError for one that is too long."""
    number = 0
    while line := await reader.readline():
        number += len(line)
        if number > _ANSWER_MAX:
            raise OSError(f"its answer has more than {_ANSWER_MAX} bytes")
        text = line.decode(errors="replace").rstrip("\n")
        yield text
        if answers.is_last(text):
            return
