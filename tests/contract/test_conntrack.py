"""The agent's requests to the connection tracking table, and the kernel's replies."""

import re
import subprocess
from collections.abc import AsyncIterator, Iterable, Iterator
from ipaddress import ip_address

import pytest

from kube_nftlb import addresses, errors
from kube_nftlb.netfilter import dump, netlink
from kube_nftlb.netfilter.conntrack import Conntrack, Destination, Stale
from kube_nftlb.netfilter.netlink import Change, NetfilterSocket
from kube_nftlb.nftlb import objects

VIP = {"ipv4": "10.96.0.10", "ipv6": "fd00:96::a"}
OTHER_VIP = {"ipv4": "10.96.0.11", "ipv6": "fd00:96::b"}
CLIENT = {"ipv4": "10.244.9.9", "ipv6": "fd00:244:9::9"}
POD = {"ipv4": "10.244.1.2", "ipv6": "fd00:244:1::2"}
FAMILIES = ("ipv4", "ipv6")
ENTRY = 1 << 8
"""The type of a message with an entry (NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_NEW)."""
GONE, STAYS = 0x202, 0x203


@pytest.fixture
def flows(private_network: None) -> Iterator[None]:  # noqa: ARG001 - a fixture is asked for by name
    """An empty table."""
    subprocess.run(["conntrack", "-F"], check=True, capture_output=True)
    yield
    subprocess.run(["conntrack", "-F"], check=True, capture_output=True)


@pytest.fixture
async def conntrack(flows: None) -> AsyncIterator[Conntrack]:  # noqa: ARG001 - a fixture is asked for by name
    opened = await Conntrack.open(objects.MARK_LAST)
    yield opened
    opened.close()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """All connections that the kernel has told of."""
    all_told: list[bytes] = []
    datagrams = dump.datagrams

    def asked(family: str, payload: bytes) -> Iterator[bytes]:
        for data in datagrams(family, payload):
            all_told.extend(answer for _, answer in netlink.messages(data, ENTRY))
            yield data

    monkeypatch.setattr(dump, "datagrams", asked)
    return all_told


def to(family: str, protocol: str = "udp", ports: Iterable[int] = (53,)) -> list[Destination]:
    return [Destination(VIP[family], protocol, port) for port in ports]


def flow(family: str, vip: str, sport: int, mark: int, protocol: str = "udp", port: int = 53, *more: str) -> None:
    """A flow to a VIP, translated where it has a mark."""
    arguments = [
        *("-p", protocol, "-s", CLIENT[family], "-d", vip, "--sport", str(sport), "--dport", str(port), "-t", "300"),
        *(("-m", str(mark), "--dst-nat", POD[family]) if mark else ()),
        *(("--state", "ESTABLISHED") if protocol == "tcp" else ()),
        *more,
    ]
    subprocess.run(["conntrack", "-I", *arguments], check=True, capture_output=True)


def hundreds_of_flows() -> None:
    lines = (
        f"-I -p udp -s {CLIENT['ipv4']} -d {VIP['ipv4']} --sport {sport} --dport 53 -t 300"
        f" -m {GONE} --dst-nat {POD['ipv4']}"
        for sport in range(1, 301)
    )
    subprocess.run(["conntrack", "-R", "-"], input="\n".join(lines), text=True, check=True, capture_output=True)


def end_of_flow(sport: int) -> None:
    subprocess.run(["conntrack", "-D", "-p", "udp", "--sport", str(sport)], check=True, capture_output=True)


def marks(family: str) -> dict[int, int]:
    """The mark of each flow that there is, by the client's port."""
    lines = subprocess.run(["conntrack", "-L", "-f", family], check=True, capture_output=True, text=True).stdout
    return {int(sport): int(mark) for sport, mark in re.findall(r"sport=(\d+).*?sport=\d+.*?mark=(\d+)", lines)}


@pytest.mark.parametrize("family", FAMILIES)
async def test_flows_to_a_removed_backend_are_deleted_and_no_others_are_dumped(
    conntrack: Conntrack, told: list[bytes], family: str
) -> None:
    flow(family, VIP[family], 1, GONE)
    flow(family, VIP[family], 2, GONE | 0x10000)
    for sport in range(3, 20):
        flow(family, VIP[family], sport, STAYS)
    flow(family, OTHER_VIP[family], 20, GONE)
    flow(family, VIP[family], 21, GONE, port=54)
    assert await conntrack.release(to(family), {GONE}) == 2
    assert marks(family) == {**dict.fromkeys(range(3, 20), STAYS), 20: GONE, 21: GONE}
    # Of an IPv6 address the kernel cannot be asked.
    assert len(told) == (2 if family == "ipv4" else 3)


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_tcp_connection_to_a_removed_backend_goes_on_without_its_mark(
    conntrack: Conntrack, family: str
) -> None:
    flow(family, VIP[family], 1, GONE, "tcp", 80)
    flow(family, VIP[family], 2, STAYS, "tcp", 80)
    assert await conntrack.release(to(family, "tcp", [80]), {GONE}) == 1
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
        assert await conntrack.release(to(family, ports=ports), gone) == 1
        assert marks(family) == {2: STAYS, 3: GONE}
        flow(family, VIP[family], 1, GONE)


@pytest.mark.parametrize("family", FAMILIES)
async def test_of_flows_that_nobody_translated_those_to_the_farm_are_forgotten(
    conntrack: Conntrack, told: list[bytes], family: str
) -> None:
    flow(family, VIP[family], 1, 0)
    flow(family, OTHER_VIP[family], 2, 0)
    assert await conntrack.forget_untranslated(to(family)) == 1
    assert marks(family) == {2: 0}
    assert len(told) == (1 if family == "ipv4" else 2)


@pytest.mark.parametrize("family", FAMILIES)
async def test_of_tcp_those_that_nobody_translated_or_answered_are_forgotten(conntrack: Conntrack, family: str) -> None:
    flow(family, VIP[family], 1, 0, "tcp", 80)
    flow(family, VIP[family], 2, 0, "tcp", 80, "-u", "SEEN_REPLY")
    flow(family, VIP[family], 3, GONE, "tcp", 80)
    assert await conntrack.forget_untranslated(to(family, "tcp", [80])) == 1
    assert marks(family) == {2: 0, 3: GONE}


@pytest.mark.parametrize("family", FAMILIES)
async def test_connections_to_an_address_are_cut(conntrack: Conntrack, family: str) -> None:
    flow(family, VIP[family], 1, GONE, "tcp", 80)
    flow(family, VIP[family], 2, STAYS, "tcp", 81)
    flow(family, OTHER_VIP[family], 3, STAYS, "tcp", 80)
    assert await conntrack.cut(to(family, "tcp", [80]), frozenset([POD[family]])) == 1
    assert marks(family) == {2: STAYS, 3: STAYS}
    assert await conntrack.cut(to(family, "tcp", [81]), frozenset([CLIENT[family]])) == 0


NODE = {"ipv4": "192.0.2.1", "ipv6": "2001:db8::1"}
"""An address of the node, on which a pod with the host's network answers."""


def udp_to_node(family: str, sport: int, port: int, answerer: str) -> None:
    """A flow to a node port, that an endpoint at another port answers; untranslated without one."""
    translated = ("--dst-nat", addresses.with_port(answerer, 5353)) if answerer else ()
    flow(family, NODE[family], sport, 0, "udp", port, *translated)


@pytest.mark.parametrize("family", FAMILIES)
async def test_flows_to_endpoints_on_the_nodes_own_addresses_are_forgotten(conntrack: Conntrack, family: str) -> None:
    udp_to_node(family, 1, 30053, NODE[family])
    udp_to_node(family, 2, 30053, POD[family])
    udp_to_node(family, 3, 30053, "")
    listener = Destination(NODE[family], "udp", 30053)
    kept = frozenset({(ip_address(POD[family]).packed, 5353)})
    assert await conntrack.forget([Stale([listener], kept)]) == 1
    assert marks(family) == {2: 0, 3: 0}
    assert await conntrack.forget_untranslated([listener]) == 1
    assert marks(family) == {2: 0}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("more", [0, 1, 20], ids=["one listener", "two", "many"])
async def test_what_is_stale_of_several_farms_is_forgotten_at_once(
    conntrack: Conntrack, told: list[bytes], family: str, more: int
) -> None:
    flow(family, VIP[family], 1, GONE)
    flow(family, VIP[family], 2, 0)
    flow(family, OTHER_VIP[family], 3, STAYS)
    flow(family, OTHER_VIP[family], 4, GONE, "tcp", 53)
    for sport in range(10, 30):
        flow(family, OTHER_VIP[family], sport, STAYS, port=99)
    pod = frozenset({(ip_address(POD[family]).packed, 0)})
    here = to(family, ports=(53, *range(2000, 2000 + more)))
    there = [Destination(OTHER_VIP[family], protocol, 53) for protocol in ("udp", "tcp")]
    assert await conntrack.forget([Stale(here, pod), Stale(there, pod)]) == 0
    assert await conntrack.forget([Stale(here, pod), Stale(here, frozenset()), Stale(there, pod)]) == 1
    assert marks(family).keys() == {2, 3, 4, *range(10, 30)}
    told.clear()
    assert await conntrack.forget([Stale(here, pod, begun=True), Stale(there, pod, cut=frozenset([POD[family]]))]) == 3
    assert marks(family).keys() == set(range(10, 30))
    # The kernel picks out what concerns a few listeners.
    assert (len(told) < 10) == (more < 5)


async def test_hundreds_are_changed_and_one_that_ended_meanwhile_is_no_failure(
    conntrack: Conntrack, monkeypatch: pytest.MonkeyPatch
) -> None:
    hundreds_of_flows()
    change = NetfilterSocket.change

    async def changed(self: NetfilterSocket, family: str, changes: list[Change]) -> int:
        end_of_flow(150)
        return await change(self, family, changes)

    monkeypatch.setattr(NetfilterSocket, "change", changed)
    assert await conntrack.release(to("ipv4"), {GONE}) == 299
    assert marks("ipv4") == {}


async def test_a_request_the_kernel_rejects_raises_and_the_next_one_succeeds(flows: None) -> None:  # noqa: ARG001 - a fixture is asked for by name
    netfilter = NetfilterSocket.open()
    flow("ipv4", VIP["ipv4"], 1, GONE)
    nonsense = Change(netlink.SET_CONNECTION, netlink.attribute(1, b"nonsense", nested=True))
    with pytest.raises(errors.KernelError, match="refused to change a connection: Invalid argument"):
        await netfilter.change("ip", [nonsense, nonsense])
    assert len(await netfilter.ask("ip", netlink.GET_CONNECTIONS, dump=True)) == 1
    netfilter.close()
