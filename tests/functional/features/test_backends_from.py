"""Farms that refer to the endpoints of a Service: nothing is written when endpoints change."""

from typing import Any

import pytest

from tests.builders.manifests import farm, service
from tests.chance import is_likely
from tests.functional.cluster import Cluster, eventually
from tests.functional.commands import Kubectl
from tests.functional.farms import unique


@pytest.fixture
def vip(cluster: Cluster, namespace: str) -> str:
    """The address of a farm written by hand, ``follower``, that follows the Service ``web`` of two pods."""
    ip = unique()
    cluster.apply(service("web", namespace))
    cluster.serve("web", 2, namespace)
    reference = {"service": "web", "port": "http"}
    cluster.apply(farm("follower", namespace, addresses=[{"ip": ip, "ports": "8080"}], backendsFrom=[reference]))
    cluster.farm_has("follower", namespace, 2)
    return ip


@pytest.mark.engines
def test_a_farm_by_hand_follows_the_pods_of_a_service(cluster: Cluster, namespace: str, client: str, vip: str) -> None:
    cluster.reaches(client, cluster.pods("web", namespace), vip, 8080)
    with cluster.hammer(client, vip, 8080) as hammered:
        cluster.serve("web", 4, namespace)
        cluster.reaches(client, cluster.pods("web", namespace), vip, 8080)
        first, *rest = cluster.pods("web", namespace)
        cluster.lab.pod(False, f"{namespace}/{first}")
        cluster.reaches(client, rest, vip, 8080)
    assert hammered["failures"] == []
    for name in ("follower", "web--http"):
        assert cluster.farm(name, namespace)["metadata"]["generation"] == 1, "no farm was written"


@pytest.mark.usefixtures("vip")
def test_kubectl_shows_and_awaits_the_endpoints(cluster: Cluster, namespace: str) -> None:
    follower = "follower"
    first, second = cluster.pods("web", namespace)
    backends = cluster.listed(follower, namespace, 2)
    assert [(each["name"], each["pod"], each["port"], each["ready"], each["weight"]) for each in backends] == [
        (pod, pod, 80, True, 1) for pod in (first, second)
    ]
    cluster.lab.pod(False, f"{namespace}/{first}")
    await_it = ("wait", "farm", follower, "-n", namespace, "--timeout=30s")
    cluster.kubectl(*await_it, "--for=jsonpath={.status.backendsReady}=1/2")
    cluster.kubectl(*await_it, "--for=condition=EndpointsProgrammed")
    shown = cluster.kubectl("get", "farm", follower, "-n", namespace)
    assert "1/2" in shown.splitlines()[1].split()
    assert [(each["name"], each["ready"]) for each in cluster.listed(follower, namespace, 2)] == [
        (first, False),
        (second, True),
    ]
    described = cluster.kubectl("describe", "farm", follower, "-n", namespace)
    assert any(line.split() == ["Pod:", first] for line in described.splitlines()), described


@pytest.mark.engines
def test_an_override_is_for_one_pod_alone(cluster: Cluster, namespace: str, client: str, vip: str) -> None:
    heavy, light = cluster.pods("web", namespace)
    override = {"service": "web", "port": "http", "overrides": [{"pod": heavy, "weight": 3}]}
    cluster.api.patch("farm", "follower", namespace, {"spec": {"backendsFrom": [override]}})
    eventually(
        lambda: cluster.count(client, 80, vip, 8080)["answers"] == {heavy: 60, light: 20}, "it gets three of four"
    )


def test_a_headless_service_has_no_endpoints_for_farms(cluster: Cluster, namespace: str, client: str) -> None:
    ip = unique()
    cluster.apply(service("web", namespace, clusterIP="None"))
    cluster.serve("web", 1, namespace)
    reference = {"service": "web", "port": "http"}
    cluster.apply(farm("headless", namespace, addresses=[{"ip": ip, "ports": "80"}], backendsFrom=[reference]))
    cluster.farm_has("headless", namespace, 0)
    assert cluster.count(client, 2, ip)["failures"] == {"refused": 2}


CONNECTIONS = 600


@pytest.fixture
def weighted(cluster: Cluster, namespace: str) -> str:
    """The address of a farm, ``weighted``, of the Services ``web`` (two pods), ``api`` (one) and ``none``."""
    ip = unique()
    for name, replicas in (("web", 2), ("api", 1), ("none", 0)):
        cluster.apply(service(name, namespace))
        cluster.serve(name, replicas, namespace)
    weights = {"web": 60, "api": 15, "none": 25}
    groups = [{"service": name, "port": "http", "weight": weight} for name, weight in weights.items()]
    cluster.apply(farm("weighted", namespace, addresses=[{"ip": ip, "ports": "80"}], backendsFrom=groups))
    cluster.farm_has("weighted", namespace, 3)
    return ip


def awaits(cluster: Cluster, client: str, ip: str, pods: list[str]) -> None:
    """Wait until exactly these pods answer, whatever is refused."""
    eventually(lambda: cluster.count(client, 60, ip)["answers"].keys() == set(pods), f"{pods} answer")


@pytest.mark.engines
def test_each_group_gets_its_share_and_that_of_none_is_refused(
    cluster: Cluster, namespace: str, client: str, weighted: str
) -> None:
    web, api = (cluster.pods(name, namespace) for name in ("web", "api"))
    awaits(cluster, client, weighted, [*web, *api])
    counted = cluster.count(client, CONNECTIONS, weighted)
    assert counted["failures"].keys() == {"refused"}
    assert is_likely(counted["failures"]["refused"], CONNECTIONS, 0.25), counted
    assert is_likely(counted["answers"][api[0]], CONNECTIONS, 0.15), counted
    assert is_likely(sum(counted["answers"][pod] for pod in web), CONNECTIONS, 0.6), counted
    # A pod more does not change what the others of its group share with it.
    cluster.serve("api", 2, namespace)
    more = cluster.pods("api", namespace)
    awaits(cluster, client, weighted, [*web, *more])
    counted = cluster.count(client, CONNECTIONS, weighted)
    assert is_likely(sum(counted["answers"][pod] for pod in more), CONNECTIONS, 0.15), counted
    shown = {**dict.fromkeys(web, "web"), **dict.fromkeys(more, "api")}

    def status() -> dict[str, Any]:
        found: dict[str, Any] = cluster.farm("weighted", namespace)["status"]
        return found

    def services() -> dict[str, str]:
        return {each["name"]: each["service"] for each in status().get("backends", ())}

    eventually(lambda: services() == shown, "the status names the Services")
    eventually(lambda: "the Service none has 25 of 100" in status()["reason"], "it says whose share is refused")


@pytest.mark.engines
def test_weights_change_without_a_connection_that_fails(
    cluster: Cluster, namespace: str, client: str, weighted: str
) -> None:
    def weigh(web: int, api: int) -> None:
        groups = [{"service": name, "port": "http", "weight": weight} for name, weight in (("web", web), ("api", api))]
        cluster.api.patch("farm", "weighted", namespace, {"spec": {"backendsFrom": groups}})

    web, api = (cluster.pods(name, namespace) for name in ("web", "api"))
    weigh(100, 0)
    cluster.reaches(client, web, weighted)
    with cluster.hammer(client, weighted) as hammered:
        for pair, pods in (((50, 50), [*web, *api]), ((0, 100), api), ((50, 50), [*web, *api]), ((100, 0), web)):
            weigh(*pair)
            cluster.reaches(client, pods, weighted)
    assert hammered["failures"] == []


def test_a_pod_of_a_group_drains_in_the_farm_and_back(
    cluster: Cluster, namespace: str, client: str, weighted: str
) -> None:
    kubectl, before = Kubectl(cluster), cluster.farm("weighted", namespace)["spec"]["backendsFrom"]
    first, second = cluster.pods("web", namespace)
    others = [second, *cluster.pods("api", namespace)]
    awaits(cluster, client, weighted, [first, *others])
    done = kubectl.run("drain", first, "-n", namespace, "--timeout", "60")
    assert done.returncode == 0, done.stderr
    awaits(cluster, client, weighted, others)
    drained = cluster.farm("weighted", namespace)["spec"]["backendsFrom"]
    assert [each["weight"] for each in drained] == [each["weight"] for each in before]
    assert [each.get("overrides") for each in drained] == [[drained[0]["overrides"][0]], [], []]
    assert {key: drained[0]["overrides"][0][key] for key in ("pod", "state")} == {"pod": first, "state": "drain"}
    assert kubectl.run("undrain", first, "-n", namespace).returncode == 0
    assert cluster.farm("weighted", namespace)["spec"]["backendsFrom"] == before
    awaits(cluster, client, weighted, [first, *others])
