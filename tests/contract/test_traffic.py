"""The kernel's table and events of connections, and the process that counts them."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from kube_nftlb import addresses
from kube_nftlb.netfilter.conntrack import filters, table
from kube_nftlb.netfilter.conntrack.entries import entries
from kube_nftlb.netfilter.traffic import report
from kube_nftlb.netfilter.traffic.counting import Events
from kube_nftlb.netfilter.traffic.report import Report
from kube_nftlb.netfilter.traffic.tally import Counts, Flow, packed, unpacked

VIP = {"ipv4": "10.96.0.10", "ipv6": "fd00:96::a"}
CLIENT = {"ipv4": "10.244.9.9", "ipv6": "fd00:244:9::9"}
POD = {"ipv4": "10.244.1.2", "ipv6": "fd00:244:1::2"}
FAMILIES = ("ipv4", "ipv6")


def conntrack(*arguments: str) -> None:
    subprocess.run(["conntrack", *arguments], check=True, capture_output=True)


def connect(family: str, port: int, *, translated: bool = True, protocol: str = "tcp") -> None:
    pod = addresses.with_port(POD[family], 8080)
    given = (
        "-p",
        protocol,
        "-s",
        CLIENT[family],
        "-d",
        VIP[family],
        "--sport",
        str(port),
        "--dport",
        "80",
        "-t",
        "300",
    )
    state = ("--state", "ESTABLISHED") if protocol == "tcp" else ()
    conntrack("-I", *given, *(("--dst-nat", pod) if translated else ()), *state)


@pytest.fixture
def flows(private_network: None) -> Iterator[None]:  # noqa: ARG001 - a fixture is asked for by name
    """An empty table."""
    conntrack("-F")
    yield
    conntrack("-F")


@pytest.fixture
def events(flows: None) -> Iterator[Events]:  # noqa: ARG001 - a fixture is asked for by name
    opened = Events()
    opened.subscribe(on=True)
    yield opened
    opened.close()


def read(events: Events) -> list[tuple[bool, Flow]]:
    """Whether each connection has ended, and its flow."""
    found = [each for data in events.read(100) for each in entries(data)]
    # The filter in the kernel has left out what is not translated.
    assert all(each.is_translated for each in found)
    return [(each.ended, unpacked(packed(each))) for each in found]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_events_tell_of_translated_connections_and_no_others(events: Events, family: str, protocol: str) -> None:
    connect(family, 40000, protocol=protocol)
    connect(family, 40001, protocol=protocol, translated=False)
    flow = Flow(protocol.upper(), VIP[family], 80, POD[family], 8080)
    assert read(events) == [(False, flow)]
    conntrack("-D", "-f", family, "-p", protocol, "--sport", "40001")
    conntrack("-D", "-f", family, "-p", protocol, "--sport", "40000")
    assert read(events) == [(True, flow)]
    events.subscribe(on=False)
    connect(family, 40002, protocol=protocol)
    assert read(events) == []


@pytest.mark.usefixtures("flows")
def test_the_table_has_both_families_and_the_identities_of_events() -> None:
    for family in FAMILIES:
        connect(family, 40000)
        connect(family, 40001, translated=False)
    found = [each for data in table.dump("all", filters.TRANSLATED) for each in entries(data)]
    assert {unpacked(packed(each)).ip for each in found} == set(VIP.values())
    assert all(each.is_open and each.is_translated for each in found)
    assert len({each.identity for each in found}) == 2


def test_more_events_than_fit_are_noticed(events: Events) -> None:
    events.socket.setsockopt(1, 8, 1)  # SO_RCVBUF, the least that there is
    for port in range(40000, 40050):
        connect("ipv4", port)
    assert len(read(events)) < 50
    assert events.lost == 1


@pytest.mark.usefixtures("flows")
def test_the_process_reports_until_nobody_listens() -> None:
    connect("ipv4", 40000)
    command = [sys.executable, "-m", "kube_nftlb.netfilter.traffic", "0.2"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def reported() -> Report:
            assert process.stdout is not None
            return report.decode(process.stdout.readline())

        first = reported()
        assert [each.counts for each in first.listeners] == [Counts(open=1)]
        connect("ipv4", 40001)
        conntrack("-D", "-p", "tcp", "--sport", "40000")
        connect("ipv4", 40002)
        conntrack("-D", "-p", "tcp", "--sport", "40002")
        total, last = Counts(), first
        while total.new < 2 or [each.counts.open for each in last.listeners] != [1]:
            last = reported()
            total = report.total([total, *(each.counts for each in last.listeners)])
        assert total.new == 2
        assert last.listeners[0].backends[0][:2] == (POD["ipv4"], 8080)
        process.stdin.close()
        assert process.wait(60) == 0
