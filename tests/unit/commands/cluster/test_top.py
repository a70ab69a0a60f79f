"""The nodes that ``kubectl nftlb top`` asks, and what it keeps of their answers."""

import asyncio
import sys

import pytest

from kube_nftlb import errors
from kube_nftlb.commands.cluster import top
from kube_nftlb.commands.cluster.on_nodes import ByCommand, OnNodes
from kube_nftlb.commands.cluster.top import NodeReports
from kube_nftlb.netfilter.traffic.process import counting_process
from kube_nftlb.netfilter.traffic.report import Report, encode


class Script:
    """Nodes on which every command is this one."""

    def __init__(self, script: str) -> None:
        self._script = script

    def prefix(self, node: str, *, stdin: bool = False) -> list[str]:
        assert stdin
        return [sys.executable, "-c", self._script, node]


async def followed(script: str | OnNodes) -> NodeReports:
    """Return the reports once something has changed for the first time."""
    seen = NodeReports(Script(script) if isinstance(script, str) else script)
    task = asyncio.create_task(seen.follow("node-1"))
    await asyncio.wait_for(seen.changed.wait(), 60)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return seen


def test_all_nodes_are_asked_but_not_thousands(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [f"node-{number:04}" for number in range(1000)]
    assert top.chosen(nodes[:3], ()) == nodes[:3]
    assert top.chosen(nodes, ()) == nodes[:32]
    assert "only the first 32 of 1000 nodes: name others with --node" in capsys.readouterr().err
    assert top.chosen(nodes, ("node-0999", "node-0001", "node-0999")) == ["node-0999", "node-0001"]
    with pytest.raises(errors.UsageError, match="there is no node 'node-1'"):
        top.chosen(nodes, ("node-1",))


async def test_the_newest_report_of_a_node_counts() -> None:
    lines = encode(Report(2.0, lost=7)).decode()
    seen = await followed(f"import sys; print({lines!r}, end='', flush=True); sys.stdin.read()")
    assert seen.reports == {"node-1": Report(2.0, lost=7)}
    assert seen.problems == {}


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("import sys; sys.exit('kube-nftlb: no such command')", "exit status 1: kube-nftlb: no such command"),
        ("import sys; sys.exit(7)", "exit status 7"),
        ("print('no report')", "its answer is no report of traffic: JSON is malformed"),
        ("pass", "it ended without a report: does the command pass on standard input?"),
        ("print('{}')", "its answer is no report of traffic: Expected `array`, got `object`"),
        ("print('x' * 3000000)", "chunk"),
    ],
)
async def test_what_a_node_says_instead_of_a_report_is_its_problem(script: str, problem: str) -> None:
    seen = await followed(script)
    assert seen.reports == {}
    assert problem in seen.problems["node-1"]


async def test_a_command_that_cannot_be_run_is_named() -> None:
    seen = await followed(ByCommand("/nowhere/ssh {node}"))
    assert seen.problems == {"node-1": "cannot run /nowhere/ssh: no such file or directory"}


async def test_of_processes_that_end_by_themselves_asyncio_has_nothing_to_say(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(30):
        async with counting_process(("sh", "-c", "echo no report")) as process:
            with pytest.raises(ValueError, match="JSON is malformed"):
                await anext(process.reports())
    assert caplog.records == []
