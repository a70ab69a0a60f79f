"""The kernel's TCP connections: those to endpoints that are gone are found, and forgotten."""

import subprocess
from collections.abc import AsyncIterator
from ipaddress import ip_address

import pytest

from kube_nftlb import addresses
from kube_nftlb.netfilter.tcp_connections import Endpoint, Family, TcpConnections

VIP: dict[Family, str] = {"ip": "10.96.0.10", "ip6": "fd00:96::a"}
OTHER: dict[Family, str] = {"ip": "10.96.0.11", "ip6": "fd00:96::b"}
CLIENT: dict[Family, str] = {"ip": "10.244.9.9", "ip6": "fd00:244:9::9"}
STAYS: dict[Family, str] = {"ip": "10.244.1.2", "ip6": "fd00:244:1::2"}
GONE: dict[Family, str] = {"ip": "10.244.1.3", "ip6": "fd00:244:1::3"}
FAMILIES: tuple[Family, ...] = ("ip", "ip6")


def packed(ip: str) -> bytes:
    return ip_address(ip).packed


def connect(family: Family, sport: int, to: str, pod: str, *more: str, protocol: str = "tcp", port: int = 80) -> None:
    """A connection that is translated to a pod, at port 8080; untranslated where that is empty."""
    state = ("--state", "ESTABLISHED") if protocol == "tcp" and "--state" not in more else ()
    target = addresses.with_port(pod, 8080)
    subprocess.run(
        [
            *("conntrack", "-I", "-p", protocol, "-s", CLIENT[family], "-d", to, "--sport", str(sport)),
            *("--dport", str(port), "-t", "300", *(("--dst-nat", target) if pod else ()), *state, *more),
        ],
        check=True,
        capture_output=True,
    )


def delete_all() -> None:
    subprocess.run(["conntrack", "-F"], check=True, capture_output=True)


@pytest.fixture
async def connections(private_network: None) -> AsyncIterator[TcpConnections]:  # noqa: ARG001 - by name
    delete_all()
    opened = TcpConnections.open()
    yield opened
    opened.close()
    delete_all()


def kept(family: Family, *servers: tuple[str, int], port: int = 8080) -> dict[Endpoint, frozenset[Endpoint]]:
    return {(packed(ip), number): frozenset({(packed(STAYS[family]), port)}) for ip, number in servers}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("more", [0, 1, 20], ids=["one listener", "two", "many"])
async def test_connections_to_a_listener_that_others_answer_are_found_and_forgotten(
    connections: TcpConnections, family: Family, more: int
) -> None:
    connect(family, 1, VIP[family], GONE[family])
    connect(family, 2, VIP[family], STAYS[family])
    connect(family, 3, OTHER[family], GONE[family])
    connect(family, 4, VIP[family], GONE[family], port=70)
    connect(family, 5, VIP[family], GONE[family], protocol="udp")
    connect(family, 6, VIP[family], "")
    asked = kept(family, (VIP[family], 80), *((VIP[family], 81 + number) for number in range(more)))
    found = await connections.others(family, asked, 10)
    assert [(each.client, each.server, each.is_open) for each in found] == [
        ((packed(CLIENT[family]), 1), (packed(VIP[family]), 80), True)
    ]
    assert await connections.forget(family, found) == 1
    assert await connections.others(family, asked, 10) == []
    assert await connections.forget(family, found) == 0


@pytest.mark.parametrize("family", FAMILIES)
async def test_port_0_stands_for_all_ports(connections: TcpConnections, family: Family) -> None:
    for number, pod in enumerate((GONE, STAYS)):
        connect(family, 10 + number, VIP[family], pod[family], port=70)
        connect(family, 20 + number, VIP[family], pod[family], port=71)
    found = await connections.others(family, kept(family, (VIP[family], 0), port=0), 10)
    assert {each.client[1] for each in found} == {10, 20}


async def test_clients_that_are_not_connected_are_told_from_those_that_are(connections: TcpConnections) -> None:
    for number, state in enumerate(("SYN_SENT", "SYN_RECV", "ESTABLISHED", "CLOSE_WAIT", "TIME_WAIT")):
        connect("ip", number + 1, VIP["ip"], GONE["ip"], "--state", state)
    found = await connections.others("ip", kept("ip", (VIP["ip"], 80)), 10)
    assert {each.client[1] for each in found if each.is_open} == {2, 3, 4}
    assert {each.client[1] for each in found if not each.is_open} == {1, 5}


async def test_a_later_connection_of_the_same_client_is_not_forgotten(connections: TcpConnections) -> None:
    connect("ip", 1, VIP["ip"], GONE["ip"])
    found = await connections.others("ip", kept("ip", (VIP["ip"], 80)), 10)
    delete_all()
    connect("ip", 1, VIP["ip"], STAYS["ip"])
    assert await connections.forget("ip", found) == 0


def hundreds() -> None:
    lines = (
        f"-I -p tcp -s {CLIENT['ip']} -d {VIP['ip']} --sport {sport} --dport 80 -t 300 --state ESTABLISHED"
        f" --dst-nat {GONE['ip']}:8080"
        for sport in range(1, 901)
    )
    subprocess.run(["conntrack", "-R", "-"], input="\n".join(lines), text=True, check=True, capture_output=True)


async def test_hundreds_are_found_up_to_the_limit_and_the_rest_later(connections: TcpConnections) -> None:
    hundreds()
    asked = kept("ip", (VIP["ip"], 80))
    for number in (600, 300):
        found = await connections.others("ip", asked, 600)
        assert len(found) == number
        assert await connections.forget("ip", found) == number
