"""The count of open connections that the kernel translates to a backend."""

import subprocess
from collections.abc import AsyncIterator, Iterator

import pytest

from kube_nftlb import addresses
from kube_nftlb.netfilter.conntrack.table import Conntrack

VIP = {"ipv4": "10.96.0.10", "ipv6": "fd00:96::a"}
CLIENT = {"ipv4": "10.244.9.9", "ipv6": "fd00:244:9::9"}
POD = {"ipv4": "10.244.1.2", "ipv6": "fd00:244:1::2"}
OTHER = {"ipv4": "10.244.1.3", "ipv6": "fd00:244:1::3"}
FAMILIES = ("ipv4", "ipv6")


@pytest.fixture
def flows(private_network: None) -> Iterator[None]:  # noqa: ARG001 - a fixture is asked for by name
    """An empty table."""
    subprocess.run(["conntrack", "-F"], check=True, capture_output=True)
    yield
    subprocess.run(["conntrack", "-F"], check=True, capture_output=True)


@pytest.fixture
async def counter(flows: None) -> AsyncIterator[Conntrack]:  # noqa: ARG001 - a fixture is asked for by name
    opened = Conntrack.open()
    yield opened
    opened.close()


def connection(
    family: str, sport: int, backend: str = "", *, state: str = "ESTABLISHED", protocol: str = "tcp"
) -> None:
    """A connection to a VIP, or with a backend translated to its port 8080."""
    target = addresses.with_port(backend, 8080)
    arguments = [
        *("-p", protocol, "-s", CLIENT[family], "-d", VIP[family], "--sport", str(sport), "--dport", "80", "-t", "300"),
        *(("--dst-nat", target) if backend else ()),
        *(("--state", state) if protocol == "tcp" else ()),
    ]
    subprocess.run(["conntrack", "-I", *arguments], check=True, capture_output=True)


@pytest.mark.parametrize("family", FAMILIES)
async def test_open_connections_to_a_backend_count_and_no_others(counter: Conntrack, family: str) -> None:
    for sport in (1, 2):
        connection(family, sport, POD[family])
    connection(family, 3, POD[family], state="TIME_WAIT")
    connection(family, 4, POD[family], state="CLOSE")
    connection(family, 5, POD[family], state="CLOSE_WAIT")
    connection(family, 6, OTHER[family])
    connection(family, 7)
    assert await counter.count({(POD[family], 8080)}) == {(POD[family], 8080): 3}
    assert await counter.count({(POD[family], 0)}) == {(POD[family], 0): 3}
    assert await counter.count({(POD[family], 81)}) == {}


@pytest.mark.parametrize("family", FAMILIES)
async def test_many_backends_are_counted_at_once(counter: Conntrack, family: str) -> None:
    connection(family, 1, POD[family])
    connection(family, 2, OTHER[family], protocol="udp")
    others = {(f"10.0.0.{number}" if family == "ipv4" else f"fd00:1::{number}", 8080) for number in range(1, 20)}
    found = await counter.count({(POD[family], 8080), (OTHER[family], 8080), *others})
    assert found == {(POD[family], 8080): 1, (OTHER[family], 8080): 1}


async def test_both_families_are_counted_together(counter: Conntrack) -> None:
    for family in FAMILIES:
        connection(family, 1, POD[family])
    assert (await counter.count({(POD[family], 8080) for family in FAMILIES})).total() == 2
