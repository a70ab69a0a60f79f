"""Connections and bytes are counted once, whichever of events and tables tell of them, in reports of bounded size."""

import ipaddress
import struct

import pytest

from kube_nftlb.netfilter import netlink
from kube_nftlb.netfilter.conntrack.entries import Entry, entries
from kube_nftlb.netfilter.traffic import report
from kube_nftlb.netfilter.traffic.report import Report
from kube_nftlb.netfilter.traffic.tally import Counts, Flow, Tally, packed, unpacked

VIP, CLIENT, POD = "10.96.0.10", "10.244.9.9", "10.244.1.2"
ESTABLISHED, TIME_WAIT = 3, 7
ENTRY = 1 << 8
"""The type of a message with an entry (NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_NEW)."""
WEB = Flow("TCP", VIP, 80, POD, 8080)


def tuple_(kind: int, source: tuple[str, int], destination: tuple[str, int], protocol: int = 6) -> bytes:
    """As ctnetlink_dump_tuples writes one."""
    first, second = (1, 2) if "." in source[0] else (3, 4)
    ips = [ipaddress.ip_address(ip).packed for ip in (source[0], destination[0])]
    addresses = netlink.attribute(first, ips[0]) + netlink.attribute(second, ips[1])
    ports = b"".join(
        netlink.attribute(number, value)
        for number, value in (
            (1, bytes([protocol])),
            (2, struct.pack(">H", source[1])),
            (3, struct.pack(">H", destination[1])),
        )
    )
    parts = netlink.attribute(1, addresses, nested=True) + netlink.attribute(2, ports, nested=True)
    return netlink.attribute(kind, parts, nested=True)


def message(
    client_port: int = 40000,
    *,
    vip: str = VIP,
    pod: str = POD,
    client: str = CLIENT,
    status: int = 0x2A,
    state: int = ESTABLISHED,
    protocol: int = 6,
    counters: tuple[int, int] | None = (100, 900),
) -> bytes:
    made = tuple_(1, (client, client_port), (vip, 80), protocol) + tuple_(
        2, (pod, 8080), (client, client_port), protocol
    )
    made += netlink.attribute(12, struct.pack(">I", client_port)) + netlink.attribute(3, struct.pack(">I", status))
    if protocol == 6:
        inner = netlink.attribute(1, bytes([state]))
        made += netlink.attribute(4, netlink.attribute(1, inner, nested=True), nested=True)
    for kind, value in zip((9, 10), counters or (), strict=False):
        packets = netlink.attribute(1, struct.pack(">Q", 7)) + netlink.attribute(2, struct.pack(">Q", value))
        made += netlink.attribute(kind, packets, nested=True)
    header = struct.pack("=IHHIIBBH", 20 + len(made), ENTRY, 0, 0, 0, 2 if "." in vip else 10, 0, 0)
    return header + made


def read(data: bytes) -> Entry | None:
    return next(entries(data), None)


def seen(client_port: int = 40000, sent: int = 0, answered: int = 0, *, is_open: bool = True) -> Entry:
    state = ESTABLISHED if is_open else TIME_WAIT
    found = read(message(client_port, state=state, counters=(sent, answered)))
    assert found is not None
    return found


def taken(tally: Tally) -> Counts:
    (counts,) = tally.take().values() or (Counts(),)
    return counts


def table(tally: Tally, *entries: Entry) -> None:
    tally.begin_table()
    for each in entries:
        tally.listed(each)
    tally.end_table()


@pytest.mark.parametrize(
    ("vip", "client", "pod"), [(VIP, CLIENT, POD), ("fd00:96::a", "fd00:244:9::9", "fd00:244:1::2")]
)
def test_an_entry_has_listener_backend_and_bytes(vip: str, client: str, pod: str) -> None:
    found = read(message(vip=vip, client=client, pod=pod))
    assert found is not None
    assert unpacked(packed(found)) == Flow("TCP", vip, 80, pod, 8080)
    assert (found.is_open, found.sent, found.answered) == (True, 100, 900)


def test_a_connection_that_only_waits_after_its_end_is_not_open() -> None:
    closed, udp = read(message(state=TIME_WAIT)), read(message(protocol=17))
    assert closed is not None
    assert not closed.is_open
    assert udp is not None
    assert udp.is_open
    assert unpacked(packed(udp)).protocol == "UDP"


def test_without_accounting_an_entry_has_no_bytes() -> None:
    found = read(message(counters=None))
    assert found is not None
    assert (found.sent, found.answered) == (0, 0)


@pytest.mark.parametrize("data", [message(protocol=1), b"", b"\x03\x00", message()[:70], message()[:120]], ids=str)
def test_what_cannot_be_read_is_left_out(data: bytes) -> None:
    assert read(data) is None


def test_a_datagram_has_several_entries_and_only_those_to_an_address_are_read() -> None:
    other = "10.96.0.11"
    data = message(1) + message(2, vip=other, status=0x0A) + message(3)
    assert [(each.client[1], each.is_translated) for each in entries(data)] == [(1, True), (2, False), (3, True)]
    assert [each.client[1] for each in entries(data, {ipaddress.ip_address(other).packed})] == [2]


def test_what_was_there_before_is_neither_new_nor_its_bytes() -> None:
    tally = Tally()
    table(tally, seen(1, 100, 900))
    assert taken(tally) == Counts(open=1)
    table(tally, seen(1, 150, 1000))
    assert taken(tally) == Counts(open=1, sent=50, answered=100)


def test_a_connection_that_comes_and_goes_between_two_tables_counts_with_all_its_bytes() -> None:
    tally = Tally()
    table(tally)
    tally.created(seen(1))
    tally.ended(seen(1, 300, 5000))
    table(tally)
    assert taken(tally) == Counts(new=1, sent=300, answered=5000)
    assert tally.take() == {}


def test_a_connection_counts_once_whether_its_event_or_the_table_comes_first() -> None:
    tally = Tally()
    table(tally)
    tally.created(seen(1))
    tally.begin_table()
    tally.listed(seen(1, 10, 20))
    tally.listed(seen(2, 10, 20))
    tally.created(seen(2))
    tally.end_table()
    assert taken(tally) == Counts(new=2, open=2, sent=20, answered=40)


def test_one_that_ends_while_the_table_is_read_counts_once() -> None:
    tally = Tally()
    table(tally, seen(1, 10, 20), seen(2, 10, 20))
    tally.take()
    tally.begin_table()
    tally.listed(seen(1, 15, 20))
    tally.ended(seen(1, 17, 20))
    tally.ended(seen(2, 17, 20))
    tally.listed(seen(2, 17, 20))
    tally.end_table()
    assert (taken(tally).new, tally.connections) == (0, 0)
    table(tally)
    assert tally.take() == {}


def test_the_table_makes_up_for_lost_events() -> None:
    tally = Tally()
    table(tally, seen(1, 10, 20))
    tally.take()
    table(tally, seen(2, 30, 40))
    assert taken(tally) == Counts(new=1, open=1, sent=30, answered=40)
    assert tally.connections == 1
    tally.ended(seen(3, 5, 6))
    assert taken(tally) == Counts(new=1, open=1, sent=5, answered=6)


def flows(listeners: int, backends: int) -> dict[bytes, Counts]:
    found = {}
    for listener in range(listeners):
        for backend in range(backends):
            key = b"\x06" + (0x0A600000 + listener).to_bytes(4, "big") + b"\0\x50"
            found[key + (0x0AF40000 + backend).to_bytes(4, "big") + b"\x1f\x90"] = Counts(
                new=listener + 1, open=backend
            )
    return found


def test_a_report_is_bounded_and_sums_are_exact() -> None:
    found, omitted = report.listeners(flows(report.LISTENERS_MAX + 10, 3))
    assert (len(found), omitted) == (report.LISTENERS_MAX, 10)
    assert found[0].ip == "10.96.4.9"
    assert found[0].counts == Counts(new=3 * (report.LISTENERS_MAX + 10), open=3)
    (one,), _ = report.listeners(flows(1, 300))
    assert len(one.backends) == report.LISTENER_BACKENDS_MAX
    assert one.counts == Counts(new=300, open=sum(range(300)))
    crowded, _ = report.listeners(flows(report.LISTENERS_MAX, report.LISTENER_BACKENDS_MAX))
    assert sum(len(each.backends) for each in crowded) == report.BACKENDS_MAX
    large = Report(2.0, tuple(each._replace(counts=Counts(*[1 << 62] * 4)) for each in crowded))
    assert len(report.encode(large)) < report.LINE_MAX


def test_a_report_is_a_line() -> None:
    listeners, omitted = report.listeners(flows(2, 2))
    made = Report(2.5, listeners, omitted, bytes_counted=False, lost=3)
    line = report.encode(made)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert report.decode(line) == made
    for bad in (b"", b"[]", b'["x"]', b"{}", line[:40]):
        with pytest.raises(ValueError, match=r"."):
            report.decode(bad)
