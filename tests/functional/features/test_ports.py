"""Lists and ranges of ports, and every port of an address."""

from functools import partial

import pytest

from tests.builders.manifests import farm
from tests.functional.cluster import Cluster, eventually
from tests.functional.farms import Front

pytestmark = pytest.mark.engines


def test_the_port_is_kept_if_backends_have_none_else_theirs_serves_all(
    cluster: Cluster, namespace: str, client: str
) -> None:
    front = Front(cluster, namespace, replicas=2)
    listened = [{"ip": front.ip, "ports": "80-82,8001"}]
    front.apply(addresses=listened, backends=[front.backend(pod, port=None) for pod in front.pods])
    for port in (80, 81, 8001):
        assert set(front.count(client, 10, port=port)) == set(front.pods)
    assert front.refuses(client, 82), "the pods do not listen there"
    front.apply(addresses=listened)
    for port in (80, 82, 8001):
        assert set(front.count(client, 10, port=port)) == set(front.pods)


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_a_whole_address_has_every_port_over_tcp_and_udp(
    cluster: Cluster, namespace: str, client: str, family: str
) -> None:
    front = Front(cluster, namespace, replicas=2, family=family)
    whole = {"protocol": "All", "addresses": [{"ip": front.ip}]}
    backends = [front.backend(pod, port=None) for pod in front.pods]
    front.apply(**whole, backends=backends)
    for where in (client, cluster.nodes[0]):
        for port in (80, 81, 8001):
            assert set(front.count(where, 10, port=port)) == set(front.pods)
        for port in (81, 8001):
            assert set(front.count(where, 10, "--udp", port=port)) == set(front.pods)
    # Another farm there is refused, whatever its port.
    cluster.apply(farm("rival", namespace, family=family, addresses=[{"ip": front.ip, "ports": "9999"}], backends=[]))
    eventually(
        lambda: "AddressConflict" in (cluster.farm("rival", namespace).get("status", {}).get("reason", "")),
        "the rival is told who has the address",
    )
    front.apply(**whole, backends=[])
    for port in (80, 8001, 12345):
        eventually(partial(front.refuses, client, port), f"port {port} is refused")
    assert front.refuses(client, 8001, "--udp")
