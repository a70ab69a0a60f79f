from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")

from benchmarks import charts, machine, packets, records, report
from benchmarks.records import Records
from benchmarks.series import Groups

MACHINE = {
    "scenarios": ["latency", "datapath", "limit", "scale"],
    "began": "2026-01-01T00:00:00+00:00",
    "command": "python -m benchmarks",
    "commit": "abc",
    "cpu": "A processor",
    "cores": 2,
    "memory_mb": 1024,
    "kernel": "6.18",
    "load_average": [0.1, 0.2, 0.3],
    "python": "3.11.7",
    "versions": {"nftlb": "1.0.7"},
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with Records(tmp_path / "run") as run:
        for repetition, (ours, theirs) in enumerate(((20, 400), (25, 450), (30, 500), (35, 550), (40, 600))):
            keys: dict[str, Any] = {
                "size": 100,
                "load": "steady",
                "endpoints": "found by selector",
                "repetition": repetition,
            }
            run.add("latency", "kube-nftlb", "created until answered", "ms", ours, **keys)
            run.add("latency", "kube-proxy-nftables", "created until answered", "ms", theirs, **keys)
            run.add("datapath", "kube-nftlb snat", "requests per second", "1/s", 99, users=1, round=repetition)
            run.add("datapath", "kube-proxy-nftables", "requests per second", "1/s", 100, users=1, round=repetition)
            run.add("datapath", "kube-nftlb snat", "failed requests", "", 0, users=1, round=repetition)
        for segment, milliseconds in (("operator", 5.0), ("agent", 7.0)):
            run.add("latency", "kube-nftlb", "segment", "ms", milliseconds, segment=segment, size=10, repetition=0)
        for services, rules in ((0, 10), (1, 12), (10, 30)):
            run.add("latency", "kube-nftlb", "rules", "", rules, services=services, endpoints=10)
        for what in ("one element, one transaction over netlink", "a POST to nftlb that changes one backend"):
            run.add("limit", what, "time", "ms", 0.05 if what.startswith("one") else 2.5, services=1, repetition=0)
        run.add("scale", "kube-nftlb", "first sync", "s", 12.5, services=1000)
        run.skip("datapath", "kube-proxy-ipvs", "the kernel has no ip_vs")
    machine.write(tmp_path / "run", {key: value for key, value in MACHINE.items() if key != "versions"})
    return tmp_path / "run"


def test_the_page_shows_the_measurements(run: Path, tmp_path: Path) -> None:
    report.write(run, tmp_path / "docs")
    page = (tmp_path / "docs" / "performance.md").read_text()
    assert "| size 100, load steady, endpoints found by selector | 30 (20 to 40) | 500 (400 to 600) |" in page
    assert (
        "| a Service is created: its VIP answers, while others change | 30 (20 to 40) ms, **1/17** (1/20 to 1/15) |"
        in page
    )
    verdict = "10 times sooner than kube-proxy | nftlb | **reached** | 1 of 1 points reached, 0 missed, 0 undecided"
    assert f"{verdict}; worst: 0.06 times kube-proxy's" in page
    assert "- not measured: kube-proxy-ipvs: the kernel has no ip_vs" in page
    assert "No request failed." in page
    assert "2 cores, 1024 MB" in page


def test_all_charts_of_the_page_exist(run: Path, tmp_path: Path) -> None:
    report.write(run, tmp_path / "docs")
    page = (tmp_path / "docs" / "performance.md").read_text()
    charts = {path.name for path in (tmp_path / "docs" / "performance").iterdir()}
    assert charts == {"changes.png"}
    assert all(f"(performance/{chart})" in page for chart in charts)


def test_points_are_drawn_at_their_number_of_services_in_rising_order() -> None:
    groups: Groups = {}
    for others, values in (
        (5000, {"kube-proxy-nftables": 10.0, "kube-nftlb nftables dnat": 11.0}),
        (10, {"kube-proxy-nftables": 10.0, "kube-nftlb dnat": 12.0, "kube-nftlb nftables dnat": 10.0}),
    ):
        groups["datapath", packets.FIRST, (("others", others),)] = {name: [each] * 3 for name, each in values.items()}
    figure = charts._datapath(groups)  # noqa: SLF001 - what is drawn, not how the file looks
    assert figure is not None
    axis = figure.axes[0]
    assert [label.get_text() for label in axis.get_xticklabels()] == ["10", "5,000"]
    nftlb, nftables = (container[0] for container in axis.containers[:2])
    assert [(round(x), y) for x, y in nftlb.get_xydata()] == [(0, 1.2)]
    assert [(round(x), y) for x, y in nftables.get_xydata()] == [(0, 1.0), (1, 1.1)]


def test_the_same_records_make_the_same_page(run: Path) -> None:
    measured = records.read(run)
    assert report.page(measured, [MACHINE], {}) == report.page(measured, [MACHINE], {})
    assert "nftlb 1.0.7, Python 3.11.7" in report.page(measured, [MACHINE], {})


def test_the_runs_of_a_folder_are_distinguished(run: Path) -> None:
    later = {
        **MACHINE,
        "scenarios": ["cost"],
        "command": "python -m benchmarks --full --only cost",
        "began": "2026-01-02",
    }
    machine.write(run, later)
    machine.write(run, later)
    runs = machine.read(run)
    assert [each["scenarios"] for each in runs] == [MACHINE["scenarios"], ["cost"]]
    with Records(run) as more:
        more.add("cost", "kube-nftlb", "memory", "MB", 80, services=0)
    page = report.page(records.read(run), runs, {})
    assert "`python -m benchmarks --full --only cost`" in page
    # Once in the section of each scenario.
    assert page.count("`python -m benchmarks`, 2026-01-01") == 4
