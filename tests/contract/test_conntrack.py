"""The agent's requests to the connection tracking table, and the kernel's replies."""

import re
import subprocess
from collections.abc import AsyncIterator, Iterable, Iterator

import pytest

from kube_nftlb import addresses, errors
from kube_nftlb.agent.connections.allowed import Allowed
from kube_nftlb.agent.connections.connections import Connections
from kube_nftlb.agent.model import SentFarm
from kube_nftlb.api.listeners import Listener
from kube_nftlb.netfilter import netlink
from kube_nftlb.netfilter.conntrack import entries, filters, table
from kube_nftlb.netfilter.conntrack.entries import TCP, UDP, Entry
from kube_nftlb.netfilter.conntrack.filters import Target
from kube_nftlb.netfilter.conntrack.table import Conntrack
from kube_nftlb.netfilter.netlink import Change, NetfilterSocket
from kube_nftlb.nftlb.objects import MARK_LAST
from tests.fakes.clock import FakeClock
from tests.fakes.conntrack import FakeConntrack, endpoint

VIP = {"ipv4": "10.96.0.10", "ipv6": "fd00:96::a"}
OTHER_VIP = {"ipv4": "10.96.0.11", "ipv6": "fd00:96::b"}
CLIENT = {"ipv4": "10.244.9.9", "ipv6": "fd00:244:9::9"}
POD = {"ipv4": "10.244.1.2", "ipv6": "fd00:244:1::2"}
OTHER_POD = {"ipv4": "10.244.1.3", "ipv6": "fd00:244:1::3"}
NODE = {"ipv4": "192.0.2.1", "ipv6": "2001:db8::1"}
"""An address of the node, on which a pod with the host's network answers."""
FAMILIES = ("ipv4", "ipv6")
GONE, STAYS = 0x202, 0x203


@pytest.fixture
def flows(private_network: None) -> Iterator[None]:  # noqa: ARG001 - a fixture is asked for by name
    """An empty table."""
    delete_all()
    yield
    delete_all()


@pytest.fixture
async def conntrack(flows: None) -> AsyncIterator[Conntrack]:  # noqa: ARG001 - a fixture is asked for by name
    opened = Conntrack.open()
    yield opened
    opened.close()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Entry]:
    """All connections that the kernel has told of."""
    all_told: list[Entry] = []
    dump = table.dump

    def asked(family: str, payload: bytes) -> Iterator[bytes]:
        for data in dump(family, payload):
            all_told.extend(entries.entries(data))
            yield data

    monkeypatch.setattr(table, "dump", asked)
    return all_told


def delete_all() -> None:
    subprocess.run(["conntrack", "-F"], check=True, capture_output=True)


def to(ip: str, protocol: int = UDP, ports: Iterable[int] = (53,)) -> set[Target]:
    return {(endpoint(ip)[0], protocol, port) for port in ports}


def flow(
    family: str,
    vip: str,
    sport: int,
    mark: int = 0,
    protocol: str = "udp",
    port: int = 53,
    *more: str,
    pod: str | None = None,
) -> None:
    """A flow to a VIP, translated where it has a mark or a pod."""
    target = pod or (POD[family] if mark else None)
    arguments = [
        *("-p", protocol, "-s", CLIENT[family], "-d", vip, "--sport", str(sport), "--dport", str(port), "-t", "300"),
        *(("-m", str(mark)) if mark else ()),
        *(("--dst-nat", addresses.with_port(target, 8080) if pod else target) if target else ()),
        *(("--state", "ESTABLISHED") if protocol == "tcp" and "--state" not in more else ()),
        *more,
    ]
    subprocess.run(["conntrack", "-I", *arguments], check=True, capture_output=True)


def hundreds(protocol: str, port: int, number: int) -> None:
    state = "--state ESTABLISHED" if protocol == "tcp" else ""
    lines = (
        f"-I -p {protocol} -s {CLIENT['ipv4']} -d {VIP['ipv4']} --sport {sport} --dport {port} -t 300 {state}"
        f" -m {GONE} --dst-nat {POD['ipv4']}"
        for sport in range(1, number + 1)
    )
    subprocess.run(["conntrack", "-R", "-"], input="\n".join(lines), text=True, check=True, capture_output=True)


def end_of_flow(sport: int) -> None:
    subprocess.run(["conntrack", "-D", "-p", "udp", "--sport", str(sport)], check=True, capture_output=True)


def marks(family: str) -> dict[int, int]:
    """The mark of each flow that there is, by the client's port."""
    lines = subprocess.run(["conntrack", "-L", "-f", family], check=True, capture_output=True, text=True).stdout
    return {int(sport): int(mark) for sport, mark in re.findall(r"sport=(\d+).*?sport=\d+.*?mark=(\d+)", lines)}


async def marked(conntrack: Conntrack, targets: set[Target], gone: set[int]) -> list[Entry]:
    """The connections with these marks, as sessions are looked for."""
    narrowed = filters.with_mark(min(gone), MARK_LAST) if len(gone) == 1 else b""
    return await conntrack.find(targets, lambda each: each.mark & MARK_LAST in gone, narrowed)


async def ended(conntrack: Conntrack, allowed: dict[Target, Allowed]) -> int:
    """End what may not go on."""

    def may_not(each: Entry) -> bool:
        (ip, port), protocol = each.server, each.protocol
        return (allowed.get((ip, protocol, port)) or allowed[ip, protocol, 0]).reason(each) is not None

    narrowed = filters.TRANSLATED if all(each.concerns_translated for each in allowed.values()) else b""
    return await conntrack.forget(await conntrack.find(allowed, may_not, narrowed))


@pytest.mark.parametrize("family", FAMILIES)
async def test_flows_to_a_removed_backend_are_found_by_its_mark_and_no_others_are_dumped(
    conntrack: Conntrack, told: list[Entry], family: str
) -> None:
    flow(family, VIP[family], 1, GONE)
    flow(family, VIP[family], 2, GONE | 0x10000)
    for sport in range(3, 20):
        flow(family, VIP[family], sport, STAYS)
    flow(family, OTHER_VIP[family], 20, GONE)
    flow(family, VIP[family], 21, GONE, port=54)
    assert await conntrack.forget(await marked(conntrack, to(VIP[family]), {GONE})) == 2
    assert marks(family) == {**dict.fromkeys(range(3, 20), STAYS), 20: GONE, 21: GONE}
    # Of an IPv6 address the kernel cannot be asked.
    assert len(told) == (2 if family == "ipv4" else 3)


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_connection_goes_on_without_its_mark(conntrack: Conntrack, family: str) -> None:
    flow(family, VIP[family], 1, GONE, "tcp", 80)
    flow(family, VIP[family], 2, STAYS, "tcp", 80)
    assert await conntrack.unmark(await marked(conntrack, to(VIP[family], TCP, [80]), {GONE})) == 1
    assert marks(family) == {1: 0, 2: STAYS}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("ports", [[53], range(53, 56), range(50, 91)], ids=["53", "53-55", "50-90"])
async def test_flows_are_found_however_many_ports_and_marks_there_are(
    conntrack: Conntrack, family: str, ports: Iterable[int]
) -> None:
    flow(family, VIP[family], 1, GONE)
    flow(family, VIP[family], 2, STAYS)
    flow(family, VIP[family], 3, GONE, port=99)
    for gone in ({GONE}, {GONE, *range(0x300, 0x303)}, {GONE, *range(0x300, 0x400)}):
        assert await conntrack.forget(await marked(conntrack, to(VIP[family], ports=ports), gone)) == 1
        assert marks(family) == {2: STAYS, 3: GONE}
        flow(family, VIP[family], 1, GONE)


@pytest.mark.parametrize("family", FAMILIES)
async def test_what_the_kernel_tells_of_a_connection_is_read(conntrack: Conntrack, family: str) -> None:
    flow(family, VIP[family], 1, GONE, "tcp", 80, pod=POD[family])
    flow(family, VIP[family], 2, 0, "tcp", 81, "-u", "SEEN_REPLY")
    client, server, answerer = endpoint(CLIENT[family], 1), endpoint(VIP[family], 80), endpoint(POD[family], 8080)
    (found,) = await conntrack.find(to(VIP[family], TCP, [80]), lambda _: True)
    assert found == await conntrack.one(TCP, client, server)
    assert (found.client, found.server, found.answerer) == (client, server, answerer)
    assert (found.mark, found.is_translated, found.has_reply, found.is_open) == (GONE, True, False, True)
    assert await conntrack.one(TCP, client, endpoint(VIP[family], 81)) is None
    (answered,) = await conntrack.find(to(VIP[family], TCP, [81]), lambda _: True)
    assert (answered.is_translated, answered.has_reply) == (False, True)


@pytest.mark.parametrize("family", FAMILIES)
async def test_of_what_nobody_translated_flows_and_connections_without_a_reply_are_found(
    conntrack: Conntrack, told: list[Entry], family: str
) -> None:
    flow(family, VIP[family], 1)
    flow(family, OTHER_VIP[family], 2)
    flow(family, VIP[family], 3, 0, "tcp", 80)
    flow(family, VIP[family], 4, 0, "tcp", 80, "-u", "SEEN_REPLY")
    flow(family, VIP[family], 5, GONE, "tcp", 80)
    connections = Connections(conntrack, FakeConntrack(), FakeClock())
    listeners = frozenset({Listener(VIP[family], "UDP", 53), Listener(VIP[family], "TCP", 80)})
    await connections.rules_back({"web": SentFarm("nftlb", listeners, 1, 1)})
    assert marks(family) == {2: 0, 4: 0, 5: GONE}
    # The kernel has left out what is translated.
    assert len(told) == (3 if family == "ipv4" else 4)


@pytest.mark.parametrize("family", FAMILIES)
async def test_connections_to_a_backend_that_is_down_are_ended(conntrack: Conntrack, family: str) -> None:
    flow(family, VIP[family], 1, GONE, "tcp", 80)
    flow(family, VIP[family], 2, STAYS, "tcp", 81)
    flow(family, OTHER_VIP[family], 3, STAYS, "tcp", 80)
    down, other = Allowed(down=frozenset({endpoint(POD[family])[0]})), Allowed(down=frozenset({b"none"}))
    assert await ended(conntrack, dict.fromkeys(to(VIP[family], TCP, [80]), down)) == 1
    assert marks(family) == {2: STAYS, 3: STAYS}
    assert await ended(conntrack, dict.fromkeys(to(VIP[family], TCP, [81]), other)) == 0


@pytest.mark.parametrize("family", FAMILIES)
async def test_flows_to_endpoints_on_the_nodes_own_addresses_are_ended(conntrack: Conntrack, family: str) -> None:
    flow(family, NODE[family], 1, port=30053, pod=NODE[family])
    flow(family, NODE[family], 2, port=30053, pod=POD[family])
    flow(family, NODE[family], 3, port=30053)
    target, flows = to(NODE[family], ports=[30053]), frozenset({endpoint(POD[family], 8080)})
    assert await ended(conntrack, dict.fromkeys(target, Allowed(flows=flows))) == 1
    assert marks(family) == {2: 0, 3: 0}
    assert await ended(conntrack, dict.fromkeys(target, Allowed(flows=flows, untranslated=False))) == 1
    assert marks(family) == {2: 0}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("more", [0, 1, 20], ids=["one listener", "two", "many"])
async def test_what_may_not_go_on_of_several_farms_is_ended_at_once(
    conntrack: Conntrack, told: list[Entry], family: str, more: int
) -> None:
    flow(family, VIP[family], 1, GONE)
    flow(family, VIP[family], 2)
    flow(family, OTHER_VIP[family], 3, STAYS)
    flow(family, OTHER_VIP[family], 4, GONE, "tcp", 53)
    for sport in range(10, 30):
        flow(family, OTHER_VIP[family], sport, STAYS, port=99)
    allowed = Allowed(flows=frozenset({endpoint(POD[family], 0)}))
    here = to(VIP[family], ports=(53, *range(2000, 2000 + more)))
    there = {*to(OTHER_VIP[family]), *to(OTHER_VIP[family], TCP)}
    assert await ended(conntrack, dict.fromkeys(here | there, allowed)) == 0
    assert await ended(conntrack, dict.fromkeys(here, Allowed()) | dict.fromkeys(there, allowed)) == 1
    assert marks(family).keys() == {2, 3, 4, *range(10, 30)}
    told.clear()
    begun = allowed._replace(untranslated=False)
    down = allowed._replace(down=frozenset({endpoint(POD[family])[0]}))
    assert await ended(conntrack, dict.fromkeys(here, begun) | dict.fromkeys(there, down)) == 3
    assert marks(family).keys() == set(range(10, 30))
    # The kernel picks out what concerns a few listeners.
    assert (len(told) < 10) == (more < 5)


# Connections that are cut.


def kept(family: str, *ports: int) -> dict[Target, Allowed]:
    """What is allowed at these ports of the VIP: connections to one pod."""
    connections = frozenset({endpoint(POD[family], 0 if ports == (0,) else 8080)})
    return dict.fromkeys(to(VIP[family], TCP, ports), Allowed(connections=connections))


def cut(family: str, sport: int, pod: str, *more: str, vip: str = "", protocol: str = "tcp", port: int = 80) -> None:
    flow(family, vip or VIP[family], sport, 0, protocol, port, *more, pod=pod or None)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("more", [0, 1, 20], ids=["one listener", "two", "many"])
async def test_connections_to_a_listener_that_others_answer_are_ended(
    conntrack: Conntrack, family: str, more: int
) -> None:
    cut(family, 1, OTHER_POD[family])
    cut(family, 2, POD[family])
    cut(family, 3, OTHER_POD[family], vip=OTHER_VIP[family])
    cut(family, 4, OTHER_POD[family], port=70)
    cut(family, 5, OTHER_POD[family], protocol="udp")
    cut(family, 6, "")
    allowed = kept(family, 80, *range(81, 81 + more))
    assert await ended(conntrack, allowed) == 1
    assert marks(family).keys() == {2, 3, 4, 5, 6}
    assert await ended(conntrack, allowed) == 0


@pytest.mark.parametrize("family", FAMILIES)
async def test_port_0_stands_for_all_ports(conntrack: Conntrack, family: str) -> None:
    for number, pod in enumerate((OTHER_POD, POD)):
        cut(family, 10 + number, pod[family], port=70)
        cut(family, 20 + number, pod[family], port=71)
    assert await ended(conntrack, kept(family, 0)) == 2
    assert marks(family).keys() == {11, 21}


async def test_clients_that_are_not_connected_are_told_from_those_that_are(conntrack: Conntrack) -> None:
    for number, state in enumerate(("SYN_SENT", "SYN_RECV", "ESTABLISHED", "CLOSE_WAIT", "TIME_WAIT")):
        cut("ipv4", number + 1, OTHER_POD["ipv4"], "--state", state)
    found = await conntrack.find(to(VIP["ipv4"], TCP, [80]), lambda _: True)
    assert {each.client[1] for each in found if each.is_connected} == {2, 3, 4}
    assert {each.client[1] for each in found if not each.is_connected} == {1, 5}


async def test_a_later_connection_of_the_same_client_is_not_forgotten(conntrack: Conntrack) -> None:
    cut("ipv4", 1, OTHER_POD["ipv4"])
    found = await conntrack.find(to(VIP["ipv4"], TCP, [80]), lambda _: True)
    delete_all()
    cut("ipv4", 1, POD["ipv4"])
    assert await conntrack.forget(found) == 0


@pytest.mark.parametrize("family", FAMILIES)
async def test_of_many_unanswered_targets_over_tcp_no_other_protocol_is_dumped(
    conntrack: Conntrack, told: list[Entry], family: str
) -> None:
    for sport, protocol in enumerate(("tcp", "tcp", "udp", "udp"), start=1):
        state = ("--state", "SYN_SENT") if protocol == "tcp" else ()
        flow(family, VIP[family], sport, 0, protocol, 80, *state, pod=POD[family])
    targets = to(VIP[family], TCP, [80, 81]) | to(OTHER_VIP[family], TCP, [80])
    found = await conntrack.find(targets, lambda _: True, filters.UNANSWERED)
    assert sorted(each.client[1] for each in found) == [1, 2]
    assert {each.protocol for each in told} == {TCP}


async def test_hundreds_are_found_up_to_the_limit_and_the_rest_later(conntrack: Conntrack) -> None:
    hundreds("tcp", 80, 900)
    for number in (600, 300):
        found = await conntrack.find(to(VIP["ipv4"], TCP, [80]), lambda _: True, limit=600)
        assert len(found) == number
        assert await conntrack.forget(found) == number


async def test_hundreds_are_changed_and_one_that_ended_meanwhile_is_no_failure(conntrack: Conntrack) -> None:
    hundreds("udp", 53, 300)
    found = await marked(conntrack, to(VIP["ipv4"]), {GONE})
    end_of_flow(150)
    assert await conntrack.forget(found) == 299
    assert marks("ipv4") == {}


async def test_a_request_the_kernel_rejects_raises_and_the_next_one_succeeds(flows: None) -> None:  # noqa: ARG001 - a fixture is asked for by name
    netfilter = NetfilterSocket.open()
    flow("ipv4", VIP["ipv4"], 1, GONE)
    nonsense = Change(netlink.SET_CONNECTION, netlink.attribute(1, b"nonsense", nested=True))
    with pytest.raises(errors.KernelError, match="refused to change a connection: Invalid argument"):
        await netfilter.change("ip", [nonsense, nonsense])
    assert len(await netfilter.ask("ip", netlink.GET_CONNECTIONS, dump=True)) == 1
    netfilter.close()
