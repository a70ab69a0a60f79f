"""Clients that come back to their backend, though the agent is restarted and the sessions are lost."""

import pytest

from tests import engine
from tests.functional.cluster import Cluster, eventually
from tests.functional.farms import Front

pytestmark = pytest.mark.engines


def test_an_agent_that_restarts_forgets_no_client_and_repairs_static_sessions(
    cluster: Cluster, namespace: str, client: str
) -> None:
    front, node = Front(cluster, namespace), cluster.nodes[0]
    fixed, remembered = front.more_sources(client, 2)
    front.apply(persistence="srcip", sessions=[{"client": fixed, "backend": front.pods[2]}])
    assert front.one(client, "--source", fixed) == front.pods[2]
    chosen = front.one(client, "--source", remembered)
    sent = len(cluster.changing_requests())
    cluster.lab.restart("agent", node)
    ready = ("curl", "-sf", f"http://{cluster.lab.nodes[0].addresses[0].ip}:10256/readyz")
    eventually(lambda: cluster.lab.exec(node, *ready).returncode == 0, "the agent has compared all with the kernel")
    assert len(cluster.changing_requests()) == sent, "nothing is sent again"
    assert front.one(client, "--source", remembered) == chosen

    sessions = ("inet", "kube-nftlb-services", "sessions-ip")
    if engine.current() == "nftlb":
        sessions = ("ip", "nftlb", f"static-sessions-{namespace}.front")
    cluster.nft(node, "flush", "map", *sessions)
    eventually(
        lambda: fixed in cluster.lab.exec(node, "nft", "list", "map", *sessions).stdout, "the session is repaired", 30
    )
    assert front.one(client, "--source", fixed) == front.pods[2]
