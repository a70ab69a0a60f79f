"""Read the API server's answers, and say why there are none."""

import ssl
from collections.abc import AsyncIterator

import aiohttp
import msgspec

from kube_nftlb import errors
from kube_nftlb.kube import protobuf
from kube_nftlb.kube.resources import JsonObject


async def read(response: aiohttp.ClientResponse) -> bytes:
    """Return the body of an answer. Raises KubeError or a subclass, or KubeUnreachableError."""
    try:
        data = await response.read()
    except (aiohttp.ClientError, TimeoutError, ConnectionError) as broken:
        where = f"{response.method} {response.url.path}"
        raise errors.KubeUnreachableError(f"{where}: {why_unreachable(broken)}") from broken
    if response.status >= 300:
        raise error(response.status, data)
    return data


async def events(response: aiohttp.ClientResponse) -> AsyncIterator[JsonObject]:
    """Yield the events of a watch. Raises ValueError if one is malformed or cut off."""
    chunks = response.content.iter_any()
    if response.content_type == protobuf.CONTENT_TYPE:
        async for frame in protobuf.frames(chunks):
            yield protobuf.event(frame)
    else:
        async for line in lines(chunks):
            yield msgspec.json.decode(line)


async def lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Split chunks into lines. aiohttp's own reader fails on lines over 128 KiB, and objects are larger."""
    parts: list[bytes] = []
    async for chunk in chunks:
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            yield b"".join((*parts, line))
            parts = []
        if rest:
            parts.append(rest)
    if parts:
        yield b"".join(parts)


def error(status: int, data: bytes) -> errors.KubeError:
    """Return the error for a status and the Status object in the body."""
    try:
        answer = protobuf.decoded(data) if data.startswith(protobuf.MAGIC) else msgspec.json.decode(data)
        reason, message = answer.get("reason", ""), answer.get("message", "")
    except ValueError:
        reason, message = "", data.decode(errors="replace")[:500]
    kind = {404: errors.NotFoundError, 409: errors.ConflictError, 410: errors.ExpiredError}.get(
        status, errors.KubeError
    )
    return kind(status, reason, message)


def why_unreachable(error: Exception) -> str:
    """Return why a request failed: the system's or TLS's message, without Python's names where it has one."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"TLS: {_tls(error.certificate_error)}"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"the name {error.host} is not known"
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
        if isinstance(cause, ssl.SSLError):
            return f"TLS: {_tls(cause)}"
        return f"cannot connect to {error.host} port {error.port}: {errors.why(cause)}"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the connection was closed before an answer"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the connection was closed in the middle of the answer"
    return errors.why(error)


def _tls(error: Exception) -> str:
    message = getattr(error, "verify_message", "") or getattr(error, "reason", "") or str(error)
    return str(message).replace("_", " ").lower()
