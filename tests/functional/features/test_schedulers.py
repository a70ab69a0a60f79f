"""The choice of a backend for a new connection."""

import pytest

from tests import engine
from tests.functional.cluster import Cluster, eventually
from tests.functional.farms import Front

pytestmark = pytest.mark.engines

WEIGHTS = (1, 2, 3)


@pytest.fixture
def front(cluster: Cluster, namespace: str) -> Front:
    return Front(cluster, namespace)


def weighted(front: Front) -> list[dict[str, object]]:
    return [front.backend(pod, weight=weight) for pod, weight in zip(front.pods, WEIGHTS, strict=True)]


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_in_turn_by_weight_is_exact(cluster: Cluster, namespace: str, client: str, family: str) -> None:
    front = Front(cluster, namespace, family=family)
    front.apply(scheduler="rr", backends=weighted(front))
    answers = front.count(client, 300)
    for pod, weight in zip(front.pods, WEIGHTS, strict=True):
        assert abs(answers[pod] - 50 * weight) <= 2, answers


def test_at_random_by_weight_is_about_right(front: Front, client: str) -> None:
    front.apply(scheduler="weight", backends=weighted(front))
    answers = front.count(client, 300)
    # 300 draws: the standard deviation is at most 8.7, so this is 4.5 of them.
    for pod, weight in zip(front.pods, WEIGHTS, strict=True):
        assert abs(answers[pod] - 50 * weight) <= 39, answers


def test_a_hash_of_what_stays_the_same_leads_to_one_backend(front: Front, client: str) -> None:
    for param in (
        "none",
        "srcip",
        "dstip",
        "dstport",
        "srcmac",
        "dstmac",
        "srcip dstip dstport",
        "srcip srcmac dstmac",
    ):
        front.apply(scheduler="hash", schedParam=param)
        front.one(client, number=30)


def test_a_hash_of_the_clients_port_spreads_and_keeps_to_it(front: Front, client: str) -> None:
    for param in ("srcport", "srcip srcport", "srcip dstip srcport dstport srcmac dstmac"):
        front.apply(scheduler="hash", schedParam=param)
        answers = front.count(client, 300)
        assert set(answers) == set(front.pods), (param, answers)
        assert min(answers.values()) >= 60, (param, answers)
        for port in (40001, 40002, 40003):
            front.one(client, "--source-port", port)


def test_a_hash_of_the_clients_address_spreads_clients(front: Front, client: str) -> None:
    front.apply(scheduler="hash", schedParam="srcip")
    sources = front.more_sources(client, 10)
    chosen = {source: front.one(client, "--source", source) for source in sources}
    assert len(set(chosen.values())) > 1, chosen
    assert {source: front.one(client, "--source", source) for source in sources} == chosen


def test_symhash_spreads_connections_by_what_they_have_in_common(front: Front, client: str) -> None:
    front.apply(scheduler="symhash")
    assert set(front.count(client, 300)) == set(front.pods)
    for port in (40001, 40002, 40003):
        front.one(client, "--source-port", port)


def test_a_spare_backend_takes_over_while_the_first_is_away(front: Front, client: str) -> None:
    first, second, third = front.pods

    def backends(**changes: object) -> list[dict[str, object]]:
        return [
            front.backend(first, **changes),
            front.backend(second, priority=2),
            front.backend(third, priority=3),
        ]

    front.apply(backends=backends())
    assert front.one(client) == first
    front.apply(backends=backends(ready=False))
    assert front.one(client) == second
    front.apply(backends=backends(state="drain"))
    assert front.one(client) == second
    front.apply(backends=backends())
    assert front.one(client) == first
    front.apply(backends=backends(), priority=2)
    assert set(front.count(client, 20)) == {first, second}
    front.apply(backends=backends()[2:])
    assert front.one(client) == third


def test_a_backend_has_the_mark_it_asks_for(front: Front, cluster: Cluster, client: str) -> None:
    front.apply()
    taken, *others = (front.backend(pod, mark=4095 - number) for number, pod in enumerate(front.pods))
    front.apply(backends=[taken, *others])
    assert set(front.count(client, 30)) == set(front.pods)
    # The highest bit is nftlb's, for masquerading.
    first = 0x8000_0000 if engine.current() == "nftlb" else 0
    found = cluster.lab.exec(cluster.nodes[0], "conntrack", "-L", "-p", "tcp", "-o", "extended").stdout
    for number, backend in enumerate([taken, *others]):
        assert any(
            f"src={backend['ip']} " in line and f"mark={first | 4095 - number} " in line for line in found.splitlines()
        )
    front.submit(backends=[{**taken, "mark": 7}, {**others[0], "mark": 7}])
    eventually(lambda: "duplicate backend mark 7" in front.reason, "the mark that is asked for twice is told of")
