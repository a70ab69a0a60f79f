"""``kube-nftlb healthy``: the health check of the image, for container engines without probes of their own."""

import http.client
from collections.abc import Mapping
from pathlib import Path

from kube_nftlb import errors
from kube_nftlb.environment import ListenAddress
from kube_nftlb.nftlb import liveness
from kube_nftlb.settings import AgentSettings, NftlbSettings, OperatorSettings

_FIRST_PROCESS = Path("/proc/1/cmdline")
_TIMEOUT_S = 5
_EVERYWHERE = {"::": "::1", "0.0.0.0": "127.0.0.1"}  # noqa: S104 - addresses listened on, and where to reach them


def check(environ: Mapping[str, str], program: str | None = None) -> None:
    """Check operator, agent or nftlb-daemon; by default, the first process of the container.

    Raises UsageError if it is none of them, and KubeNftlbError if it is not healthy.
    """
    program = program or program_of(_FIRST_PROCESS.read_bytes())
    if program == "nftlb-daemon":
        settings = NftlbSettings.from_environment(environ)
        liveness.ask(settings.port, settings.key_file)
    elif program == "operator":
        _ask(OperatorSettings.from_environment(environ).health_address, "/livez")
    elif program == "agent":
        # Its health address may still be kube-proxy's.
        agent = AgentSettings.from_environment(environ)
        _ask(agent.probe_address or agent.metrics_address, "/alive")
    else:
        raise errors.UsageError("give the program to check: operator, agent or nftlb-daemon")


def program_of(command_line: bytes) -> str | None:
    """Return which of our programs a command line from /proc runs, or None."""
    words = command_line.decode(errors="replace").split("\0")
    if words[0].rpartition("/")[2] == "nftlb":
        return "nftlb-daemon"
    return next((word for word in words if word in ("operator", "agent", "nftlb-daemon")), None)


def _ask(address: ListenAddress, path: str) -> None:
    host, port = address
    connection = http.client.HTTPConnection(_EVERYWHERE.get(host, host), port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        said = answer.read().decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        raise errors.UnhealthyError(f"{host}:{port} does not respond: {error!r}") from error
    finally:
        connection.close()
    if answer.status != http.HTTPStatus.OK:
        raise errors.UnhealthyError(f"{host}:{port} responds with {answer.status}: {said}")
