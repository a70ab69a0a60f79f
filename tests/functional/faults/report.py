"""``python -m tests.functional.faults.report DIR --docs docs``: make docs/reliability.md from the records of a run."""

import argparse
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import machine, records
from benchmarks.records import Record

PAGE = "reliability.md"

_INTRODUCTION = """
What happens to traffic while parts fail. The suite in `tests/functional/faults` starts clusters on one machine,
puts load on a Service, breaks something, and checks what clients notice and how soon everything recovers.
CI runs a short form of it, `make faults` the long form; this page is made from the records of the runs below.
"""

_TERMS = (
    """
    **connections, datagrams:** new TCP connections over IPv4, and UDP datagrams over IPv6 of one flow that lasts
    and of new ones, from a pod to a Service with pods on both nodes. A connection has failed if it is refused,
    reset, or not answered within 5 s; a datagram is lost if it is not answered within 1 s. Two downloads go on
    meanwhile; none has broken.
    """,
    "**longest gap:** the longest time without a successful connection.",
    """
    A time or size without brackets was measured once. With brackets it is the median of several, and the largest is
    in brackets; n is how many, in the column that has most. Numbers of connections are the sums of all rounds. Where
    the load average is above the number of cores, other programs ran at the same time: times are upper bounds.
    """,
)


class Chapter(NamedTuple):
    """A scenario on the page."""

    scenario: str
    title: str
    text: str


CHAPTERS = (
    Chapter(
        "processes",
        "A program is killed or frozen",
        """
        Each program is killed (SIGKILL) or frozen (SIGSTOP) for some seconds, in random order, under load. A Service
        is made meanwhile, or right afterwards if there is no API server. "Served again after" is the time from the end
        of the fault until all nodes serve it. With the engine nftables no fault may fail a connection. With nftlb only
        the death of nftlb may: when it starts, it removes the rules of its farms and loads them again.
        """,
    ),
    Chapter(
        "nftlb",
        "nftlb answers, but wrongly",
        """
        A proxy before one node's nftlb spoils all its answers: bytes that are no HTTP or no JSON, half of an
        answer, the status 500, none, or "success" for a change that was not made. "Told after" is the time from a
        change that nftlb should get until the NftlbNode says so; "served again after" that from the end of the
        fault until the change works: a farm that was refused is tried again after a second, then ever less often.
        """,
    ),
    Chapter(
        "API server",
        "The API server is away",
        "Its packets are dropped by a rule on the node, or, in the long form, it is stopped.",
    ),
    Chapter(
        "disk",
        "The disk is full",
        """
        Nothing can be written where agent and nftlb keep their state. Changes are programmed all the same,
        `lastError` of the NftlbNode says so, and both programs start again.
        """,
    ),
    Chapter(
        "storm",
        "Endpoints that change as fast as the API server takes it",
        "The endpoints of one Service, up to 1,000 changes a second, for the seconds in the table.",
    ),
    Chapter(
        "churn",
        "Services that are made and deleted all the time",
        """
        Dual-stack Services, as many as the table says, are made, changed, scaled and deleted under load, without a
        pause, and what programs and kernel hold is compared with what they held after the first rounds.
        """,
    ),
    Chapter(
        "bystanders",
        "Services that nobody touches while others change",
        """
        Clients in a pod, on a node and outside try Services that nobody touches, among as many farms as the table
        says, while other Services are made, changed, scaled, refused and deleted. An attempt has felt it if it failed,
        or took 0.1 s longer than the machine made it take.
        """,
    ),
    Chapter(
        "agents",
        "500 nodes",
        """
        Agents without a data plane, with the watches, the loop and the status of real ones, at a real API server;
        "for" says what was measured. During a change idle nodes ask as ever, in the seconds in the table. For each
        change each node writes a status, and in a minute without one a status that says that it lives. A quiet node
        watches five kinds, each for five to ten minutes if the API server sends bookmarks, else for a minute. Here it
        sends none in a quiet minute: etcd tells it its progress every ten minutes, as is etcd's default; with the five
        seconds that kubeadm sets there are bookmarks each minute.
        """,
    ),
    Chapter("conntrack", "The kernel's tables are full", "The long form fills them where the machine lets it."),
    Chapter(
        "affinity",
        "Services with ClientIP beside others",
        """
        Farms on a cluster IP and a node port each, with 2 to 10 endpoints where the table does not say how many, in a
        kernel that serves nothing else. "One endpoint more or less" is the time that the kernel takes for such a change
        of another farm, the median of 40; the start is until an agent without a file of the farms knows all of them.
        """,
    ),
    Chapter(
        "flushed",
        "All rules of a node are flushed",
        """
        `nft flush ruleset`, as often as the table says, while a client connects all the time to a farm beside others in
        a kernel that serves nothing else; no connection was refused or reset. The largest change is the time that the
        kernel takes for the largest of the transactions that make the rules anew. The steps are the agent's, called one
        after the other: that its loop first has to notice, milliseconds later, is not in it. Bar: 50 ms.
        """,
    ),
    Chapter(
        "versions",
        "Upgrade and downgrade",
        "Agent, nftlb and operator are replaced by those of an earlier commit, and back, under load.",
    ),
    Chapter(
        "allocated",
        "Services get addresses from a pool",
        """
        One node. Both operators are killed while addresses are given, as often as the table says. 1,000 Services are
        created by eight writers at once: nearly all of the time is the API server's, and the last one has its address
        within a second. Others have waited for an address, and get one once there is a pool.
        """,
    ),
    Chapter(
        "announced",
        "Addresses that nodes announce",
        """
        Three nodes; a client on their segment, or behind routers (BGP), connects all the time while an address moves.
        A connection that is open then is reset, or no longer answered: no other node knows it. Where the holder fails,
        one counts as not answered after 0.5 s, else after 5 s. A client connects to new addresses as soon as somebody
        answers for them, while ten endpoints a second change; "served after" is from before their Services are made. A
        node that is restarted has its agent and responder ended at the same time, as an upgrade does. Gaps
        of one or two seconds occur without any failure, too: where a node masquerades hundreds of connections a second
        to one endpoint, that still remembers some of their ports, and a client repeats its SYN. New addresses come at
        up to ten a second here, and wait for each other: with one in 2.3 s they are served
        [after 0.3 s](addresses-l2.md#beside-metallb).
        """,
    ),
    Chapter(
        "replaced",
        "Programs that announce addresses are replaced",
        """
        A client on the segment of the nodes connects to an address all the time, while a release of the chart is
        upgraded, or kube-nftlb takes the place of kube-proxy and then of MetalLB.
        """,
    ),
    Chapter(
        "routed",
        "Routes to addresses that nodes announce by BGP",
        """
        Three nodes, and routers with BFD; one endpoint becomes ready and unready in turn. "Followed after" is from the
        change, of the EndpointSlice or of the node's link, until the kernel of a router has the routes that follow.
        """,
    ),
    Chapter(
        "why",
        "What keeps clients from an address is said",
        """
        Three nodes. `kubectl nftlb why` runs again and again from the moment on at which something is wrong; "said
        after" is when a run ends that has said it, in one line.
        """,
    ),
    Chapter(
        "model",
        "Random changes and faults beside a model",
        """
        A state machine changes Services, pods, annotations and policies, breaks things between, and asks an
        independent model where each connection must arrive, or that it must not.
        """,
    ),
)


COLUMNS = {
    "new and failed": """
    connections that were refused, unreachable, or not established in time; "reset" and "not answered" are of
    those that were open
    """,
    "two nodes answer": """
    for how long both the old and the new holder answered who asked the segment for the address, twenty times a second,
    also once the fault was mended
    """,
}
"""What is in columns that earlier runs do not have: said where a table has them."""


def page(measured: Sequence[Record], runs: Sequence[Mapping[str, Any]]) -> str:
    """Return the page; ``runs`` describes the origin of the records."""
    lines = [
        "# Reliability",
        "",
        _words(_INTRODUCTION),
        "",
        *_origin(runs),
        "",
        *(f"- {_words(term)}" for term in _TERMS),
        "",
    ]
    for chapter in CHAPTERS:
        found = [record for record in measured if record.scenario == chapter.scenario]
        if found:
            lines += [f"## {chapter.title}", "", *([_words(chapter.text), ""] if chapter.text else [])]
            columns = dict.fromkeys(record.metric for record in found if record.metric in COLUMNS)
            lines += [f'- "{metric}": {_words(COLUMNS[metric])}.' for metric in columns]
            lines += ["", *_table([record for record in found if not record.missing]), ""]
            reasons = dict.fromkeys(each.missing for each in found if each.missing)
            lines += [f"- not measured: {reason}" for reason in reasons]
            lines += [""]
    return "\n".join(lines).rstrip().replace("\n\n\n", "\n\n") + "\n"


def _words(text: str) -> str:
    return " ".join(text.split())


def _origin(runs: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    runs = list(runs)
    copied = Counter(tuple(run["load_average"]) for run in runs)
    for run in runs:
        hardware = f"{run['cpu']}, {run['cores']} cores, {run['memory_mb']} MB, Linux {run['kernel']}"
        versions = ", ".join(f"{name} {run['versions'][name]}" for name in ("kube-apiserver", "etcd", "nftlb", "nft"))
        # Two runs do not begin at exactly the same load: who added them by hand copied it.
        load = "not recorded" if copied[tuple(run["load_average"])] > 1 else f"{run['load_average'][0]} at the start"
        when = f"{run['began'][:10]}, commit {run['commit']}"
        yield f"- `{run['command']}`, {when}; load average {load}; {hardware}; {versions}."


def _table(measured: Sequence[Record]) -> Iterator[str]:
    """Yield one row for each engine and point, one column for each metric."""
    rows: dict[tuple[str, ...], dict[str, list[Record]]] = {}
    names: dict[str, None] = dict.fromkeys(name for record in measured for name in record.parameters)
    metrics: dict[str, str] = {record.metric: record.unit for record in measured}
    for record in measured:
        point = (record.subject, *(str(record.parameters.get(name, "")) for name in names))
        rows.setdefault(point, {}).setdefault(record.metric, []).append(record)
    if not rows:
        return
    heads = ["engine", *names, *(f"{metric} ({unit})" if unit else metric for metric, unit in metrics.items()), "n"]
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for point, values in sorted(rows.items(), key=lambda row: row[0][0]):
        cells = [_cell(values[metric], unit) if metric in values else "-" for metric, unit in metrics.items()]
        yield f"| {' | '.join([*point, *cells, f'{max(map(len, values.values())):,}'])} |"


def _cell(found: Sequence[Record], unit: str) -> str:
    values = [record.value for record in found]
    if not unit:
        return _number(sum(values))
    return _number(statistics.median(values)) + (f" ({_number(max(values))})" if len(values) > 1 else "")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:.2g}"


def write(run: Path, docs: Path) -> Path:
    """Write the page for the folder of a run, and return where it is."""
    (docs / PAGE).write_text(page(records.read(run), machine.read(run)), encoding="utf-8")
    return docs / PAGE


def main() -> None:
    """Make the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.functional.faults.report", description=write.__doc__)
    parser.add_argument("run", type=Path, metavar="DIR", help="folder of a run")
    parser.add_argument("--docs", type=Path, metavar="DIR", help="folder for the page; default: the folder of the run")
    arguments = parser.parse_args()
    print(write(arguments.run, arguments.docs or arguments.run))


if __name__ == "__main__":
    main()
