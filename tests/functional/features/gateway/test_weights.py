"""A route moves all connections from one Service to another and back, while connections run."""

import os
import time

import pytest

from tests.builders.gateways import backend, gateway, listener, route
from tests.functional.cluster import Cluster
from tests.functional.features.gateway.test_gateway import programmed, serving

CONNECTIONS = int(os.environ.get("KUBE_NFTLB_TEST_CONNECTIONS", "1000"))
"""How many connections meet the change at least; ten thousand take minutes."""
_PATIENCE_S = 90


@pytest.mark.timeout(240)
def test_weights_go_from_all_to_nothing_and_back_without_a_failed_connection(
    cluster: Cluster, namespace: str, client: str, ip: str
) -> None:
    serving(cluster, namespace, old=2, new=2)

    def weighted(old: int, new: int) -> None:
        cluster.apply(route("web", namespace, "edge", backend("old", old), backend("new", new)))

    cluster.apply(gateway("edge", namespace, listener("tcp", 80), addresses=(ip,)))
    weighted(100, 0)
    programmed(cluster, "edge", namespace)
    old, new = (cluster.pods(name, namespace) for name in ("old", "new"))
    cluster.reaches(client, old, ip)
    begun = time.monotonic()
    met = 0
    failed: dict[str, int] = {}
    with cluster.streams(4, client, ip) as streams:
        while met < CONNECTIONS and time.monotonic() - begun < _PATIENCE_S:
            with cluster.hammer(client, ip) as hammered:
                for shares, expected in (((50, 50), {*old, *new}), ((0, 100), {*new}), ((100, 0), {*old})):
                    weighted(*shares)
                    cluster.reaches(client, sorted(expected), ip)
            met += hammered["attempts"]
            failed |= hammered["failed"]
    print(f"{met} connections, failed: {failed}")
    assert not failed
    assert all(stream["complete"] for stream in streams), streams
