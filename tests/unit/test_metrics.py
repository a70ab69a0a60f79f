"""The exported metrics and their page."""

import asyncio
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kube_nftlb import errors, metrics
from kube_nftlb.environment import ListenAddress
from kube_nftlb.http_server import Text, serve
from tests.functional.prometheus import alerts, dashboard_queries, dashboard_variables, series_of
from tests.ports import free_port
from tests.unit.test_http_server import ask
from tools import metrics_page


def page(program: metrics.Program) -> str:
    answer = metrics.Page(program, lambda: None).answer("/metrics")
    assert isinstance(answer.body, Text)
    return answer.body.content.decode()


@pytest.mark.parametrize("program", metrics.PROGRAMS)
def test_each_program_exports_what_it_declares_and_nothing_else(program: metrics.Program) -> None:
    declared = {series.name for series in metrics.SERIES if program in series.programs}
    exported = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in text_string_to_metric_families(page(program))
        if not family.name.endswith("_created")
    }
    process = {name for name in exported if name.startswith("process_")}
    assert {"process_cpu_seconds_total", "process_resident_memory_bytes"} <= process
    assert exported - process == declared


@pytest.mark.parametrize("series", metrics.SERIES, ids=lambda series: series.name)
def test_names_and_labels_follow_prometheus_conventions(series: metrics.Series) -> None:
    assert re.fullmatch(r"kube_nftlb(_[a-z]+)+", series.name)
    assert series.name.endswith("_total") == (series.kind == "counter")
    assert series.name.endswith("_seconds") or series.kind != "histogram"
    # Those of single farms are limited by settings, and not there by default.
    of_farms = {"farm"} if "farm_namespace" in series.labels else set()
    assert not {"namespace", "service", "farm", "node", "pod", "ip", "client"} & series.labels.keys() - of_farms
    assert series.meaning.endswith(".")


def test_gauges_are_refreshed_per_scrape_but_not_per_request() -> None:
    times, read = iter((0.0, 0.0, 0.1, 0.2, 0.3, 0.3)), []
    page = metrics.Page("agent", lambda: read.append(1), lambda: next(times))
    for expected in (1, 1, 1, 2):
        page.answer("/metrics")
        assert len(read) == expected
    assert page.answer("/other").status == 404


async def test_a_scraper_that_does_not_read_keeps_nobody_waiting() -> None:
    port = free_port()
    server = await serve(metrics.Page("agent", lambda: None).answer, ListenAddress("127.0.0.1", port), "metrics")
    slow = [await asyncio.open_connection("127.0.0.1", port) for _ in range(100)]
    for _, writer in slow:
        writer.write(b"GET /metrics HTTP/1.1\r\n")
    first, headers, body = await asyncio.wait_for(ask(port, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), 5)
    assert (first, headers["Content-Type"].partition(";")[0]) == ("HTTP/1.1 200 OK", "text/plain")
    assert b"kube_nftlb_build_info" in body
    assert len(server._connections) <= 64  # noqa: SLF001 (the bound is the point)
    for _, writer in slow:
        writer.close()
    server.close()


async def test_both_families_are_answered_on_the_unspecified_address() -> None:
    port = free_port()
    server = await serve(metrics.Page("agent", lambda: None).answer, ListenAddress("::", port), "metrics")
    for host in ("127.0.0.1", "::1"):
        first, _, _ = await ask(port, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", host)
        assert first == "HTTP/1.1 200 OK"
    with pytest.raises(errors.UsageError, match=f"cannot listen on metrics address 127.0.0.1:{port}: .*in use"):
        await serve(metrics.Page("agent", lambda: None).answer, ListenAddress("127.0.0.1", port), "metrics")
    server.close()


def test_the_metrics_of_the_operator_are_on_the_page_as_such() -> None:
    section = metrics_page.page().partition("## Operator\n")[2].partition("\n## ")[0]
    declared = [series.name for series in metrics.SERIES if series.programs == ("operator",)]
    assert re.findall(r"^\| `(\w+)`", section, re.MULTILINE) == declared


def test_the_checked_in_page_is_what_is_declared() -> None:
    checked_in = Path(__file__).parents[2] / "docs" / "metrics.md"
    assert checked_in.read_text() == metrics_page.page(), "run `make reference`"


def test_the_variables_of_the_dashboard_ask_for_labels_that_there_are() -> None:
    declared = {series.name: set(series.labels) for series in metrics.SERIES}
    asked = [re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", query) for query in dashboard_variables()]
    assert asked
    for each in asked:
        assert each is not None
        assert each[2] in declared[each[1]]


def test_an_age_is_not_that_of_a_time_that_is_0_before_the_first() -> None:
    ages = [each for each in (*dashboard_queries(), *(rule["expr"] for rule in alerts())) if "time() -" in each]
    assert ages
    assert [each for each in ages if not re.search(r"time\(\) - \(\w+ > 0\)", each)] == []


def test_every_declared_series_is_on_the_dashboard_or_in_an_alert() -> None:
    asked = set().union(*(series_of(query) for query in (*dashboard_queries(), *(rule["expr"] for rule in alerts()))))
    told_otherwise = {
        "kube_nftlb_build_info",
        "kube_nftlb_probes_total",
        "kube_nftlb_last_queued_timestamp_seconds",
        "kube_nftlb_last_list_timestamp_seconds",
        "kube_nftlb_service_statuses_written_total",
    }
    assert {series.name for series in metrics.SERIES} - asked == told_otherwise
