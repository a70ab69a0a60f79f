"""Annotations of Services and Pods → fields of farms → packets, and what is told of wrong ones."""

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from kube_nftlb import names
from tests.annotations import NEEDED_BY, POD_KEYS, SERVICE_KEYS
from tests.builders.manifests import service
from tests.functional.cluster import Cluster, eventually

pytestmark = pytest.mark.timeout(180)


def events(cluster: Cluster, namespace: str, kind: str, name: str) -> list[str]:
    """The messages of an object's Events about annotations, without those about nodes that lack a feature."""
    told = cluster.events(kind, name, namespace)
    # The API server tells of cluster IPs that it has just given, when its check of them comes in between.
    return [e["message"] for e in told if e["reason"] not in ("FarmFailed", "ClusterIPNotAllocated")]


def annotate(cluster: Cluster, kind: str, name: str, namespace: str, **annotations: str) -> None:
    """Set annotations of ours; one that is empty is taken away. The keys have underscores for dashes."""
    texts = [
        f"{names.ANNOTATION_PREFIX}{key.replace('_', '-')}{f'={text}' if text else '-'}"
        for key, text in annotations.items()
    ]
    cluster.kubectl("annotate", kind, name, "-n", namespace, "--overwrite", *texts)


def overrides(cluster: Cluster, namespace: str, farm: str = "web--http") -> dict[str, dict[str, Any]]:
    return {each["pod"]: each for each in cluster.farm(farm, namespace)["spec"]["backendsFrom"]["overrides"]}


def has(spec: dict[str, Any], fields: dict[str, Any]) -> bool:
    """Return True if all these fields are present, nested ones included."""
    return all(
        has(spec.get(key, {}), value) if isinstance(value, dict) else spec.get(key) == value
        for key, value in fields.items()
    )


@pytest.fixture(scope="module")
def annotated(cluster: Cluster) -> Iterator[str]:
    """A namespace with a Service for each key."""
    with cluster.namespace() as namespace:
        cluster.apply(
            *(
                service(f"of-{key}", namespace, {key: text, **NEEDED_BY.get(key, {})}, selector={"app": "nobody"})
                for key, (text, _) in SERVICE_KEYS.items()
            )
        )
        yield namespace


@pytest.mark.parametrize("key", SERVICE_KEYS)
def test_every_annotation_of_a_service_is_in_its_farm(cluster: Cluster, annotated: str, key: str) -> None:
    fields = SERVICE_KEYS[key][1]
    if "logPrefix" in fields and key == "log":
        fields = {**fields, "logPrefix": "of-log"}
    eventually(lambda: cluster.farm(f"of-{key}--http", annotated) is not None, "its farm is there")
    assert has(cluster.farm(f"of-{key}--http", annotated)["spec"], fields)
    assert events(cluster, annotated, "Service", f"of-{key}") == []


@pytest.fixture(scope="module")
def annotated_pods(cluster: Cluster) -> Iterator[str]:
    """A namespace with a Service of a pod for each key."""
    with cluster.namespace() as namespace:
        cluster.apply(service("web", namespace))
        cluster.apply(
            *(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {
                        "name": f"of-{key}",
                        "namespace": namespace,
                        "labels": {"app": "web"},
                        "annotations": {
                            names.ANNOTATION_PREFIX + each: value
                            for each, value in {key: text, **NEEDED_BY.get(key, {})}.items()
                        },
                    },
                    "spec": {
                        "terminationGracePeriodSeconds": 0,
                        "containers": [{"name": "server", "image": "server"}],
                    },
                }
                for key, (text, _) in POD_KEYS.items()
            )
        )
        eventually(lambda: len(overrides(cluster, namespace)) == len(POD_KEYS), "the farm has all pods", 60)
        yield namespace


@pytest.mark.parametrize("key", POD_KEYS)
def test_every_annotation_of_a_pod_is_in_its_backend(cluster: Cluster, annotated_pods: str, key: str) -> None:
    eventually(
        lambda: has(overrides(cluster, annotated_pods)[f"of-{key}"], POD_KEYS[key][1]), "the backend has what is asked"
    )
    assert events(cluster, annotated_pods, "Pod", f"of-{key}") == []


def test_weights_of_pods_decide_how_many_connections_each_gets(cluster: Cluster, namespace: str, client: str) -> None:
    cluster.apply(service("web", namespace, {"scheduler": "rr"}))
    cluster.run("web", 2, namespace)
    vip, (heavy, light) = cluster.vip("web", namespace), cluster.pods("web", namespace)
    cluster.reaches(client, [heavy, light], vip)
    annotate(cluster, "pod", heavy, namespace, weight="3")
    eventually(
        lambda: cluster.count(client, 80, vip)["answers"] == {heavy: 60, light: 20}, "three of four are the heavy one's"
    )
    annotate(cluster, "pod", heavy, namespace, weight="")
    eventually(
        lambda: cluster.count(client, 80, vip)["answers"] == {heavy: 40, light: 40}, "without it both get the same"
    )


def test_a_restarted_operator_does_not_forget_what_pods_ask_for(cluster: Cluster, namespace: str) -> None:
    cluster.apply(service("web", namespace))
    cluster.run("web", 2, namespace)
    (first, _) = cluster.pods("web", namespace)
    annotate(cluster, "pod", first, namespace, weight="5")
    eventually(lambda: overrides(cluster, namespace).get(first, {}).get("weight") == 5, "it has its weight")
    before = cluster.farm("web--http", namespace)["metadata"]["generation"]
    cluster.lab.restart("operator")
    annotate(cluster, "pod", first, namespace, weight="6")
    eventually(lambda: overrides(cluster, namespace)[first]["weight"] == 6, "the new operator follows the pods")
    assert cluster.farm("web--http", namespace)["metadata"]["generation"] == before + 1, "and changed nothing before"


def test_a_pod_of_several_services_changes_all_of_them(cluster: Cluster, namespace: str) -> None:
    cluster.apply(service("web", namespace), service("too", namespace, selector={"app": "web"}))
    cluster.run("web", 1, namespace)
    (pod,) = cluster.pods("web", namespace)
    for name in ("web", "too"):
        cluster.farm_has(f"{name}--http", namespace, 1)
    annotate(cluster, "pod", pod, namespace, priority="2")

    def has_priority(farm: str) -> bool:
        return bool(overrides(cluster, namespace, farm).get(pod, {}).get("priority") == 2)

    for name in ("web", "too"):
        eventually(partial(has_priority, f"{name}--http"), name)


def test_a_wrong_annotation_of_a_pod_is_told_on_the_pod(cluster: Cluster, namespace: str, client: str) -> None:
    cluster.apply(service("web", namespace))
    cluster.run("web", 2, namespace)
    vip, pods = cluster.vip("web", namespace), cluster.pods("web", namespace)
    annotate(cluster, "pod", pods[0], namespace, weight="1; flush ruleset", priority="2", colour="green")
    eventually(lambda: len(events(cluster, namespace, "Pod", pods[0])) == 2, "both mistakes are told")
    told = " ".join(events(cluster, namespace, "Pod", pods[0]))
    assert "kube-nftlb-load-balancer-weight: '1; flush ruleset' is not a whole number from 1 to 100; 1 is used" in told
    assert "kube-nftlb-load-balancer-colour: unknown" in told
    annotate(cluster, "pod", pods[0], namespace, priority="1")
    cluster.reaches(client, pods, vip)
    assert overrides(cluster, namespace).get(pods[0], {}).get("weight", 1) == 1


@pytest.mark.parametrize(
    ("key", "value", "words", "default"),
    [
        ("mode", "tunnel", "snat, dnat", {"mode": "snat"}),
        ("log-prefix", 'x" drop', "letters, digits", {}),
        ("new-rtlimit", "many", "100/second", {}),
        ("persist-ttl", "0", "from 1 to 86400", {"persistTTL": 60}),
        ("sched-param", "srcip", "scheduler hash", {"schedParam": "none"}),
        ("sessions", "10.0.0.1=a", "persistence", {"sessions": []}),
        ("source-addr", "fd00::9", "no family", {}),
        ("ports", "90-80", "lower port", {}),
        ("protocol", "udp", "not all", {"protocol": "TCP"}),
        ("mark", "0xb000", "the mark 0xb000 is not allowed; the administrator allows 0x10,0xa000", {}),
        ("queue", "4", "the queue 4 is not allowed; the administrator allows 0-3", {}),
    ],
)
def test_a_wrong_value_is_told_and_the_default_counts(
    cluster: Cluster, annotated: str, key: str, value: str, words: str, default: dict[str, Any]
) -> None:
    name = f"wrong-{key}"
    cluster.apply(service(name, annotated, {key: value, "priority": "2"}, selector={"app": "nobody"}))
    eventually(lambda: len(events(cluster, annotated, "Service", name)) == 1, "it is told")
    (told,) = events(cluster, annotated, "Service", name)
    assert f"kube-nftlb-load-balancer-{key}: " in told
    assert words in told
    spec = cluster.farm(f"{name}--http", annotated)["spec"]
    assert has(spec, {**default, "priority": 2}), "what is right is followed"
    assert not {"logPrefix", "sourceAddress", "mark", "queue"} & spec.keys()
    assert spec["addresses"][0]["ports"] == "80"


def test_an_option_of_one_family_leaves_the_other_family_alone(cluster: Cluster, annotated: str) -> None:
    dual = {"ipFamilyPolicy": "RequireDualStack", "selector": {"app": "nobody"}}
    annotations = {"source-addr": "10.0.0.9, fd00::9", "scheduler": "hash", "persistence": "srcip srcport"}
    cluster.apply(service("dual", annotated, annotations, **dual))
    eventually(lambda: len(events(cluster, annotated, "Service", "dual")) == 1, "what IPv6 cannot have is told")
    four, six = (cluster.farm(name, annotated)["spec"] for name in ("dual--http", "dual--http--ipv6"))
    assert (four["sourceAddress"], four["persistence"]) == ("10.0.0.9", "srcip srcport")
    assert (six["sourceAddress"], six["persistence"]) == ("fd00::9", "none")


def test_more_ports_are_listened_on_and_the_one_asked_for_is_kept(
    cluster: Cluster, namespace: str, client: str
) -> None:
    ports = [{"containerPort": port} for port in (80, 8000, 8001)]
    cluster.apply(service("web", namespace, {"ports": "8000-8001"}))
    cluster.run("web", 2, namespace, ports=ports)
    vip, pods = cluster.vip("web", namespace), cluster.pods("web", namespace)
    for port in (80, 8000, 8001):
        cluster.reaches(client, pods, vip, port)
    annotate(cluster, "service", "web", namespace, ports="")
    eventually(lambda: cluster.answers(client, vip, 8000, "--timeout", "0.3", number=1) == set(), "they are closed")
    cluster.reaches(client, pods, vip, 80)


def test_more_ports_go_to_a_target_port_of_another_number(cluster: Cluster, namespace: str, client: str) -> None:
    ports = [{"name": "http", "port": 80, "targetPort": 8080}]
    cluster.apply(service("web", namespace, {"ports": "8000-8001"}, ports=ports))
    cluster.run("web", 2, namespace, ports=[{"containerPort": 8080}])
    vip, pods = cluster.vip("web", namespace), cluster.pods("web", namespace)
    for port in (80, 8001):
        cluster.reaches(client, pods, vip, port)


def test_all_ports_and_protocols_make_one_farm(cluster: Cluster, annotated: str) -> None:
    cluster.apply(service("every", annotated, {"protocol": "all"}, selector={"app": "nobody"}))
    eventually(lambda: cluster.farm("every--http", annotated) is not None, "its farm is there")
    spec = cluster.farm("every--http", annotated)["spec"]
    assert (spec["protocol"], [address.get("ports", "") for address in spec["addresses"]]) == ("All", [""])
    assert events(cluster, annotated, "Service", "every") == []


def test_an_edit_of_any_field_of_a_services_farm_is_undone(cluster: Cluster, namespace: str) -> None:
    cluster.apply(service("web", namespace, {"new-rtlimit": "100"}, selector={"app": "nobody"}))
    eventually(lambda: cluster.farm("web--http", namespace) is not None, "its farm is there")
    wanted = cluster.farm("web--http", namespace)["spec"]
    edits = {
        "logPrefix": "mine",
        "queue": 3,
        "policies": ["p"],
        "mode": "dnat",
        "limits": {"established": 5, "new": "1/day"},
    }
    cluster.kubectl("patch", "farm", "web--http", "-n", namespace, "--type=merge", "-p", json.dumps({"spec": edits}))
    eventually(lambda: cluster.farm("web--http", namespace)["spec"] == wanted, "all is as it was")
