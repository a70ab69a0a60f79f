"""``python -m benchmarks.report DIR``: a page and its charts, made of the records in a folder and nothing else."""

import argparse
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import bars, charts, cost, limit, machine, records
from benchmarks.bars import Groups, Units
from benchmarks.options import Options
from benchmarks.records import Record

_PAGE = "performance.md"


class _Chapter(NamedTuple):
    scenario: str
    title: str
    charts: tuple[str, ...]
    text: str = ""


_CHAPTERS = (
    _Chapter(
        "latency",
        "How soon a Service works",
        ("latency", "way", "rules"),
        """
        Deployments whose pods are ready; a Service is created for one, and deleted two seconds later. A pod tries
        the VIP every millisecond, and the time counts from the API server's answer (so it may be negative: who
        watches may be told before who asked). `idle`: nothing else changes. `steady`: ten times a second an
        endpoint of another Service is replaced. `found by selector`: the EndpointSlice comes after the Service, as
        it does with every Service that has a selector; `made before`: it is there two seconds earlier. kube-proxy
        runs as it is by default, with at most one sync a second; under steady change each Service is created at another
        moment of that second. The proxies take turns. Of the parts of the way `API: the farm` is the mean that the API
        server itself counts; `nftlb and the kernel` ends with the transaction, and the two cannot be told apart from
        outside. Rules, chains and elements (also those of maps without a name) are those of a whole node, with 50
        other Services, of two endpoints each.
        """,
    ),
    _Chapter(
        "datapath",
        "The data path",
        ("datapath", "processor", "packets"),
        """
        Client, servers (NGINX, one process in each pod) and kernel share the processors of one machine, and the
        subjects take turns in short rounds: compare the figures of one row, not those of two rows, nor of two
        machines. `processor time` is that of the client, the servers, the proxies and the kernel's packet threads
        together. Connections that were closed leave conntrack after 2 s instead of 120 s, with every subject.
        HAProxy and NGINX are TCP proxies on the node. Ours choose their servers in turn (`rr`), but for the column
        `dnat, weight`, which chooses at random as kube-proxy does. The latencies of both tools begin when a connection
        is there. With more other Services, only wrk asks, and only 10 servers; k6 asks as one user whose connection is
        kept, and as 500 without.
        """,
    ),
    _Chapter(
        "limit",
        "The limit",
        ("limit",),
        """
        What is below all of this, measured in a network namespace of its own: a whole ruleset of ours loaded in one
        transaction, one question or change sent over a netlink socket with no library between, that question as the
        agent asks it, and nftlb's answers over HTTP.
        """,
    ),
    _Chapter(
        "schedulers",
        "Servers that wait",
        ("schedulers",),
        """
        500 users, a new connection for each request, and 10 servers that wait for a second before they answer, as
        the field tests the schedulers of IPVS. The servers are the lab's own, and one process for all pods; more than
        500 requests a second there cannot be. So this is what a scheduler costs; how it spreads the connections is
        for tests/functional/test_schedulers.py. kube-proxy has but one scheduler.
        """,
    ),
    _Chapter(
        "scale",
        "Many Services",
        ("scale",),
        """
        All Services are created with so many endpoints, or get so many, as when the Deployment behind all of them is
        scaled; sixteen writers are as fast as the API server lets them. `written at the API`: the last slice has been
        answered. `all in the kernel`: every Service has its new endpoints there; with kube-proxy that is when a
        Service answers that is created right after the last of them. `one change meanwhile`: from the creation of a
        Service in another namespace, after half of them, until a pod reaches it; and afterwards the same three times.
        One proxy comes after the other, and one step is measured once: what differs by less than half means nothing.
        """,
    ),
    _Chapter(
        "intake",
        "An operator's start",
        ("intake",),
        """
        The operator is started in a cluster that has all Services, as many EndpointSlices and as many farms, and
        one new Service. Its memory and its processor time are those at the moment at which that has its farm.
        """,
    ),
    _Chapter(
        "cost",
        "What it costs",
        ("cost",),
        """
        Seconds of processor time for a second of the clock, and memory, of each program; one proxy comes after the
        other. `10 changes a second`: each replaces an endpoint of another Service. The programs with 8,000 Services
        are looked at by the scenario `scale` when it has made them.
        """,
    ),
)

_TERMS = (
    (
        "`snat`, `dnat`, `dsr`: the modes of a farm. The node is the source of a connection; the client stays the "
        "source; packets go to the server as they are, and its answers past the node."
    ),
    (
        "`rr`, `weight`, `hash`, `symhash`: its schedulers, which choose in turn, at random by weight, and by what "
        "the packet says of the client."
    ),
    "`others`: Services that nobody asks, of ten endpoints each. `VIP`: the address of a Service.",
    "`-`: not measured, or there is no such thing.",
)

_CLOSES: Mapping[str, str] = {
    "steady": (
        "kube-proxy waits for half a second on average, so ten times faster is 50 ms. Of ours most is the API server's "
        "work, for the farm beside the Service and its slice: it grows with the endpoints ([scaling.md](scaling.md)). "
        "With nftlb's waits taken away (`rcu_expedited`, there) it was no faster. Agents that watch Services and their "
        "slices too, and do not wait for the farm, might close it, which is untried."
    ),
    "idle": (
        "Where the endpoints are there before the Service neither waits, and ours takes one more way through the API "
        "server, with the farm."
    ),
    "datapath": (
        "The next line tells what the rules cost without the noise of clients and servers. What would close it is not "
        "proven; the likeliest is the engine of [scaling.md](scaling.md), untried."
    ),
    "packets": (
        "In the mode snat a first packet is also masqueraded, which kube-proxy does not do for pods: compare dnat. For "
        "each later packet nftlb looks into its map of listeners once more, where kube-proxy looks at none."
    ),
    "single": (
        "With 240,000 backends each transaction takes nftlb 0.6 s and more, and a new Service waits for one or two of "
        "them. The engine of maps of [scaling.md](scaling.md) would close it; it is not written."
    ),
    "meanwhile": (
        "It waits for the two farms that nftlb is busy with, at 0.1 to 0.6 s each, and for the API server, which is as "
        "busy. The engine of maps of "
        "[scaling.md](scaling.md) would close it; it is not written."
    ),
    "intake": (
        "Most of it is the operator's own processor time, for parsing; the rest is the API server's, for encoding."
    ),
    "deletion": (
        "A deletion takes the way through the API server twice, the Service's and its farm's; with kube-proxy once. "
        "Agents that watch Services too might close it, which is untried."
    ),
}
"""What would close a bar that is missed, by the bar's key."""


def page(measured: Sequence[Record], runs: Sequence[Mapping[str, Any]], shown: Mapping[str, str]) -> str:
    """The page. ``runs`` tell where the records come from; ``shown`` has the charts there are, and what each shows."""
    groups = bars.grouped(measured)
    units = bars.units_of(measured)
    lines = ["# Performance", "", *_introduction(runs), "", "## What is asked", "", *_bars(measured)]
    for chapter in _CHAPTERS:
        if not any(record.scenario == chapter.scenario for record in measured):
            continue
        lines += ["", f"## {chapter.title}", ""]
        if chapter.text:
            lines += [" ".join(chapter.text.split()), ""]
        lines += [f"`{command}`" for command in _commands(chapter.scenario, runs)] + [""]
        for name in chapter.charts:
            if name in shown:
                lines += [f"![{shown[name]}](performance/{name}.png)", ""]
        if chapter.scenario == "limit":
            lines += [*_distances(groups), ""]
        lines += _tables(groups, chapter.scenario, units)
        lines += [f"- not measured: {text}" for text in _missing(measured, chapter.scenario)]
    return "\n".join(lines).rstrip() + "\n"


def _commands(scenario: str, runs: Iterable[Mapping[str, Any]]) -> list[str]:
    """The commands that measure this scenario as it was measured."""
    found = (
        machine.command([scenario], Options("--full" in run["command"], frozenset(run.get("services", ()))))
        for run in runs
        if scenario in run["scenarios"]
    )
    return list(dict.fromkeys(found))


def _introduction(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield (
        "Made by `python -m benchmarks.report` of the records of the runs named here, not written by hand. "
        "Medians; the lowest and the highest value in brackets. What many Services cost is in [scaling.md](scaling.md)."
    )
    yield ""
    yield from (f"- {each}" for each in _TERMS)
    yield ""
    yield "| run | begun | minutes | commit | load average before |"
    yield "|---|---|---|---|---|"
    for run in runs:
        load = ", ".join(str(each) for each in run["load_average"])
        minutes = f"{sum(run['seconds'].values()) / 60:.0f}" if run.get("seconds") else ""
        yield f"| `{run['command']}` | {run['began']} | {minutes} | {run['commit']} | {load} |"
    yield ""
    yield "| | |"
    yield "|---|---|"
    for title, texts in (
        ("machine", [f"{run['cpu']}, {run['cores']} cores, {run['memory_mb']} MB" for run in runs]),
        ("kernel", [run["kernel"] for run in runs]),
        ("versions", [_versions(run) for run in runs]),
    ):
        yield f"| {title} | {'; '.join(dict.fromkeys(texts))} |"


def _versions(run: Mapping[str, Any]) -> str:
    return ", ".join([*(f"{name} {version}" for name, version in run["versions"].items()), f"Python {run['python']}"])


def _bars(measured: Iterable[Record]) -> Iterator[str]:
    yield "| bar | outcome | the worst point |"
    yield "|---|---|---|"
    for verdict in bars.verdicts(measured):
        closes = f" {_CLOSES[verdict.key]}" if verdict.outcome == bars.MISSED and verdict.key in _CLOSES else ""
        worst = f"{verdict.worst}.{closes}" if verdict.worst else ""
        yield f"| {verdict.bar} | **{verdict.outcome}** | {worst} |"


def _distances(groups: Groups) -> Iterator[str]:
    """How far our figures are from the limit: for each of ours, the limit that it is compared with."""
    least = _least(groups, limit.CHANGE)
    post = _least(groups, limit.NFTLB_CHANGE)
    if least is None or post is None:
        return
    yield f"The least that a change of nftables takes here is {_number(least)} ms. As multiples of that:"
    yield ""
    yield "| figure | ms | times the least |"
    yield "|---|---|---|"
    yield f"| a change sent to nftlb, with the fewest farms | {_number(post)} | {post / least:.0f} |"
    for (scenario, metric, point), subjects in groups.items():
        single = metric in ("created until answered", "deleted until refused", bars.SINGLE_CHANGE)
        if scenario in ("latency", "scale") and single and bars.OURS in subjects:
            ours = statistics.median(subjects[bars.OURS])
            yield f"| {metric} ({bars.text_of(point)}) | {_number(ours)} | {ours / least:,.0f} |"
    loads = list(_loads(groups))
    if loads:
        yield ""
        yield "And what makes the whole ruleset, beside `nft -f` of the same one:"
        yield ""
        yield "| figure | s | `nft -f`, s | times that |"
        yield "|---|---|---|---|"
        for what, seconds, nft_s in loads:
            yield f"| {what} | {_number(seconds)} | {_number(nft_s)} | {seconds / nft_s:.0f} |"


def _loads(groups: Groups) -> Iterator[tuple[str, float, float]]:
    """Our figures for all of so many Services with ten endpoints, and the time of ``nft -f`` for as many, in s."""
    limits = {
        (dict(point)["services"], dict(point)["endpoints"]): statistics.median(subjects[limit.LOAD]) / 1000
        for (scenario, _, point), subjects in groups.items()
        if scenario == limit.SCENARIO and limit.LOAD in subjects
    }
    for (scenario, metric, point), subjects in groups.items():
        where = dict(point)
        if (scenario, metric) == ("cost", cost.ALL_BACK):
            # Its Services have as many endpoints, by definition.
            where["endpoints"] = cost.ENDPOINTS
        elif (scenario, metric) != ("scale", bars.ALL_THERE):
            continue
        nft_s = limits.get((where["services"], where.get("endpoints", 0)))
        if nft_s is not None and bars.OURS in subjects:
            yield f"{metric} ({bars.text_of(point)})", statistics.median(subjects[bars.OURS]), nft_s


def _least(groups: Groups, subject: str) -> float | None:
    found = [
        values[subject] for (scenario, _, _), values in groups.items() if scenario == "limit" and subject in values
    ]
    return min((statistics.median(values) for values in found), default=None)


def _tables(groups: Groups, scenario: str, units: Units) -> Iterator[str]:
    metrics: dict[str, None] = dict.fromkeys(metric for name, metric, _ in groups if name == scenario)
    for metric in metrics:
        rows = [(point, values) for (name, each, point), values in groups.items() if (name, each) == (scenario, metric)]
        if metric == "failed requests" and not any(sum(values) for _, row in rows for values in row.values()):
            yield "No request failed."
            yield ""
            continue
        subjects = list(dict.fromkeys(subject for _, values in rows for subject in values))
        yield f"**{bars.with_unit(metric, units[scenario, metric])}**"
        yield ""
        yield f"| | {' | '.join(subjects)} |"
        yield "|---|" + "---|" * len(subjects)
        for point, values in rows:
            cells = [_cell(values[subject]) if subject in values else "-" for subject in subjects]
            yield f"| {bars.text_of(point)} | {' | '.join(cells)} |"
        yield ""


def _missing(measured: Iterable[Record], scenario: str) -> list[str]:
    found = [record for record in measured if record.missing and record.scenario == scenario]
    return list(dict.fromkeys(f"{record.subject}: {record.missing}" for record in found))


def _cell(values: Sequence[float]) -> str:
    median = _number(statistics.median(values))
    return median if len(set(values)) == 1 else f"{median} ({_number(min(values))} to {_number(max(values))})"


def _number(value: float) -> str:
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def write(run: Path, docs: Path) -> None:
    """Make the page and the charts of a run's folder."""
    measured = records.read(run)
    shown = charts.draw(bars.grouped(measured), bars.units_of(measured), docs / "performance")
    (docs / _PAGE).write_text(page(measured, machine.read(run), shown), encoding="utf-8")


def main() -> None:
    """Make the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=write.__doc__)
    parser.add_argument("run", type=Path, metavar="DIR", help="the folder of a run")
    parser.add_argument("--docs", type=Path, metavar="DIR", help="where the page goes; the folder of the run")
    arguments = parser.parse_args()
    write(arguments.run, arguments.docs or arguments.run)
    print((arguments.docs or arguments.run) / _PAGE)


if __name__ == "__main__":
    main()
