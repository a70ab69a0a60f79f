"""The source address that backends see, and the marks of a farm's packets."""

import ipaddress
from collections.abc import Iterator

import pytest

from tests.builders.manifests import farm
from tests.functional import farms
from tests.functional.cluster import Cluster, eventually
from tests.functional.farms import unique

pytestmark = [pytest.mark.engines, pytest.mark.parametrize("family", ["ipv4", "ipv6"])]


@pytest.fixture
def sources(cluster: Cluster, family: str) -> Iterator[tuple[str, str]]:
    """Addresses that the first node holds besides its own, and that the second one knows the way to."""
    first, second = cluster.nodes
    found = (unique(family), unique(family))
    internal = {
        ipaddress.ip_address(entry["address"]).version: entry["address"]
        for entry in cluster.get("node", first)["status"]["addresses"]
        if entry["type"] == "InternalIP"
    }
    changes = []
    for ip in found:
        version = ipaddress.ip_address(ip).version
        changes.append((first, ("addr", ip, "dev", "lo")))
        if version in internal:
            changes.append((second, ("route", ip, "via", internal[version])))
    for node, (kind, *rest) in changes:
        assert cluster.lab.exec(node, "ip", kind, "add", *rest).returncode == 0
    yield found
    for node, (kind, *rest) in reversed(changes):
        cluster.lab.exec(node, "ip", kind, "del", *rest)


def seen(cluster: Cluster, where: str, host: str, port: int = 80) -> set[str]:
    """The addresses that backends see as their client."""
    return set(cluster.count(where, 6, host, port, "--timeout", "5")["peers"])


def test_backends_see_the_address_that_the_farm_or_they_themselves_name(
    cluster: Cluster, namespace: str, client: str, family: str, sources: tuple[str, str]
) -> None:
    cluster.serve("web", 2, namespace)
    one, two = farms.backends(cluster, "web", namespace, family)
    own, of_two = sources
    two["sourceAddress"] = of_two
    vip, other = unique(family), unique(family)
    ports = [{"ip": vip, "ports": "80"}, {"ip": vip, "ports": "81"}]
    plain = {"family": family, "addresses": [{"ip": other, "ports": "80"}], "backends": [one]}
    cluster.apply(
        farm("plain", namespace, **plain),
        farm("web", namespace, family=family, addresses=ports, sourceAddress=own, backends=[one, two]),
    )
    cluster.farm_has("web", namespace, 2)
    for port in (80, 81):
        assert seen(cluster, client, vip, port) == {own, of_two}
    assert seen(cluster, cluster.nodes[0], vip) == {own, of_two}
    cluster.farm_has("plain", namespace, 1)
    node = seen(cluster, client, other)
    assert node.isdisjoint(sources), "another farm with the same backend has the node's"
    cluster.api.patch("farm", "web", namespace, {"spec": {"sourceAddress": None}})
    eventually(
        lambda: of_two in (found := seen(cluster, client, vip)) and own not in found,
        "the farm's address is gone, the backend's is not",
    )


def test_packets_carry_the_mark_of_their_farm(cluster: Cluster, namespace: str, client: str, family: str) -> None:
    cluster.serve("web", 2, namespace)
    every = farms.backends(cluster, "web", namespace, family)
    vip, other = unique(family), unique(family)
    for name, ip, more in (("plain", other, {}), ("web", vip, {"mark": "0x50000"})):
        addresses = [{"ip": ip, "ports": "80"}]
        cluster.apply(farm(name, namespace, family=family, addresses=addresses, backends=every, **more))
    for name in ("plain", "web"):
        cluster.farm_has(name, namespace, 2)
    # Other tests mark packets, too: those to the backends here are this test's.
    node, table = cluster.nodes[0], f"marks-of-{namespace}"
    ips = "{ " + ", ".join(each["ip"] for each in every) + " }"
    daddr = f"{'ip6' if family == 'ipv6' else 'ip'} daddr {ips}"
    cluster.nft(node, f"add table inet {table}")
    try:
        cluster.nft(node, f"add chain inet {table} c {{ type filter hook forward priority 0; }}")
        cluster.nft(node, f"add rule inet {table} c {daddr} meta mark & 0x7ffff000 == 0x50000 counter")
        assert cluster.answers(client, other)
        assert "packets 0 " in cluster.nft(node, f"list table inet {table}")
        assert cluster.answers(client, vip)
        assert "packets 0 " not in cluster.nft(node, f"list table inet {table}")
    finally:
        cluster.nft(node, f"delete table inet {table}")
