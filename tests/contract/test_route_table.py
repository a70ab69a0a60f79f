"""The kernel has the routes of announced addresses as they are wanted, and those of others stay."""

import subprocess
from collections.abc import Iterator

import pytest

from kube_nftlb.announce.bgp.routes import PROTOCOL, Changes, Metric, Route, changes
from kube_nftlb.announce.bgp.table import RouteTable, remove_all

pytestmark = pytest.mark.usefixtures("private_network")

FOUR, SIX = Route("192.0.2.10/32", Metric.SERVES), Route("2001:db8::10/128", Metric.SERVES)
WANTED = frozenset((FOUR, SIX, Route("198.51.100.0/24", Metric.GOES), Route("2001:db8:1::/64", Metric.SERVES)))


@pytest.fixture
def table() -> Iterator[RouteTable]:
    yield RouteTable(4242)
    remove_all()


def test_routes_are_read_as_they_were_written(table: RouteTable) -> None:
    table.apply(changes(table.read(), WANTED))
    assert table.read() == WANTED
    table.apply(changes(table.read(), {FOUR}))
    assert table.read() == {FOUR}


def test_a_route_has_two_metrics_while_one_replaces_the_other(table: RouteTable) -> None:
    table.apply(changes((), {FOUR}))
    goes = FOUR._replace(metric=Metric.GOES)
    table.apply(Changes((goes,), ()))
    assert table.read() == {FOUR, goes}
    table.apply(Changes((), (FOUR,)))
    assert table.read() == {goes}


def test_what_is_there_or_gone_already_is_no_error(table: RouteTable) -> None:
    table.apply(changes((), {FOUR}))
    table.apply(Changes((FOUR,), (SIX,)))
    assert table.read() == {FOUR}


def test_what_the_kernel_refuses_names_the_route(table: RouteTable) -> None:
    with pytest.raises(OSError, match=r"add 192\.0\.2\.1/24"):
        table.apply(Changes((Route("192.0.2.1/24", Metric.SERVES),), ()))


def test_routes_of_others_and_other_tables_stay(table: RouteTable) -> None:
    for words in ("192.0.2.99/32 table 4242 proto static", f"192.0.2.98/32 table 4243 proto {PROTOCOL}"):
        subprocess.run(["ip", "route", "add", "unreachable", *words.split()], check=True)
    table.apply(changes(table.read(), {FOUR}))
    table.apply(changes(table.read(), ()))
    assert table.read() == frozenset()
    assert RouteTable(4243).read() == {Route("192.0.2.98/32", 0)}
    remove_all()
    assert RouteTable(4243).read() == frozenset()
    done = subprocess.run(["ip", "route", "show", "table", "4242"], capture_output=True, text=True, check=True)
    assert "192.0.2.99" in done.stdout
    subprocess.run(["ip", "route", "flush", "table", "4242"], check=True)
