"""The source address that backends see, and the marks of a farm's packets."""

import ipaddress
from collections.abc import Iterator

import pytest

from tests.builders.manifests import farm
from tests.functional.cluster import Cluster, eventually
from tests.functional.test_limits import FAMILIES, OTHER_VIP, VIP, backends, listening

pytestmark = pytest.mark.timeout(240)

SOURCE = {"ipv4": "192.0.2.77", "ipv6": "2001:db8::77"}
OTHER_SOURCE = {"ipv4": "192.0.2.78", "ipv6": "2001:db8::78"}


@pytest.fixture
def sources(cluster: Cluster) -> Iterator[None]:
    """Addresses that the first node holds besides its own, and that the second one knows the way to."""
    first, second = cluster.nodes
    entries = [ip for family in (SOURCE, OTHER_SOURCE) for ip in family.values()]
    internal = {
        ipaddress.ip_address(entry["address"]).version: entry["address"]
        for entry in cluster.get("node", first)["status"]["addresses"]
        if entry["type"] == "InternalIP"
    }
    changes = []
    for ip in entries:
        version = ipaddress.ip_address(ip).version
        changes.append((first, ("addr", ip, "dev", "lo")))
        if version in internal:
            changes.append((second, ("route", ip, "via", internal[version])))
    for node, (kind, *rest) in changes:
        assert cluster.lab.exec(node, "ip", kind, "add", *rest).returncode == 0
    yield
    for node, (kind, *rest) in reversed(changes):
        cluster.lab.exec(node, "ip", kind, "del", *rest)


def seen(cluster: Cluster, where: str, host: str, port: int = 80) -> set[str]:
    """The addresses that backends see as their client."""
    return set(cluster.count(where, 6, host, port, "--timeout", "5")["peers"])


@FAMILIES
@pytest.mark.usefixtures("sources")
def test_backends_see_the_address_that_the_farm_or_they_themselves_name(
    cluster: Cluster, namespace: str, client: str, family: str
) -> None:
    cluster.run("web", 2, namespace)
    one, two = backends(cluster, namespace, family)
    two["sourceAddress"] = OTHER_SOURCE[family]
    vip, other = VIP[family], OTHER_VIP[family]
    cluster.apply(
        farm("plain", namespace, **listening(other, family), backends=[one]),
        farm("web", namespace, **listening(vip, family, "80", "81"), sourceAddress=SOURCE[family], backends=[one, two]),
    )
    cluster.farm_has("web", namespace, 2)
    for port in (80, 81):
        assert seen(cluster, client, vip, port) == {SOURCE[family], OTHER_SOURCE[family]}
    assert seen(cluster, cluster.nodes[0], vip) == {SOURCE[family], OTHER_SOURCE[family]}
    node = seen(cluster, client, other)
    assert node.isdisjoint({SOURCE[family], OTHER_SOURCE[family]}), "another farm with the same backend has the node's"
    patch = '{"spec":{"sourceAddress":null}}'
    cluster.kubectl("patch", "farm", "web", "-n", namespace, "--type=merge", "-p", patch)
    eventually(
        lambda: OTHER_SOURCE[family] in (found := seen(cluster, client, vip)) and SOURCE[family] not in found,
        "the farm's address is gone, the backend's is not",
    )


@FAMILIES
def test_packets_carry_the_mark_of_their_farm(cluster: Cluster, namespace: str, client: str, family: str) -> None:
    cluster.run("web", 2, namespace)
    every = backends(cluster, namespace, family)
    cluster.apply(
        farm("plain", namespace, **listening(OTHER_VIP[family], family), backends=every),
        farm("web", namespace, **listening(VIP[family], family), mark="0x50000", backends=every),
    )
    for name in ("plain", "web"):
        cluster.farm_has(name, namespace, 2)
    node = cluster.nodes[0]
    cluster.nft(node, "add table inet test-marks")
    try:
        cluster.nft(node, "add chain inet test-marks c { type filter hook forward priority 0; }")
        cluster.nft(node, "add rule inet test-marks c meta mark & 0x7ffff000 == 0x50000 counter")
        assert cluster.answers(client, OTHER_VIP[family])
        assert "packets 0 " in cluster.nft(node, "list table inet test-marks")
        assert cluster.answers(client, VIP[family])
        assert "packets 0 " not in cluster.nft(node, "list table inet test-marks")
    finally:
        cluster.nft(node, "delete table inet test-marks")
