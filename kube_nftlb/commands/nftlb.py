"""``kube-nftlb nftlb``: send one request to this node's nftlb."""

from pathlib import Path

from kube_nftlb import errors
from kube_nftlb.nftlb.client import NftlbClient
from kube_nftlb.nftlb.requests import Request
from kube_nftlb.settings import NftlbSettings

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


async def send(settings: NftlbSettings, method: str, path: str, data: str) -> str:
    """Return nftlb's response. ``data`` is the body, or ``@`` and the name of a file. Raises UsageError, NftlbError."""
    if method.upper() not in _METHODS:
        raise errors.UsageError(f"method {method!r} must be one of {', '.join(_METHODS)}")
    body = Path(data[1:]).read_bytes() if data.startswith("@") else data.encode()  # noqa: ASYNC240  # nothing else runs
    client = NftlbClient(settings.url, settings.key_file)
    try:
        return await client.send(Request(method.upper(), path, body))
    finally:
        await client.close()
