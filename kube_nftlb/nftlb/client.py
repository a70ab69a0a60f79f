"""A client of nftlb's HTTP API: one request at a time, one connection each, each with a timeout.

Nobody waits for a daemon that hangs: after ``patience_s`` a request goes on alone, and all others fail until it ends.

The daemon has one thread and a listen backlog of 2. It compares the header name ``Key`` case-sensitively, and answers
200 even if it did not understand a value; then the answer's text says more than ``success``.
"""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from kube_nftlb import errors, metrics
from kube_nftlb.nftlb import objects
from kube_nftlb.nftlb.requests import Request

_PATCHED = "+kube-nftlb"
"""In the version of an nftlb with this project's patches."""
UNPATCHED = "unpatched"
"""Stands for the version of an nftlb that does not tell it, as it lacks the patch for that."""
LACKS_PATCHES = (
    "this nftlb lacks the patches of kube-nftlb, without which a change of one farm interrupts others: use "
    "the nftlb of kube-nftlb's image"
)
TIMEOUT_S = 60.0
"""Loading thousands of farms in one request takes nftlb a long time."""
SILENT_AFTER_S = 5.0
"""Time in seconds without an answer to a request after which nftlb is reported as silent."""


class NftlbClient:
    """A client of one daemon. ``key_file`` holds its key, and is read again whenever the daemon has a new one."""

    def __init__(
        self,
        url: str,
        key_file: Path,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        on_request: Callable[[Request, float], None] = lambda *_: None,
        on_silence: Callable[[str | None], None] = lambda _: None,
        on_version: Callable[[str], None] = lambda _: None,
        silent_after_s: float = SILENT_AFTER_S,
    ) -> None:
        """Call ``on_request`` with each request and its duration in seconds; ``transport`` is for tests.

        ``on_silence`` is called with a message while a request is not answered, and with None once it is;
        ``on_version`` with the version in the first answer, and whenever it changes.
        """
        self._on_silence = on_silence
        self._on_version = on_version
        self._silent_after_s = silent_after_s
        self._key_file = key_file
        self._key = ""
        self._restarted = False
        """True if the daemon of ``_key`` is not the one that was ``adopted`` last."""
        self.patience_s = TIMEOUT_S
        """Maximum time in seconds to wait for an answer."""
        self._lock = asyncio.Lock()
        self._abandoned: asyncio.Task[httpx.Response] | None = None
        """A request that nftlb had for longer than that."""
        self._on_request = on_request
        self.version = ""
        """The version in the last answer, such as ``1.0.7+kube-nftlb.7``; UNPATCHED if nftlb says none."""
        self._http = httpx.AsyncClient(
            base_url=url,
            timeout=TIMEOUT_S,
            transport=transport,
            limits=httpx.Limits(max_keepalive_connections=0, max_connections=1),
            trust_env=False,
        )

    @property
    def patched(self) -> bool:
        """True if the daemon has this project's patches, as far as its last answer told."""
        return _PATCHED in self.version

    async def close(self) -> None:
        """Close the connections."""
        if self._abandoned is not None:
            self._abandoned.cancel()
        await self._http.aclose()

    def restarted(self) -> bool:
        """Return True if the daemon was restarted since it was last ``adopted``: each start makes a new key."""
        try:
            return self._restarted or self._key_file.read_text().strip() != self._key
        except OSError:
            return True

    def adopted(self) -> bool:
        """Note that the caller goes on from the farms that it has read. Return True if a request met a restart before.

        Whoever only reads the farms does not: the restart would be lost on who has to send again what it has not.
        """
        restarted, self._restarted = self._restarted, False
        return restarted

    async def farms(self) -> dict[str, objects.Farm]:
        """Return all farms that nftlb has, by name. Raises NftlbUnreachableError, also if the answer makes no sense."""
        request = Request("GET", "/farms")
        try:
            body: dict[str, Any] = json.loads(await self.send(request))
            return objects.parse(body)
        except (errors.NftlbError, ValueError, KeyError, TypeError, AttributeError) as error:
            message = f"{request.method} {request.path}: the answer is no list of farms: {errors.why(error)}"
            raise errors.NftlbUnreachableError(message) from error

    async def change(self, request: Request) -> None:
        """Send a request that changes something. Raises NftlbError for every answer but plain success."""
        try:
            text = await self.send(request)
        except errors.NftlbError:
            metrics.NFTLB_REQUESTS_FAILED.labels("Refused").inc()
            raise
        try:
            answer = json.loads(text).get("response")
        except ValueError:
            answer = text
        if answer != "success":
            metrics.NFTLB_REQUESTS_FAILED.labels("Refused").inc()
            raise errors.NftlbError(200, str(answer))

    async def send(self, request: Request) -> str:
        """Return the answer's body. Raises NftlbError (status 400 and above) and NftlbUnreachableError."""
        self._check_abandoned()
        exchange = asyncio.create_task(self._exchange(request), name="nftlb")
        try:
            await asyncio.wait([exchange], timeout=self.patience_s)
        except asyncio.CancelledError:
            exchange.cancel()
            raise
        if not exchange.done():
            self._abandoned = exchange
            raise errors.NftlbHangsError(f"{request.method} {request.path} is not answered in {self.patience_s:g} s")
        response = exchange.result()
        if response.status_code >= 400:
            raise errors.NftlbError(response.status_code, response.text.strip() or response.reason_phrase)
        return response.text

    def _check_abandoned(self) -> None:
        """Raise NftlbHangsError while nftlb has another request, and once NftlbEndedError if it ended over that."""
        if self._abandoned is None:
            return
        if not self._abandoned.done():
            raise errors.NftlbHangsError("an earlier request is not answered yet")
        error, self._abandoned = self._abandoned.exception(), None
        if isinstance(error, errors.NftlbEndedError):
            raise error

    async def _exchange(self, request: Request) -> httpx.Response:
        async with self._lock:
            response = await self._attempt(request)
            if response.status_code == 401 and self._read_key():
                response = await self._attempt(request)
            return response

    async def _attempt(self, request: Request) -> httpx.Response:
        if not self._key:
            self._read_key()
        started = time.perf_counter()
        silence = f"{request.method} {request.path} has not been answered for {self._silent_after_s:g} s"
        timer = asyncio.get_running_loop().call_later(self._silent_after_s, self._on_silence, silence)
        try:
            response = await self._http.request(
                request.method,
                request.path,
                content=request.body or None,
                headers={"Key": self._key, "Connection": "close"},
            )
        except (httpx.TransportError, OSError) as error:
            metrics.NFTLB_REQUESTS_FAILED.labels("Unreachable").inc()
            raise _unreachable(error)(f"{request.method} {request.path}: {errors.why(error)}") from error
        finally:
            timer.cancel()
            self._on_request(request, time.perf_counter() - started)
        if time.perf_counter() - started >= self._silent_after_s:
            self._on_silence(None)
        version = response.headers.get("Server", "").removeprefix("nftlb/") or UNPATCHED
        if version != self.version:
            self.version = version
            self._on_version(version)
        return response

    def _read_key(self) -> bool:
        """Read the key from its file. Return True if it has changed."""
        try:
            key = self._key_file.read_text().strip()
        except OSError as error:
            where = f"{self._key_file}: {errors.why(error)}"
            raise errors.NftlbUnreachableError(f"nftlb has not written its key yet: {where}") from error
        changed = key != self._key
        self._restarted = self._restarted or (changed and bool(self._key))
        self._key = key
        return changed


def _unreachable(error: Exception) -> type[errors.NftlbUnreachableError]:
    """Return what to raise for an error of the transport."""
    broken = isinstance(error, httpx.ReadError | httpx.WriteError | httpx.RemoteProtocolError)
    return errors.NftlbEndedError if broken else errors.NftlbUnreachableError
