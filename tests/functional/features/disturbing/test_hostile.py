"""A hostile user who may write farms and Services cannot harm anybody else."""

import contextlib
import json
import random
import subprocess
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from kube_nftlb.api.schema.reference import rows
from kube_nftlb.netfilter.nftables.blueprint import blueprint_of
from tests.builders.manifests import farm, service
from tests.functional.cluster import Cluster, eventually
from tests.hostile import FARM, TEXTS, examples

CRD = "nftlbfarms.kube-nftlb.io"
FARMS = 60
SEED = 2
"""With which some of them are valid."""
SERVICES = 12


@pytest.fixture
def bystander(cluster: Cluster, namespace: str) -> str:
    """The VIP of a Service that has done nothing to anybody."""
    return cluster.expose("web", 2, namespace)


@contextlib.contextmanager
def undisturbed(cluster: Cluster, client: str, vip: str) -> Iterator[None]:
    """Assert that the block costs nobody else a connection and ends no program of ours."""
    pids = programs(cluster)
    recoveries, tables, host = cluster.recoveries(), all_tables(cluster), host_ruleset()
    with cluster.hammer(client, vip) as hammered:
        yield
    assert hammered["attempts"] > 100
    assert hammered["failures"] == []
    assert programs(cluster) == pids
    assert cluster.recoveries() == recoveries
    assert all_tables(cluster) <= tables | {"table ip nftlb", "table ip6 nftlb", "table inet kube-nftlb"}
    assert host_ruleset() == host


@contextlib.contextmanager
def definition_without_rules(cluster: Cluster) -> Iterator[None]:
    """As if the API server had a definition that knows nothing of the fields of a farm."""
    schema = cluster.get("crd", CRD)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    change_schema(cluster, {"type": "object", "properties": {"spec": anything, "status": anything}})
    try:
        eventually(lambda: takes(cluster, farm("canary", "default", addresses="none")), "anything is taken")
        cluster.delete("farm", "canary")
        yield
    finally:
        change_schema(cluster, schema)
        eventually(lambda: not takes(cluster, farm("canary", "default", addresses="none")), "the rules are back")


def change_schema(cluster: Cluster, schema: dict[str, Any]) -> None:
    patch = [{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema", "value": schema}]
    cluster.kubectl("patch", "crd", CRD, "--type=json", "-p", json.dumps(patch))


def takes(cluster: Cluster, body: dict[str, Any]) -> bool:
    arguments = ("apply", "--validate=false", "-f", "-")
    return cluster.try_kubectl(*arguments, stdin=json.dumps(body)).returncode == 0


def hostile_farms(namespace: str) -> list[dict[str, Any]]:
    farms = []
    for number, spec in enumerate(examples(FARMS, SEED), 1):
        # Each on an address of its own, so that it does not lose it to another.
        usual = spec["addresses"] == FARM["addresses"]
        addresses = [{"ip": f"10.99.1.{number}", "ports": "80"}] if usual else spec["addresses"]
        body = farm(f"hostile-{number}", namespace, **{**spec, "addresses": addresses})
        # JSON has no infinity.
        with contextlib.suppress(ValueError):
            json.dumps(body, allow_nan=False)
            farms.append(body)
    return farms


def create(cluster: Cluster, objects: list[dict[str, Any]]) -> int:
    """Create what the API server takes; how many that are."""
    listed = {"apiVersion": "v1", "kind": "List", "items": objects}
    return cluster.try_kubectl("create", "--validate=false", "-f", "-", stdin=json.dumps(listed)).stdout.count(
        "created"
    )


def all_are_judged(cluster: Cluster, namespace: str) -> None:
    """Wait until every farm says what has become of it, and every node has come past all of them."""
    cluster.apply(farm("sentinel", namespace, addresses=[{"ip": "10.99.2.1", "ports": "80"}]))
    eventually(
        lambda: programmed(cluster.farm("sentinel", namespace)) == "True", "the nodes have come past them all", 60
    )

    def silent() -> list[str]:
        items = cluster.get("farm", namespace=namespace)["items"]
        return [item["metadata"]["name"] for item in items if programmed(item) is None]

    eventually(lambda: not silent(), "every farm says what became of it", 60)


def programmed(item: Any) -> str | None:
    conditions = (item or {}).get("status", {}).get("conditions", [])
    return next((c["status"] for c in conditions if c["type"] == "Programmed"), None)


def programs(cluster: Cluster) -> dict[tuple[str, str | None], int]:
    return {(entry["component"], entry["node"]): entry["pid"] for entry in cluster.lab.status()}


def all_tables(cluster: Cluster) -> set[str]:
    lines = (line for node in cluster.nodes for line in cluster.nft(node, "list", "tables").splitlines())
    # The agent has a blueprint for the moment of a comparison only.
    return {line for line in lines if not line.endswith(blueprint_of(""))}


def host_ruleset() -> str:
    return subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True, check=False).stdout


@pytest.mark.engines
def test_the_definition_and_the_nodes_contain_hostile_farms(
    cluster: Cluster, namespace: str, client: str, bystander: str
) -> None:
    hostile = hostile_farms(namespace)
    with undisturbed(cluster, client, bystander):
        taken = create(cluster, hostile)
        assert 0 < taken < len(hostile), "the API server refuses most"
        all_are_judged(cluster, namespace)


def test_if_the_definition_has_no_rules_the_nodes_contain_hostile_farms(
    cluster: Cluster, namespace: str, client: str, bystander: str
) -> None:
    hostile = hostile_farms(namespace)
    with definition_without_rules(cluster):
        try:
            with undisturbed(cluster, client, bystander):
                assert create(cluster, hostile) > len(hostile) * 0.8, "the API server takes nearly all"
                all_are_judged(cluster, namespace)
                items = cluster.get("farm", namespace=namespace)["items"]
                assert sum(programmed(item) == "False" for item in items) > len(hostile) / 2
                # A restart reads them all at once; it must come up all the same.
            cluster.lab.restart("operator")
            cluster.lab.restart("agent")
            cluster.apply(service("late", namespace, selector={"app": "web"}))
            cluster.reaches(client, cluster.pods("web", namespace), cluster.vip("late", namespace))
        finally:
            cluster.api.delete_all("farm", namespace)


@pytest.mark.engines
def test_hostile_annotations_leave_every_service_working(
    cluster: Cluster, namespace: str, client: str, bystander: str
) -> None:
    # A policy that does not exist lets nobody in, as it shall.
    keys = sorted({row.short_annotation for row in rows() if row.annotated == "Service"} - {"policies"})
    chance = random.Random(1)  # noqa: S311 - the same chance in each run is wanted
    hostile = [
        service(
            f"hostile-{number}",
            namespace,
            {key: chance.choice([text for text in TEXTS if len(text) < 1000]) for key in chance.sample(keys, 4)},
            selector={"app": "web"},
        )
        for number in range(SERVICES)
    ]

    def answers(vip: str) -> bool:
        return bool(cluster.answers(client, vip, number=3))

    with undisturbed(cluster, client, bystander):
        assert create(cluster, hostile) == SERVICES
        for each in hostile:
            vip = cluster.vip(each["metadata"]["name"], namespace)
            eventually(partial(answers, vip), f"{each} works")


@pytest.mark.engines
def test_services_that_ask_for_what_cannot_be_stop_no_other(
    cluster: Cluster, namespace: str, client: str, bystander: str
) -> None:
    """Each of these has once stopped every change on every node."""
    odd = [
        service("dsr-port", namespace, {"mode": "dsr"}, type="NodePort"),
        service(
            "long-burst",
            namespace,
            {"new-rtlimit": "1/week", "new-rtlimit-burst": "1000000"},
            selector={"app": "web"},
        ),
    ]
    with undisturbed(cluster, client, bystander):
        assert create(cluster, odd) == len(odd)
        cluster.apply(service("late", namespace, selector={"app": "web"}))
        cluster.reaches(client, cluster.pods("web", namespace), cluster.vip("late", namespace))

    def told() -> str:
        return " ".join(event["message"] for event in cluster.events("Service", "long-burst", namespace))

    eventually(lambda: "raise new or lower newBurst" in told(), "its Service says what is wrong")
