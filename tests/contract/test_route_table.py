"""The kernel has the routes of announced addresses as they are wanted, and those of others stay."""

import subprocess
from collections.abc import Iterator
from errno import EINTR, ENOSPC
from typing import Any, Self

import pytest
from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from kube_nftlb.announce.bgp.routes import PROTOCOL, Changes, Metric, Route, changes
from kube_nftlb.announce.bgp.table import RouteTable, remove_all
from kube_nftlb.netfilter import rtnetlink

pytestmark = pytest.mark.usefixtures("private_network")

FOUR, SIX = Route("192.0.2.10/32", Metric.SERVES), Route("2001:db8::10/128", Metric.SERVES)
WANTED = frozenset((FOUR, SIX, Route("198.51.100.0/24", Metric.GOES), Route("2001:db8:1::/64", Metric.SERVES)))


class Kernel:
    """A connection to the kernel of which a test replaces a method."""

    def __init__(self, **options: Any) -> None:
        self.ip = IPRoute(**options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ip, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.ip.close()


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


def test_what_the_kernel_refuses_keeps_no_other_route_from_its_change(table: RouteTable) -> None:
    table.apply(changes((), {FOUR, SIX}))
    refused = (Route("192.0.2.1/24", Metric.SERVES), Route("198.51.100.1/24", Metric.SERVES))
    other = Route("198.51.100.0/24", Metric.GOES)
    with pytest.raises(OSError, match=r"add 192\.0\.2\.1/24.*, and 1 more"):
        table.apply(Changes((*refused, other), (FOUR,)))
    assert table.read() == {SIX, other}


def test_a_route_whose_successor_the_kernel_refuses_stays(table: RouteTable, monkeypatch: pytest.MonkeyPatch) -> None:
    table.apply(changes((), {FOUR, SIX}))

    class Refusing(Kernel):
        def route(self, command: str, **request: Any) -> Any:
            if command == "add" and request["dst"] == FOUR.prefix:
                raise NetlinkError(ENOSPC, "No space left on device")
            return self.ip.route(command, **request)

    monkeypatch.setattr(rtnetlink, "IPRoute", Refusing)
    with pytest.raises(OSError, match="No space left"):
        table.apply(changes({FOUR, SIX}, {FOUR._replace(metric=Metric.GOES)}))
    assert table.read() == {FOUR}


def test_a_kernel_that_cannot_be_read_is_an_error_of_the_system(
    table: RouteTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing(Kernel):
        def route(self, *_: object, **_request: Any) -> Any:
            raise NetlinkError(EINTR, "Interrupted system call")

    with monkeypatch.context() as patched:
        patched.setattr(rtnetlink, "IPRoute", Refusing)
        with pytest.raises(OSError, match="Interrupted"):
            table.read()
        with pytest.raises(OSError, match="Interrupted"):
            remove_all()


def test_the_kernel_sends_no_routes_of_others(table: RouteTable, monkeypatch: pytest.MonkeyPatch) -> None:
    table.apply(changes((), WANTED))
    batch = "".join(f"route add unreachable 10.0.0.{last} proto static\n" for last in range(100))
    subprocess.run(["ip", "-batch", "-"], input=batch, text=True, check=True)
    decoded: list[rtmsg] = []
    decode = rtmsg.decode

    def counted(message: rtmsg) -> Any:
        decoded.append(message)
        return decode(message)

    monkeypatch.setattr(rtmsg, "decode", counted)
    assert table.read() == WANTED
    assert len(decoded) == len(WANTED)
    subprocess.run(["ip", "route", "flush", "proto", "static"], check=True)


def test_an_agent_with_another_table_leaves_nothing_in_the_one_before(table: RouteTable) -> None:
    table.apply(changes((), {FOUR, SIX}))
    subprocess.run(["ip", "route", "add", "unreachable", "192.0.2.99/32", "table", "4242"], check=True)
    after = RouteTable(4243)
    after.apply(changes((), {FOUR}))
    remove_all(but=4243)
    assert table.read() == frozenset()
    assert after.read() == {FOUR}
    subprocess.run(["ip", "route", "del", "unreachable", "192.0.2.99/32", "table", "4242"], check=True)


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
