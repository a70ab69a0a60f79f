"""``python -m tests.upstream.gateway.report DIR --docs docs``: make docs/conformance-gateway.md from the records."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.upstream import progress, records
from tests.upstream.gateway import selection
from tests.upstream.records import FAILED, SKIPPED, Outcome, Run

PAGE = "conformance-gateway.md"
ENGINES = ("nftables", "nftlb")

_INTRODUCTION = """
# Conformance: the Gateway API's own tests

[Gateways](gateway.md) of TCP and UDP are tested with the conformance tests that the Gateway API publishes, in the
profiles `GATEWAY-TCP` and `GATEWAY-UDP`. This page is generated from the records of the runs.

<!-- not run: it takes minutes, and some more to build the tests -->
```sh
make conformance-gateway
```

It builds the tests, the server that they reach and CoreDNS from their Go modules, and starts nodes with kubelet,
containerd and runc on one machine. kube-nftlb is installed by its chart, and announces the addresses of Gateways by
ARP. The tests run on the client outside of the cluster.

## What is changed

The tests are upstream's, with these exceptions, which are in
[one Go package](../tests/upstream/modules/gateway/manifests.go):

- Of the base manifests, only the namespaces and the servers that the tests need are applied: the Gateways there listen
  to HTTP and HTTPS.
- The Gateways of `GatewayInvalidRouteKind`, `GatewayListenerUnsupportedProtocol`, `GatewayObservedGenerationBump`,
  `GatewayOptionalAddressValue` and `GatewayStaticAddresses` listen to TCP instead of HTTP, without host names. The
  tests that want listeners to support HTTPRoutes are shown the kind TCPRoute under that name.
- `TCPRouteInvalidNonTCPListener` and `UDPRouteNotAllowedByListeners` have Gateways with nothing but a listener of HTTP
  or TLS. Nobody waits until these are programmed, as they never are.
- `UDPRouteNotAllowedByListeners` returns without a look where TLSRoutes are not supported. Here it looks.
"""

Report = Mapping[str, Any]


def read(folder: Path) -> list[tuple[Run, Report]]:
    """Return the run of each engine that is kept in a folder, with upstream's report."""
    found = ((engine, records.read(folder, engine)) for engine in ENGINES)
    return [
        (run, yaml.safe_load((folder / selection.report_name(engine)).read_text()))
        for engine, run in found
        if run is not None
    ]


def page(runs: Sequence[tuple[Run, Report]], reports: str) -> str:
    """Return the page of some runs; ``reports`` is the folder of upstream's reports, as the page links to it."""
    table = {run.subject: {each.test: each for each in run.outcomes} for run, _ in runs}
    parts = [
        _INTRODUCTION.strip(),
        "\n".join(_runs([run for run, _ in runs])),
        "\n".join(_profiles(runs, reports)),
        "\n".join(_tests(table)),
        "\n".join(_failures(table)),
        "\n".join(_left_out(table)),
    ]
    return "\n\n".join(parts) + "\n"


def write(folder: Path, docs: Path) -> Path:
    """Make the page of the records in a folder. Return its path."""
    path = docs / PAGE
    path.write_text(page(read(folder), f"../{folder}"))
    return path


def _runs(runs: Sequence[Run]) -> Iterator[str]:
    yield "## Runs\n"
    yield "Load is the load average of the machine when a run began.\n"
    yield "| Engine | Kubernetes | Began | Commit | Kernel, cores | Load | Minutes |"
    yield "|---|---|---|---|---|---|---|"
    for run in runs:
        for each in run.runs:
            yield (
                f"| {run.subject} | {run.kubernetes} | {each['began']} | {each['commit']} "
                f"| {each['kernel']}, {each['cores']} | {each['load_average'][0]:.0f} | {each['minutes']} |"
            )


def _profiles(runs: Sequence[tuple[Run, Report]], reports: str) -> Iterator[str]:
    yield "## Profiles\n"
    yield "The numbers of upstream's reports: tests of what all must have (core) and of what one may have (extended).\n"
    yield "| Profile | Engine | Core | Extended | Gateway API | Report |"
    yield "|---|---|---|---|---|---|"
    for run, report in runs:
        for profile in sorted(report["profiles"], key=lambda each: str(each["name"])):
            core, extended = _numbers(profile["core"]), _numbers(profile.get("extended"))
            yield (
                f"| {profile['name']} | {run.subject} | {core} | {extended} "
                f"| {report['gatewayAPIVersion']}, {report['gatewayAPIChannel']} "
                f"| [{profile['core']['result']}]({reports}/{selection.report_name(run.subject)}) |"
            )


def _numbers(status: Mapping[str, Any] | None) -> str:
    if status is None:
        return "-"
    numbers = status["statistics"]
    words = {"Passed": "passed", "Failed": "failed", "Skipped": "left out"}
    return ", ".join(f"{numbers[key]} {word}" for key, word in words.items() if numbers[key]) or "none"


def _tests(table: Mapping[str, Mapping[str, Outcome]]) -> Iterator[str]:
    yield "## Tests\n"
    yield f"| Test | {' | '.join(table)} |"
    yield f"|---|{'---|' * len(table)}"
    for test in sorted(
        {test for outcomes in table.values() for test, each in outcomes.items() if each.outcome != SKIPPED}
    ):
        cells = (outcomes[test].outcome if test in outcomes else "not run" for outcomes in table.values())
        yield f"| {test} | {' | '.join(cells)} |"


def _failures(table: Mapping[str, Mapping[str, Outcome]]) -> Iterator[str]:
    yield "## Failed tests\n"
    failed = [(engine, each) for engine, run in table.items() for each in run.values() if each.outcome == FAILED]
    if not failed:
        yield "None."
        return
    yield "| Test | Engine | It says |"
    yield "|---|---|---|"
    for engine, each in failed:
        yield f"| {each.test} | {engine} | {each.reason.replace('|', chr(92) + '|')} |"


def _left_out(table: Mapping[str, Mapping[str, Outcome]]) -> Iterator[str]:
    yield "## What is left out\n"
    yield "Tests of these profiles that need HTTP or TLS, which kube-nftlb does not speak. Upstream calls it skipped.\n"
    yield "| Test | Why |"
    yield "|---|---|"
    skipped = {each.test: each.reason for run in table.values() for each in run.values() if each.outcome == SKIPPED}
    for test, why in sorted(skipped.items()):
        yield f"| {test} | {why} |"


def main() -> None:
    """Make the page."""
    progress.make("tests.upstream.gateway.report", __doc__, write)


if __name__ == "__main__":
    main()
