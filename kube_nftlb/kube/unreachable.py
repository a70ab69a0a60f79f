"""Why the API server was not reached, in words for people. No I/O."""

import os
import ssl

import aiohttp


def reason(error: Exception) -> str:
    """Return why a request failed: the system's or TLS's message, without Python's names where it has one."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"TLS: {_tls(error.certificate_error)}"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"the name {error.host} is not known"
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
        if isinstance(cause, ssl.SSLError):
            return f"TLS: {_tls(cause)}"
        return f"cannot connect to {error.host} port {error.port}: {_system(cause)}"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the connection was closed before an answer"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the connection was closed in the middle of the answer"
    if isinstance(error, OSError) and error.errno is not None:
        return _system(error)
    return f"{type(error).__name__}: {error}"


def _tls(error: Exception) -> str:
    message = getattr(error, "verify_message", "") or getattr(error, "reason", "") or str(error)
    return str(message).replace("_", " ").lower()


def _system(error: OSError) -> str:
    return os.strerror(error.errno).lower() if error.errno else str(error)
