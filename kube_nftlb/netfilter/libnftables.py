"""libnftables, for the few things that the agent itself changes in nftables. Each call is one transaction.

Called through ctypes: the Python bindings that nftables ships (``python3-nftables``) are not on PyPI, and do the same.
"""

import asyncio
import ctypes
import threading
from typing import Protocol, Self

import structlog

from kube_nftlb import errors
from kube_nftlb.netfilter.notifications import take_own_name

_log = structlog.get_logger()

_LIBRARY = "libnftables.so.1"


class Nftables(Protocol):
    """Runs commands of nft(8)."""

    async def run(self, commands: str) -> None:
        """Run commands in one transaction. Raises KernelError with nft's message."""

    async def check(self, commands: str) -> str | None:
        """Return why nft or the kernel refuses these commands, or None; change nothing."""


class Nft:
    """A context of libnftables. Use ``Nft.open``; it works in the network namespace of the process."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._context = ctypes.c_void_p(library.nft_ctx_new(0))
        self._lock = threading.Lock()
        library.nft_ctx_buffer_output(self._context)
        library.nft_ctx_buffer_error(self._context)

    @classmethod
    def open(cls) -> Self:
        """Load the library. Raises KernelError if it is not installed."""
        try:
            library = ctypes.CDLL(_LIBRARY)
        except OSError as error:
            raise errors.KernelError(
                f"{_LIBRARY} cannot be loaded, install the package libnftables1: {error}"
            ) from error
        library.nft_ctx_new.restype = ctypes.c_void_p
        library.nft_ctx_new.argtypes = [ctypes.c_uint32]
        for function in (library.nft_ctx_get_error_buffer, library.nft_ctx_get_output_buffer):
            function.restype = ctypes.c_char_p
            function.argtypes = [ctypes.c_void_p]
        library.nft_ctx_set_dry_run.argtypes = [ctypes.c_void_p, ctypes.c_bool]
        library.nft_ctx_set_dry_run.restype = None
        library.nft_run_cmd_from_buffer.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
        return cls(library)

    async def run(self, commands: str) -> None:
        """See ``Nftables``."""
        await asyncio.to_thread(self._run, commands)

    async def check(self, commands: str) -> str | None:
        """See ``Nftables``."""
        try:
            await asyncio.to_thread(self._run, commands, dry=True)
        except errors.KernelError as error:
            return str(error)
        return None

    def _run(self, commands: str, *, dry: bool = False) -> None:
        take_own_name()
        with self._lock:
            self._library.nft_ctx_set_dry_run(self._context, dry)
            failed = self._library.nft_run_cmd_from_buffer(self._context, commands.encode())
            said = self._library.nft_ctx_get_error_buffer(self._context) or b""
            self._library.nft_ctx_get_output_buffer(self._context)
        if failed:
            text = said.decode(errors="replace").strip()
            _log.debug("nftables refused", said=text)
            # Without the commands, which it quotes: they may contain the clients of sessions.
            message = "; ".join(line for line in text.splitlines() if "Error" in line)
            raise errors.KernelError(f"nftables refused: {message or 'it does not say why'}")
