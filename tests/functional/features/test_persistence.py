"""Clients that come back to their backend: for as long as they are remembered, and never to a dead one."""

import pytest

from tests.functional.cluster import Cluster, eventually
from tests.functional.farms import Front

pytestmark = pytest.mark.engines


@pytest.mark.parametrize(
    ("family", "persistence", "options"),
    [
        ("ipv4", "srcip dstport", ()),
        ("ipv4", "srcmac", ()),
        ("ipv4", "srcport", ("--source-port", "41000")),
        ("ipv6", "srcport srcmac", ("--source-port", "41000")),
    ],
)
def test_a_client_stays_with_its_backend_until_that_goes(
    cluster: Cluster, namespace: str, client: str, family: str, persistence: str, options: tuple[str, ...]
) -> None:
    front = Front(cluster, namespace, family=family)
    front.apply(persistence=persistence)
    chosen = front.one(client, *options, number=20)
    others = [pod for pod in front.pods if pod != chosen]
    front.apply(persistence=persistence, backends=[front.backend(chosen), front.backend(others[0])])
    assert front.one(client, *options) == chosen
    # An open connection must not hold its client to a backend that has gone.
    with cluster.streams(1, client, front.ip) as streams:
        front.apply(persistence=persistence, backends=[front.backend(others[0]), front.backend(others[1])])
        eventually(
            lambda: len(cluster.answers(client, front.ip, 80, *options, number=3) & set(others)) == 1,
            "the client is served by a backend that is there",
        )
    assert streams[0]["complete"], streams


def test_static_sessions_are_kept_changed_and_removed(cluster: Cluster, namespace: str, client: str) -> None:
    front = Front(cluster, namespace)
    sources = front.more_sources(client, 2)

    def session(source: str, pod: str) -> dict[str, str]:
        return {"client": source, "backend": pod}

    first, second, third = front.pods
    front.apply(persistence="srcip", sessions=[session(sources[0], first), session(sources[1], second)])
    assert [front.one(client, "--source", source) for source in sources] == [first, second]
    front.apply(persistence="srcip", sessions=[session(sources[0], third), session(sources[1], second)])
    assert front.one(client, "--source", sources[0]) == third

    # One that names nobody is told of, and the others work.
    front.submit(persistence="srcip", sessions=[session(sources[0], third), session(sources[1], "nobody")])
    sentence = f"the session of {sources[1]} names the backend nobody"
    eventually(lambda: sentence in front.reason, "the session without a backend is told of")
    assert front.one(client, "--source", sources[0]) == third
    # A session waits for its backend, and the client is served meanwhile.
    front.apply(
        persistence="srcip",
        sessions=[session(sources[0], third)],
        backends=[front.backend(p) for p in (first, second)] + [front.backend(third, ready=False)],
    )
    assert front.one(client, "--source", sources[0]) in (first, second)
    front.apply(persistence="srcip", sessions=[session(sources[0], third)])
    assert front.one(client, "--source", sources[0]) == third
    front.submit(persistence="srcip", sessions=[session("02:00:00:00:00:01", third)])
    eventually(lambda: "must have an address such as 10.0.0.1" in front.reason, "the wrong client is told of")
