"""Run commands on nodes: in the agent's pod by kubectl, or by a command that the user names, such as ssh."""

import asyncio
import shlex
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from kube_nftlb import errors
from kube_nftlb.commands.cluster.queries import Target, component_of
from kube_nftlb.kube.resources import JsonObject

_PATIENCE_S = 60.0
_STDERR_MAX = 300
_CONTAINER = "agent"
_NODE = "{node}"


class Ran(NamedTuple):
    """The output of a command, or why there is none."""

    output: str
    problem: str = ""


class OnNodes(Protocol):
    """Runs commands on nodes."""

    def prefix(self, node: str, *, stdin: bool = False) -> list[str]:
        """Return the beginning of the command line. Raises UsageError if the node cannot be reached.

        With ``stdin`` the command gets standard input, which ends when the connection to the node does.
        """


class InPods:
    """In the agents' pods."""

    def __init__(self, target: Target, pods: Iterable[JsonObject]) -> None:
        self._target = target
        self._pods = {
            pod["spec"].get("nodeName", ""): (pod["metadata"]["namespace"], pod["metadata"]["name"])
            for pod in pods
            if component_of(pod) == "agent"
        }

    def prefix(self, node: str, *, stdin: bool = False) -> list[str]:
        """See ``OnNodes``."""
        if node not in self._pods:
            raise errors.UsageError("the agent has no pod there; --node-command says how to run a command on a node")
        namespace, pod = self._pods[node]
        options = [f"--kubeconfig={self._target.kubeconfig}"] if self._target.kubeconfig is not None else []
        options += [f"--context={self._target.context}"] if self._target.context is not None else []
        user, uid, groups, _ = self._target.impersonate
        options += [f"--as={user}"] if user else []
        options += [f"--as-uid={uid}"] if uid else []
        options += [f"--as-group={group}" for group in groups]
        execute = ["exec", *(["--stdin"] if stdin else []), pod, "--container", _CONTAINER, "--"]
        return ["kubectl", *options, "--namespace", namespace, *execute]


class ByCommand:
    """By a command, in which ``{node}`` stands for the node's name."""

    def __init__(self, template: str) -> None:
        """Take a command. Raises UsageError if the node's name does not occur in it, or a quote is not closed."""
        if _NODE not in template:
            raise errors.UsageError(f"--node-command {template!r} must contain {_NODE}, such as: ssh root@{_NODE}")
        try:
            self._words = shlex.split(template)
        except ValueError as error:
            raise errors.UsageError(f"--node-command {template!r} cannot be read: {str(error).lower()}") from None

    def prefix(self, node: str, *, stdin: bool = False) -> list[str]:  # noqa: ARG002 - it always has it
        """See ``OnNodes``."""
        return [word.replace(_NODE, node) for word in self._words]


def on_nodes(target: Target, template: str | None, pods: Iterable[JsonObject]) -> OnNodes:
    """Return what runs commands on nodes: by the user's command, if there is one, else in the agents' pods."""
    return ByCommand(template) if template else InPods(target, pods)


async def run(nodes: OnNodes, node: str, *command: str) -> Ran:
    """Run a command on a node; it never raises."""
    try:
        argv = [*nodes.prefix(node), *command]
    except errors.UsageError as error:
        return Ran("", str(error))
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        return Ran("", f"cannot run {argv[0]}: {errors.why(error)}")
    try:
        out, err = await asyncio.wait_for(process.communicate(), _PATIENCE_S)
    except TimeoutError:
        process.kill()
        await process.wait()
        return Ran("", f"no answer within {_PATIENCE_S:.0f} s")
    text = " ".join(err.decode(errors="replace").split())[:_STDERR_MAX]
    problem = f"exit status {process.returncode}: {text}".removesuffix(": ") if process.returncode else ""
    return Ran(out.decode(errors="replace"), problem)
