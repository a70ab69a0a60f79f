"""``kube-nftlb healthy``, against real servers."""

import asyncio
from collections.abc import Mapping

import pytest

from kube_nftlb import errors, http_server
from kube_nftlb.commands import container
from kube_nftlb.environment import ListenAddress
from kube_nftlb.http_server import Answer


@pytest.mark.parametrize(
    ("command_line", "program"),
    [
        ("/opt/kube-nftlb/bin/python3\0/opt/kube-nftlb/bin/kube-nftlb\0operator\0", "operator"),
        ("/usr/bin/python3\0-m\0kube_nftlb\0agent\0", "agent"),
        ("/usr/sbin/nftlb\0-H\0127.0.0.1\0", "nftlb-daemon"),
        ("/sbin/init\0", None),
        ("", None),
    ],
)
def test_the_program_is_found_in_the_command_line_of_the_first_process(command_line: str, program: str | None) -> None:
    assert container.program_of(command_line.encode()) == program


_ADDRESS = {"operator": "KUBE_NFTLB_HEALTH_ADDRESS", "agent": "KUBE_NFTLB_METRICS_ADDRESS"}


async def ask(answer: Answer, unused_tcp_port: int, program: str = "operator") -> None:
    server = await http_server.serve(lambda _: answer, ListenAddress("127.0.0.1", unused_tcp_port))
    environment: Mapping[str, str] = {
        _ADDRESS[program]: f"127.0.0.1:{unused_tcp_port}",
        "KUBE_NFTLB_NODE_NAME": "a",
    }
    try:
        await asyncio.to_thread(container.check_health, environment, program)
    finally:
        server.close()


@pytest.mark.parametrize("program", ["operator", "agent"])
async def test_status_200_is_healthy(unused_tcp_port: int, program: str) -> None:
    await ask(Answer(200, {}), unused_tcp_port, program)


async def test_status_503_is_unhealthy_with_the_reason(unused_tcp_port: int) -> None:
    with pytest.raises(errors.UnhealthyError, match=r"responds with 503.*late"):
        await ask(Answer(503, {"why": "late"}), unused_tcp_port)


def test_no_response_is_unhealthy(unused_tcp_port: int) -> None:
    with pytest.raises(errors.UnhealthyError, match="does not respond"):
        container.check_health({"KUBE_NFTLB_HEALTH_ADDRESS": f"127.0.0.1:{unused_tcp_port}"}, "operator")


def test_another_program_is_refused() -> None:
    with pytest.raises(errors.UsageError, match="operator, agent or nftlb-daemon"):
        container.check_health({}, "sshd")
