"""Open connections to a backend that goes while no agent runs: cut when one starts, where a farm asks for it."""

import pytest

from tests.functional.cluster import Cluster
from tests.functional.connections import Way, connected, far_pod, silent
from tests.functional.farms import Front


@pytest.mark.parametrize("mode", ["snat", "dnat"])
def test_what_went_while_no_agent_ran_is_cut_when_one_starts(
    cluster: Cluster, namespace: str, client: str, mode: str
) -> None:
    front = Front(cluster, namespace, 4)
    front.apply(onGone="cut", mode=mode)
    gone = far_pod(cluster, namespace, front.pods)
    node, way = cluster.nodes[0], Way(client, front.ip)
    with connected(cluster, way, front.pods) as clients, silent(cluster, gone, namespace):
        cluster.lab.stop("agent", node)
        try:
            left = [front.backend(name) for name in front.pods if name != gone]
            front.submit(onGone="cut", mode=mode, backends=left)
            assert clients[gone].waits()
        finally:
            cluster.lab.start("agent", node)
        assert clients[gone].is_reset()
        assert all(clients[name].ask() == name for name in front.pods if name != gone)
