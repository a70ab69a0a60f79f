"""The effect of farm and backend states on new connections, open ones, and remembered clients."""

from functools import partial

import pytest

from tests.functional.cluster import Cluster, eventually
from tests.functional.farms import Front

pytestmark = pytest.mark.engines


@pytest.mark.parametrize("state", ["drain", "off", "down"])
def test_the_state_of_a_backend(cluster: Cluster, namespace: str, client: str, state: str) -> None:
    front = Front(cluster, namespace)
    (stranger,) = front.more_sources(client, 1)
    front.apply(persistence="srcip")
    chosen = front.one(client)
    with cluster.streams(1, client, front.ip) as streams:
        backends = [front.backend(pod, state=state if pod == chosen else "up") for pod in front.pods]
        front.apply(persistence="srcip", backends=backends)
        assert front.one(client, "--source", stranger) != chosen
        remembered = front.one(client)
    assert streams[0]["pod"] == chosen
    assert (remembered == chosen) == (state == "drain")
    assert streams[0]["complete"] == (state != "down"), streams


@pytest.mark.parametrize("state", ["drain", "off", "down"])
def test_the_state_of_a_farm(cluster: Cluster, namespace: str, client: str, state: str) -> None:
    front = Front(cluster, namespace)
    front.apply(persistence="srcip")
    chosen = front.one(client)
    with cluster.streams(1, client, front.ip) as streams:
        front.apply(persistence="srcip", state=state)
        for where in (client, cluster.nodes[0]):
            eventually(partial(front.refuses, where), f"{where} is refused")
    assert streams[0]["complete"] == (state != "down"), streams
    front.apply(persistence="srcip")
    if state == "drain":
        assert front.one(client) == chosen
    assert front.count(client, 10)


def test_the_last_backend_drains_without_harm_to_its_open_connections(
    cluster: Cluster, namespace: str, client: str
) -> None:
    front = Front(cluster, namespace, replicas=1)
    front.apply()
    with cluster.streams(1, client, front.ip) as streams:
        front.apply(backends=[front.backend(front.pods[0], state="drain")])
        eventually(lambda: front.refuses(client), "new connections are refused")
    assert streams[0]["complete"], streams
