"""Run a command in a container, through the API server."""

import json
from collections.abc import Callable
from typing import Final
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.stream.ws_client import (
    ERROR_CHANNEL,
    STDERR_CHANNEL,
    STDOUT_CHANNEL,
    WsApiClient,
)

from kube_nftlb import errors
from kube_nftlb.kube.resources import PODS

_PROTOCOL: Final = "v4.channel.k8s.io"
_HEARTBEAT_S: Final = 10


async def run(
    configuration: Configuration,
    pod: tuple[str, str],
    container: str,
    command: list[str],
    on_output: Callable[[bytes, bool], None],
) -> int:
    """Run a command, and return its exit status. ``pod`` is its namespace and name.

    ``on_output`` gets what it writes, and True if that is to standard error. The command's standard input has nothing
    to read, and ends when this does. Raises KubeUnreachableError if the connection cannot be made, or breaks.
    """
    query = [("container", container), ("stdin", "true"), ("stdout", "true"), ("stderr", "true")]
    query += [("command", word) for word in command]
    path = f"{PODS.path(*pod)}/exec"
    headers = {"sec-websocket-protocol": _PROTOCOL}
    if (auth := (await configuration.auth_settings()).get("BearerToken")) is not None and auth["value"]:
        headers[auth["key"]] = auth["value"]
    status: int | None = None
    try:
        async with WsApiClient(configuration, heartbeat=_HEARTBEAT_S) as api:
            opened = await api.request(
                "GET", f"{configuration.host}{path}?{urlencode(query)}", headers=headers, _preload_content=False
            )
            async with opened as socket:
                async for message in socket:
                    if message.type != aiohttp.WSMsgType.BINARY:
                        break
                    channel, data = message.data[0], message.data[1:]
                    if channel == ERROR_CHANNEL:
                        status = _status(json.loads(data))
                    elif channel in (STDOUT_CHANNEL, STDERR_CHANNEL) and data:
                        on_output(data, channel == STDERR_CHANNEL)
    except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
        raise errors.KubeUnreachableError(f"cannot run a command in the pod {'/'.join(pod)}: {error}") from error
    if status is None:
        raise errors.KubeUnreachableError(f"the connection to a command in the pod {'/'.join(pod)} broke")
    return status


def _status(told: dict[str, object]) -> int:
    """Return the exit status that a Status object tells. Raises KubeUnreachableError if the command was not run."""
    if told.get("status") == "Success":
        return 0
    details = told.get("details")
    causes = details.get("causes", ()) if isinstance(details, dict) else ()
    for cause in causes:
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    raise errors.KubeUnreachableError(str(told.get("message", "the command was not run")))
