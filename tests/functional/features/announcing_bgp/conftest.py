"""The lab of the tests in this folder: three nodes that announce addresses by BGP, and a client behind the routers.

The third of the three routers is of the nodes' own AS.

The tests break nodes one after the other, and mend them.
"""

from collections.abc import Iterator
from ipaddress import IPv4Interface, IPv6Interface

import pytest

from lab.routing.plan import NODES_ASN, RouterPlan, plan_routers
from tests import engine
from tests.functional.cluster import Cluster, eventually, running
from tests.functional.conftest import Used

_NUMBERS = iter(range(10, 250))
_ADDRESSES = {"KUBE_NFTLB_ADDRESSES": "on"}
_SETTINGS = {"operator": {**engine.OPERATOR, **_ADDRESSES}, "agent": {**_ADDRESSES, "KUBE_NFTLB_BGP": "on"}}
ROUTERS = plan_routers(3)
SESSIONS = 2 * len(ROUTERS)
"""Of each node: one in each family."""
POOL = {
    "apiVersion": "kube-nftlb.io/v1alpha1",
    "kind": "NftlbAddressPool",
    "metadata": {"name": "routed"},
    "spec": {
        "ranges": ["192.0.2.0/24", "2001:db8::/112"],
        "announce": {"bgp": {"communities": ["65001:100", "65001:1:2"]}, "whenEmpty": "withdraw"},
    },
}


@pytest.fixture(scope="package")
def _lab() -> Iterator[Used]:
    with running("bgp", nodes=3, routers=len(ROUTERS), settings=_SETTINGS) as cluster:
        cluster.apply(POOL)
        for router in ROUTERS:
            for address in router.inside:
                cluster.apply(router_peer(router, address))
        for node in cluster.nodes:
            has_sessions(cluster, node)
        yield Used(cluster, [])


@pytest.fixture
def pair() -> tuple[str, str]:
    """An IPv4 and an IPv6 address that no Service of an earlier test has, which may be about to go."""
    number = next(_NUMBERS)
    return f"192.0.2.{number}", f"2001:db8::{number:x}"


def router_peer(router: RouterPlan, inside: IPv4Interface | IPv6Interface, **bfd: int) -> dict[str, object]:
    """A router of the lab for all nodes, by one of its addresses, with BFD."""
    key = router.name if router.password else ""
    name = f"{router.name}-ipv{inside.version}"
    return peer(name, str(inside.ip), asn=router.asn, passwordKey=key, bfd=bfd)


def peer(name: str, address: str, **spec: object) -> dict[str, object]:
    """A router for all nodes."""
    return {
        "apiVersion": "kube-nftlb.io/v1alpha1",
        "kind": "NftlbBGPPeer",
        "metadata": {"name": name},
        "spec": {"address": address, "asn": ROUTERS[0].asn, "myAsn": NODES_ASN, **spec},
    }


def has_sessions(cluster: Cluster, node: str) -> None:
    """Wait until the sessions of a node with all routers, in both families, are established."""
    eventually(lambda: established(cluster, node) == SESSIONS, f"{node} has its sessions", 60)


def established(cluster: Cluster, node: str) -> int:
    """How many sessions of a node are established, as it reports."""
    number: int = ((cluster.get("nftlbnode", node) or {}).get("status") or {}).get("bgp", {}).get("established", 0)
    return number
