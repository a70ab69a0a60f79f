"""Annotations of Services and Pods → fields of farms → packets, and what is told of wrong ones."""

from functools import partial
from typing import Any

from kube_nftlb import names
from tests.annotations import NEEDED_BY, POD_KEYS, SERVICE_KEYS
from tests.builders.manifests import client_pod, service
from tests.functional.cluster import Cluster, eventually


def events(cluster: Cluster, namespace: str, kind: str, name: str) -> list[str]:
    """The messages of an object's Events about annotations, without those about nodes that lack a feature."""
    told = cluster.events(kind, name, namespace)
    # The API server tells of cluster IPs that it has just given, when its check of them comes in between.
    return [e["message"] for e in told if e["reason"] not in ("FarmFailed", "ClusterIPNotAllocated")]


def annotate(cluster: Cluster, kind: str, name: str, namespace: str, **annotations: str) -> None:
    """Set annotations of ours; one that is empty is taken away."""
    texts = {names.ANNOTATION_PREFIX + key: text or None for key, text in annotations.items()}
    cluster.api.patch(kind, name, namespace, {"metadata": {"annotations": texts}})


def overrides(cluster: Cluster, namespace: str, farm: str = "web--http") -> dict[str, dict[str, Any]]:
    """What annotations of Pods say of the farm's backends; nothing while there is no farm."""
    found = cluster.farm(farm, namespace)
    return {each["pod"]: each for each in found["spec"]["backendsFrom"][0]["overrides"]} if found else {}


def has(spec: dict[str, Any], fields: dict[str, Any]) -> bool:
    """Return True if all these fields are present, nested ones included."""
    return all(
        has(spec.get(key, {}), value) if isinstance(value, dict) else spec.get(key) == value
        for key, value in fields.items()
    )


def test_every_annotation_of_a_service_is_in_its_farm(cluster: Cluster, own_namespace: str) -> None:
    """The API server takes what the operator makes of each; tests/unit has what it makes of wrong ones."""
    cluster.apply(
        *(
            service(f"of-{key}", own_namespace, {key: text, **NEEDED_BY.get(key, {})}, selector={"app": "nobody"})
            for key, (text, _) in SERVICE_KEYS.items()
        ),
        service("of-protocol", own_namespace, {"protocol": "all"}, selector={"app": "nobody"}),
    )

    def farms() -> dict[str, dict[str, Any]]:
        return {
            each["metadata"]["name"]: each["spec"] for each in cluster.get("farm", namespace=own_namespace)["items"]
        }

    eventually(lambda: len(farms()) == len(SERVICE_KEYS) + 1, "each has its farm")
    expected = {key: fields for key, (_, fields) in SERVICE_KEYS.items()}
    expected["log"] = {**expected["log"], "logPrefix": "of-log"}
    expected["protocol"] = {"protocol": "All"}
    for key, fields in expected.items():
        assert has(farms()[f"of-{key}--http"], fields), key
        assert events(cluster, own_namespace, "Service", f"of-{key}") == []
    assert farms()["of-protocol--http"]["addresses"][0].get("ports", "") == ""


def test_every_annotation_of_a_pod_is_in_its_backend(cluster: Cluster, own_namespace: str) -> None:
    pods = [client_pod(f"of-{key}", own_namespace, cluster.nodes[0]) for key in POD_KEYS]
    for pod, (key, (text, _)) in zip(pods, POD_KEYS.items(), strict=True):
        asked = {key: text, **NEEDED_BY.get(key, {})}
        pod["metadata"]["labels"] = {"app": "web"}
        pod["metadata"]["annotations"] = {names.ANNOTATION_PREFIX + each: value for each, value in asked.items()}
    cluster.apply(service("web", own_namespace), *pods)
    eventually(lambda: len(overrides(cluster, own_namespace)) == len(POD_KEYS), "the farm has all pods")
    for key, (_, fields) in POD_KEYS.items():
        assert has(overrides(cluster, own_namespace)[f"of-{key}"], fields), key
        assert events(cluster, own_namespace, "Pod", f"of-{key}") == []


def test_weights_of_pods_decide_how_many_connections_each_gets(cluster: Cluster, namespace: str, client: str) -> None:
    cluster.apply(service("web", namespace, {"scheduler": "rr"}))
    cluster.serve("web", 2, namespace)
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


def test_a_pod_of_several_services_changes_all_of_them(cluster: Cluster, namespace: str) -> None:
    cluster.apply(service("web", namespace), service("too", namespace, selector={"app": "web"}))
    cluster.serve("web", 1, namespace)
    (pod,) = cluster.pods("web", namespace)
    for name in ("web", "too"):
        cluster.farm_has(f"{name}--http", namespace, 1)
    annotate(cluster, "pod", pod, namespace, priority="2")

    def has_priority(farm: str) -> bool:
        return bool(overrides(cluster, namespace, farm).get(pod, {}).get("priority") == 2)

    for name in ("web", "too"):
        eventually(partial(has_priority, f"{name}--http"), name)


def is_told(cluster: Cluster, namespace: str, kind: str, name: str, words: str) -> bool:
    return any(words in message for message in events(cluster, namespace, kind, name))


def test_a_wrong_annotation_of_a_pod_is_told_on_the_pod(cluster: Cluster, namespace: str, client: str) -> None:
    cluster.apply(service("web", namespace))
    cluster.serve("web", 2, namespace)
    vip, pods = cluster.vip("web", namespace), cluster.pods("web", namespace)
    annotate(cluster, "pod", pods[0], namespace, weight="1; flush ruleset", priority="2", colour="green")
    weight = "kube-nftlb-load-balancer-weight: '1; flush ruleset' is not a whole number from 1 to 100; 1 is used"
    for told in (weight, "kube-nftlb-load-balancer-colour: unknown"):
        eventually(partial(is_told, cluster, namespace, "Pod", pods[0], told), "its owner is told")
    annotate(cluster, "pod", pods[0], namespace, priority="1")
    cluster.reaches(client, pods, vip)
    assert overrides(cluster, namespace).get(pods[0], {}).get("weight", 1) == 1


def test_wrong_values_are_told_and_the_defaults_count(cluster: Cluster, namespace: str, client: str) -> None:
    cluster.serve("web", 2, namespace)
    wrong = {"scheduler": "roundrobin; flush ruleset", "colour": "green", "mark": "0xb000", "ports": "90-80"}
    cluster.apply(service("web", namespace, {**wrong, "mode": "dnat"}))
    cluster.reaches(client, cluster.pods("web", namespace), cluster.vip("web", namespace))
    for words in (
        "kube-nftlb-load-balancer-scheduler: 'roundrobin; flush ruleset' ",
        "rr, weight, hash, symhash",
        "kube-nftlb-load-balancer-colour",
        "the mark 0xb000 is not allowed; the administrator allows 0x10,0xa000",
        "lower port",
    ):
        eventually(partial(is_told, cluster, namespace, "Service", "web", words), f"it is told: {words}")
    spec = cluster.farm("web--http", namespace)["spec"]
    assert has(spec, {"scheduler": "rr", "mode": "dnat"}), "what is right is followed"
    assert "mark" not in spec
    assert spec["addresses"][0]["ports"] == "80"


def test_more_ports_are_listened_on_and_the_one_asked_for_is_kept(
    cluster: Cluster, namespace: str, client: str
) -> None:
    cluster.apply(service("web", namespace, {"ports": "8000-8001"}))
    cluster.serve("web", 2, namespace)
    vip, pods = cluster.vip("web", namespace), cluster.pods("web", namespace)
    for port in (80, 8000, 8001):
        cluster.reaches(client, pods, vip, port)
    annotate(cluster, "service", "web", namespace, ports="")
    eventually(lambda: cluster.answers(client, vip, 8000, "--timeout", "0.3", number=1) == set(), "they are closed")
    cluster.reaches(client, pods, vip, 80)


def test_more_ports_go_to_a_target_port_of_another_number(cluster: Cluster, namespace: str, client: str) -> None:
    ports = [{"name": "http", "port": 80, "targetPort": 8080}]
    cluster.apply(service("web", namespace, {"ports": "8000-8001"}, ports=ports))
    cluster.serve("web", 2, namespace)
    vip, pods = cluster.vip("web", namespace), cluster.pods("web", namespace)
    for port in (80, 8001):
        cluster.reaches(client, pods, vip, port)


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
    cluster.api.patch("farm", "web--http", namespace, {"spec": edits})
    eventually(lambda: cluster.farm("web--http", namespace)["spec"] == wanted, "all is as it was")
