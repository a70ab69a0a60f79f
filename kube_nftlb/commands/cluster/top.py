"""``kubectl nftlb top``: the traffic of farms and backends, live on a terminal."""

import asyncio
import contextlib
import itertools
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final, NamedTuple

from rich.console import Group
from rich.live import Live
from rich.table import Table

from kube_nftlb import errors
from kube_nftlb.commands.cluster import terminal, top_farms
from kube_nftlb.commands.cluster.installation import program_pods
from kube_nftlb.commands.cluster.on_nodes import OnNodes, on_nodes
from kube_nftlb.commands.cluster.options import By, Format
from kube_nftlb.commands.cluster.queries import AGENT_PODS, Target, connected, list_nodes
from kube_nftlb.commands.cluster.top_farms import Row
from kube_nftlb.commands.view import ClusterView
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import FARMS
from kube_nftlb.netfilter.traffic.process import counting_process
from kube_nftlb.netfilter.traffic.report import Report

_NODES_MAX: Final = 32
"""Each is a connection to the API server, and a process here and there."""
_FARMS_EVERY_S: Final = 15.0
_PATIENCE_S: Final = 60.0
_REPORTS_EVERY_S: Final = 2
_ONE_RUN_S: Final = 60
"""Maximum time in seconds of a count: one whose end nobody could tell it ends by itself."""
_RETRY_S: Final = 5.0
_AROUND_ROWS: Final = 4
"""Lines of the terminal that are not for farms."""
_COLUMNS: Final = ("FARM", "NEW/S", "OPEN", "SENT/S", "ANSWERED/S", "NODES")


class TopOptions(NamedTuple):
    """The options of ``top``."""

    nodes: tuple[str, ...] = ()
    by: By = By.NEW
    backends: bool = False
    once: bool = False
    output: Format = Format.TEXT
    node_command: str | None = None


class NodeReports:
    """The newest report of each node."""

    def __init__(self, on_nodes: OnNodes) -> None:
        self._on_nodes = on_nodes
        self.reports: dict[str, Report] = {}
        self.problems: dict[str, str] = {}
        """Reasons that nodes have none, by node."""
        self.changed = asyncio.Event()

    async def follow(self, node: str) -> None:
        """Follow a node until cancelled."""
        while True:
            try:
                await self._run(node)
            except errors.UsageError as error:
                self._failed(node, str(error))
            except OSError as error:
                self._failed(node, f"cannot run {self._on_nodes.prefix(node)[0]}: {errors.why(error)}")
            except ValueError as error:
                self._failed(node, f"its answer is no report of traffic: {error}")
            if node in self.problems:
                await asyncio.sleep(_RETRY_S)

    async def _run(self, node: str) -> None:
        command = ("kube-nftlb", "node-traffic", "--every", str(_REPORTS_EVERY_S), "--seconds", str(_ONE_RUN_S))
        async with counting_process((*self._on_nodes.prefix(node, stdin=True), *command)) as process:
            has_reported = False
            async for each in process.reports():
                has_reported = True
                self.reports[node] = each
                self.problems.pop(node, None)
                self.changed.set()
            status, error = await process.outcome()
        if status:
            self._failed(node, f"exit status {status}: {error}".removesuffix(": "))
        elif not has_reported:
            self._failed(node, "it ended without a report: does the command pass on standard input?")

    def _failed(self, node: str, problem: str) -> None:
        self.reports.pop(node, None)
        self.problems[node] = problem
        self.changed.set()


async def top(target: Target, options: TopOptions) -> None:
    """Show the traffic until interrupted; once if asked so, for programs and without a terminal.

    Raises UsageError if there is no such node, and UnavailableError if none reports its traffic.
    """
    async with connected(target) as kube:
        async with terminal.progress("asking the API server"):
            nodes = await list_nodes(kube)
            names = chosen([raw["metadata"]["name"] for raw in nodes], options.nodes)
            farms = (await kube.list(FARMS, not_older_than="0")).items
            pods = () if options.node_command else await program_pods(kube, target, AGENT_PODS)
        view, seen = ClusterView(farms, nodes), NodeReports(on_nodes(target, options.node_command, pods))
        async with _following(seen, names):
            if options.once or options.output is not Format.TEXT or not sys.stdout.isatty():
                await _once(seen, names, view, target.namespace, options)
            else:
                await _live(kube, seen, view, target.namespace, options)


def chosen(nodes: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Return the nodes to ask. Raises UsageError if a wanted one is not there."""
    for name in wanted:
        if name not in nodes:
            raise errors.UsageError(f"there is no node {name!r}")
    names = list(dict.fromkeys(wanted)) or sorted(nodes)[:_NODES_MAX]
    if not wanted and len(nodes) > _NODES_MAX:
        terminal.note(f"only the first {_NODES_MAX} of {len(nodes)} nodes: name others with --node")
    return names


@contextlib.asynccontextmanager
async def _following(seen: NodeReports, names: Sequence[str]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(seen.follow(name)) for name in names]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _once(
    seen: NodeReports, names: Sequence[str], view: ClusterView, namespace: str | None, options: TopOptions
) -> None:
    async with terminal.progress("counting"):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                while len(seen.reports.keys() | seen.problems.keys()) < len(names):
                    await seen.changed.wait()
                    seen.changed.clear()
    late = {name: f"no report within {_PATIENCE_S:.0f} s" for name in names if name not in seen.reports}
    problems = {**late, **seen.problems}
    if not seen.reports:
        reasons = "; ".join(f"{node}: {problem}" for node, problem in sorted(problems.items()))
        raise errors.UnavailableError(f"no node reports its traffic: {reasons or 'there is none'}")
    rows = top_farms.rows(seen.reports, view, namespace, options.by)
    if options.output is not Format.TEXT:
        terminal.show_data(top_farms.document(rows, seen.reports, problems), options.output)
        return
    terminal.show(_page(rows, seen, options))
    sys.stdout.flush()
    for note in _notes(seen, problems):
        terminal.note(note)


async def _live(kube: Kube, seen: NodeReports, view: ClusterView, namespace: str | None, options: TopOptions) -> None:
    loop = asyncio.get_running_loop()
    console = terminal.console()
    listed_at = loop.time()
    with Live("counting ...", console=console, screen=True, auto_refresh=False) as live:
        while True:
            await seen.changed.wait()
            seen.changed.clear()
            if loop.time() - listed_at > _FARMS_EVERY_S:
                with contextlib.suppress(errors.KubeError, errors.KubeUnreachableError):
                    view = view.with_farms((await kube.list(FARMS, not_older_than="0")).items)
                listed_at = loop.time()
            rows = top_farms.rows(seen.reports, view, namespace, options.by)
            notes = _notes(seen, seen.problems)
            most = max(console.height - _AROUND_ROWS - len(notes), 1)
            page = _page(rows, seen, options, most, console.width)
            live.update(Group(page, *(terminal.plain(each) for each in notes)), refresh=True)


def _page(
    rows: Sequence[Row], seen: NodeReports, options: TopOptions, most: int = sys.maxsize, width: int = sys.maxsize
) -> Table | str:
    """Return a table with at most so many lines, in which names are cut if it would be wider than ``width``."""
    table = terminal.columns(*_COLUMNS)
    for column in table.columns[1:]:
        column.justify = "right"
    counted = any(each.bytes_counted for each in seen.reports.values())
    for name, row in itertools.islice(_lines(rows, backends=options.backends), most):
        table.add_row(terminal.plain(name), *top_farms.cells(row, bytes_counted=counted))
    return terminal.with_names(table, width) if rows else "no farm has connections"


def _lines(rows: Sequence[Row], *, backends: bool) -> Iterator[tuple[str, Row]]:
    for row in rows:
        yield row.name, row
        for backend in row.backends.values() if backends else ():
            yield f"  {backend.name}", backend


def _notes(seen: NodeReports, problems: dict[str, str]) -> list[str]:
    silent = [f"{node} does not tell its traffic: {problem}" for node, problem in sorted(problems.items())]
    return [*silent, *top_farms.notes(seen.reports)]
