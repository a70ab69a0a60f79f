"""Connections to the cluster IPs of a Service, whose pods run ``kube-nftlb echo``."""

import asyncio
import socket
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from kube_nftlb import addresses, errors
from kube_nftlb.commands.cluster.finding import Finding
from kube_nftlb.commands.printable import printable
from kube_nftlb.kube.resources import JsonObject

_NUMBER: Final = 20
_TIMEOUT_S: Final = 3.0
_ANSWER_MAX: Final = 256
_SHOWN_MAX: Final = 80
_QUESTION: Final = b"who\n"
_KINDS: Final = {"TCP": socket.SOCK_STREAM, "UDP": socket.SOCK_DGRAM}


class Target(NamedTuple):
    """An address and port of a Service."""

    protocol: str
    ip: str
    port: int

    def __str__(self) -> str:
        return f"{self.protocol} {addresses.with_port(self.ip, self.port)}"


class Tried(NamedTuple):
    """The results of the connections to a target: the number that each pod answered, and that of failures by cause."""

    target: Target
    answers: Counter[str]
    failures: Counter[str]


def targets(service: JsonObject) -> list[Target]:
    """Return the TCP and UDP ports of all cluster IPs of a Service. Raises UsageError if it has none."""
    spec = service["spec"]
    ips = [ip for ip in spec.get("clusterIPs") or [spec.get("clusterIP")] if ip and ip != "None"]
    found = [
        Target(port.get("protocol", "TCP"), ip, port["port"])
        for ip in ips
        for port in spec.get("ports") or ()
        if port.get("protocol", "TCP") in _KINDS
    ]
    if not found:
        metadata = service["metadata"]
        raise errors.UsageError(
            f"Service {metadata['namespace']}/{metadata['name']} has no cluster IP, or no TCP or UDP port"
        )
    return found


async def connect(target: Target) -> Tried:
    """Open connections from new ports at once, and read what answers each."""
    came = await asyncio.gather(*(_ask(target) for _ in range(_NUMBER)))
    return Tried(
        target,
        Counter(name for name, failure in came if not failure),
        Counter(failure for _, failure in came if failure),
    )


async def _ask(target: Target) -> tuple[str, str]:
    """Return the answer, and why there is none."""
    loop = asyncio.get_running_loop()
    family = socket.AF_INET6 if ":" in target.ip else socket.AF_INET
    try:
        with socket.socket(family, _KINDS[target.protocol]) as opened:
            opened.setblocking(False)
            async with asyncio.timeout(_TIMEOUT_S):
                await loop.sock_connect(opened, (target.ip, target.port))
                await loop.sock_sendall(opened, _QUESTION)
                answer = shown(await loop.sock_recv(opened, _ANSWER_MAX))
    except TimeoutError:
        return "", f"no answer within {_TIMEOUT_S:.0f} s"
    except OSError as error:
        return "", errors.why(error)
    return (answer, "") if answer else ("", "closed without an answer")


def shown(answer: bytes) -> str:
    """Return the first line of an answer as it can be printed: any pod may answer, with whatever it likes."""
    return printable(answer.decode(errors="replace").strip().partition("\n")[0].strip())[:_SHOWN_MAX]


def findings(service: JsonObject, tried: Iterable[Tried], pods: int) -> Iterator[Finding]:
    """Yield a finding for each target of which a connection failed, or that fewer than ``pods`` answered."""
    namespace, name = service["metadata"]["namespace"], service["metadata"]["name"]
    for target, answers, failures in tried:
        if failures:
            causes = ", ".join(f"{number} times {cause!r}" for cause, number in sorted(failures.items()))
            message = f"{target} failed {failures.total()} of {_NUMBER} connections from here: {causes}"
            todo = "`kubectl nftlb trace` shows what the node does with one"
            yield Finding("service", namespace, name, "ConnectionsFailed", message, todo)
        elif len(answers) < pods:
            message = f"{target} was answered by {_named(answers)} alone, not by {pods} pods"
            yield Finding("service", namespace, name, "TooFewPods", message, "see whether one of them is not ready")


def summary(tried: Iterable[Tried]) -> Iterator[str]:
    """Yield a line for each target."""
    for target, answers, _ in tried:
        yield f"{target} answered {answers.total()} of {_NUMBER} connections, from {_named(answers)}"


def _named(answers: Counter[str]) -> str:
    return " and ".join(f"{name} ({number})" for name, number in sorted(answers.items()))
