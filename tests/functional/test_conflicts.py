"""Two objects that claim one address, port and protocol: who wins, who is told, and what happens afterwards."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kube_nftlb import names
from tests.builders.manifests import farm, service
from tests.functional.cluster import Cluster, eventually

pytestmark = pytest.mark.timeout(180)

POLICIES = Path(__file__).parents[2] / "charts/kube-nftlb/admission"

OTHER_SERVICE = {"apiVersion": "serving.knative.dev/v1", "kind": "Service"}
CLAIMED = "10.96.77.7"
"""A cluster IP that nobody is given by chance."""


def backends(cluster: Cluster, app: str, namespace: str) -> list[dict[str, Any]]:
    pods = json.loads(cluster.kubectl("get", "pods", "-l", f"app={app}", "-n", namespace, "-o", "json"))["items"]
    return [{"name": pod["metadata"]["name"], "ip": pod["status"]["podIP"], "port": 80} for pod in pods]


def by_hand(
    cluster: Cluster, name: str, app: str, namespace: str, ip: str = CLAIMED, **metadata: Any
) -> dict[str, Any]:
    made = farm(name, namespace, addresses=[{"ip": ip, "ports": "80"}], backends=backends(cluster, app, namespace))
    return {**made, "metadata": {**made["metadata"], **metadata}}


def accepted(cluster: Cluster, name: str, namespace: str) -> tuple[str, str, str]:
    """Status, reason and message of the condition Accepted."""
    conditions = (cluster.farm(name, namespace) or {}).get("status", {}).get("conditions", [])
    found = {condition["type"]: condition for condition in conditions}.get("Accepted", {})
    return found.get("status", ""), found.get("reason", ""), found.get("message", "")


def events(cluster: Cluster, name: str, namespace: str) -> str:
    """A farm's Events as ``kubectl get events`` prints them."""
    return cluster.kubectl("get", "events", "-n", namespace, "--field-selector", f"involvedObject.name={name}")


def controlled_by(cluster: Cluster, name: str, namespace: str) -> list[dict[str, Any]]:
    """The reference that says that a Service controls an object."""
    uid = cluster.get("service", name, namespace)["metadata"]["uid"]
    return [{"apiVersion": "v1", "kind": "Service", "name": name, "uid": uid, "controller": True}]


def test_of_two_farms_by_hand_one_is_served_and_the_other_when_it_goes(
    cluster: Cluster, namespace: str, client: str
) -> None:
    for app in ("one", "two"):
        cluster.run(app, 1, namespace)
    cluster.apply(by_hand(cluster, "a-first", "one", namespace, "10.99.77.1"))
    cluster.reaches(client, cluster.pods("one", namespace), "10.99.77.1")
    cluster.apply(by_hand(cluster, "b-second", "two", namespace, "10.99.77.1"))
    message = f"{namespace}/a-first has 10.99.77.1:80/TCP; give one of the two another address or port, or delete one"
    eventually(
        lambda: accepted(cluster, "b-second", namespace) == ("False", "AddressConflict", message), "the loser says why"
    )
    eventually(lambda: message in events(cluster, "b-second", namespace), "and so does an Event")
    eventually(lambda: accepted(cluster, "a-first", namespace)[0] == "True", "the other is accepted")
    cluster.reaches(client, cluster.pods("one", namespace), "10.99.77.1")
    cluster.delete("farm", "a-first", namespace)
    cluster.reaches(client, cluster.pods("two", namespace), "10.99.77.1")
    eventually(lambda: accepted(cluster, "b-second", namespace)[0] == "True", "it is accepted now")


def test_a_service_gets_its_address_from_an_older_farm_by_hand(cluster: Cluster, namespace: str, client: str) -> None:
    for app in ("hand", "web"):
        cluster.run(app, 1, namespace)
    cluster.apply(by_hand(cluster, "squatter", "hand", namespace))
    cluster.reaches(client, cluster.pods("hand", namespace), CLAIMED)
    cluster.apply(service("web", namespace, clusterIP=CLAIMED))
    cluster.reaches(client, cluster.pods("web", namespace), CLAIMED)
    message = f"{namespace}/web--http has {CLAIMED}:80/TCP; give one of the two another address or port, or delete one"
    eventually(lambda: accepted(cluster, "squatter", namespace)[1:] == ("AddressConflict", message), "it says why")
    eventually(lambda: message in events(cluster, "squatter", namespace), "and so does an Event")
    eventually(lambda: accepted(cluster, "web--http", namespace)[0] == "True", "the Service's farm is accepted")
    cluster.delete("service", "web", namespace)
    cluster.reaches(client, cluster.pods("hand", namespace), CLAIMED)
    eventually(lambda: accepted(cluster, "squatter", namespace)[0] == "True", "it is accepted again")


def test_a_farm_of_every_port_gives_way_to_a_service(cluster: Cluster, namespace: str, client: str) -> None:
    cluster.run("web", 1, namespace)
    every = farm("every", namespace, protocol="All", addresses=[{"ip": "10.96.77.8"}], state="down")
    cluster.apply(every)
    cluster.apply(service("web", namespace, clusterIP="10.96.77.8"))
    cluster.reaches(client, cluster.pods("web", namespace), "10.96.77.8")
    eventually(lambda: accepted(cluster, "every", namespace)[1] == "AddressConflict", "it says that it lost")
    assert accepted(cluster, "every", namespace)[2].startswith(f"{namespace}/web--http has 10.96.77.8:80/TCP; give ")


def test_a_farm_that_only_claims_to_be_a_services_ranks_as_handwritten(
    cluster: Cluster, namespace: str, client: str
) -> None:
    for app in ("evil", "web"):
        cluster.run(app, 1, namespace)
    cluster.apply(service("own", namespace, selector={"app": "evil"}))
    cluster.farm_has("own--http", namespace, 1)
    owners = controlled_by(cluster, "own", namespace)
    cluster.apply(by_hand(cluster, "forged", "evil", namespace, "10.96.77.9", ownerReferences=owners))
    eventually(lambda: "ForgedOwner" in events(cluster, "forged", namespace), "it is told")
    eventually(
        lambda: (
            [each["controller"] for each in cluster.farm("forged", namespace)["metadata"]["ownerReferences"]] == [False]
        ),
        "it has no controller any more",
    )
    cluster.apply(service("web", namespace, clusterIP="10.96.77.9"))
    cluster.reaches(client, cluster.pods("web", namespace), "10.96.77.9")
    eventually(lambda: accepted(cluster, "forged", namespace)[1] == "AddressConflict", "it has lost")
    assert cluster.farm("own--http", namespace)["metadata"]["ownerReferences"][0]["controller"] is True


def gone(cluster: Cluster, name: str, namespace: str) -> bool:
    return cluster.farm(name, namespace) is None


def test_a_farm_with_forged_labels_does_not_stay(cluster: Cluster, namespace: str) -> None:
    cluster.run("web", 1, namespace)
    cluster.apply(service("own", namespace, selector={"app": "nobody"}))
    eventually(lambda: cluster.farm("own--http", namespace) is not None, "it has its farm")
    labels = {
        names.LABEL_MANAGED_BY: names.MANAGED_BY_OPERATOR,
        names.LABEL_SERVICE: "own",
        names.LABEL_SERVICE_PORT: "http",
        names.LABEL_FAMILY: "ipv4",
    }
    owners = controlled_by(cluster, "own", namespace)
    for name, port in (("forged", "http"), ("forged-too", "other")):
        forged = {**labels, names.LABEL_SERVICE_PORT: port}
        cluster.apply(by_hand(cluster, name, "web", namespace, labels=forged, ownerReferences=owners))
        eventually(partial(gone, cluster, name, namespace), f"{name} is deleted")
    assert cluster.farm("own--http", namespace)["spec"]["backendsFrom"]["service"] == "own"


def test_a_services_farm_that_is_given_another_controller_is_put_right(cluster: Cluster, namespace: str) -> None:
    cluster.apply(service("own", namespace, selector={"app": "nobody"}), service("other", namespace))
    eventually(lambda: cluster.farm("own--http", namespace) is not None, "it has its farm")
    wanted = cluster.farm("own--http", namespace)
    patch = {
        "metadata": {"ownerReferences": controlled_by(cluster, "other", namespace)},
        "spec": {"addresses": [{"ip": CLAIMED, "ports": "80"}]},
    }
    cluster.kubectl("patch", "farm", "own--http", "-n", namespace, "--type=merge", "-p", json.dumps(patch))

    def right() -> bool:
        there = cluster.farm("own--http", namespace)
        uids = [each["uid"] for each in there["metadata"]["ownerReferences"] if each.get("controller")]
        return (there["spec"], uids) == (wanted["spec"], [wanted["metadata"]["ownerReferences"][0]["uid"]])

    eventually(right, "its spec and its controller are what they were")


@pytest.fixture
def guarded(cluster: Cluster, namespace: str) -> Iterator[str]:
    """A namespace with a user "tenant" who may write farms, and the admission policy of the chart."""
    policy = "---\n".join((POLICIES / f"farm-{name}.yaml").read_text() for name in ("ownership", "deletion"))
    cluster.kubectl("apply", "-f", "-", stdin=policy)
    cluster.kubectl("create", "role", "farms", "--verb=*", "--resource=nftlbfarms.kube-nftlb.io", "-n", namespace)
    cluster.kubectl("create", "rolebinding", "farms", "--role=farms", "--user=tenant", "-n", namespace)
    try:
        yield namespace
    finally:
        cluster.kubectl("delete", "-f", "-", stdin=policy)


def test_the_admission_policy_lets_nobody_delete_a_services_farm_but_with_its_service(
    cluster: Cluster, guarded: str
) -> None:
    cluster.apply(
        service("own", guarded, selector={"app": "nobody"}),
        farm("mine", guarded, addresses=[{"ip": "10.99.77.3", "ports": "80"}]),
    )
    eventually(lambda: cluster.farm("own--http", guarded) is not None, "the operator makes a farm")

    def refused() -> bool:
        done = cluster.try_kubectl("delete", "farm", "own--http", "--as=tenant", "-n", guarded)
        return "only kube-nftlb's operator may delete it; delete the Service" in done.stderr

    eventually(refused, "a tenant may not delete it")
    cluster.kubectl("delete", "farm", "mine", "--as=tenant", "-n", guarded)
    foreign = [{**OTHER_SERVICE, "name": "own", "uid": "0b6c2ff4-0000-4000-8000-000000000000", "controller": True}]
    theirs = farm("theirs", guarded, addresses=[{"ip": "10.99.77.4", "ports": "80"}])
    theirs["metadata"]["ownerReferences"] = foreign
    made = cluster.try_kubectl("create", "--as=tenant", "-f", "-", stdin=json.dumps(theirs))
    assert made.returncode == 0, f"a Service of another API may own a farm: {made.stderr}"
    cluster.kubectl("delete", "farm", "theirs", "--as=tenant", "-n", guarded)
    cluster.kubectl("delete", "service", "own", "-n", guarded)
    eventually(lambda: cluster.farm("own--http", guarded) is None, "it is gone with its Service")


def test_the_admission_policy_lets_only_the_operator_make_a_services_farm(cluster: Cluster, guarded: str) -> None:
    cluster.apply(service("own", guarded, selector={"app": "nobody"}))
    eventually(lambda: cluster.farm("own--http", guarded) is not None, "the operator still writes farms")

    def as_tenant(**metadata: Any) -> str:
        made = farm("mine", guarded, addresses=[{"ip": "10.99.77.2", "ports": "80"}])
        text = json.dumps({**made, "metadata": {**made["metadata"], **metadata}})
        return cluster.try_kubectl("apply", "--as=tenant", "-f", "-", stdin=text).stderr

    owners = controlled_by(cluster, "own", guarded)
    labels = {names.LABEL_MANAGED_BY: names.MANAGED_BY_OPERATOR}

    def refused() -> bool:
        return "may make a Service the controller of a farm" in as_tenant(ownerReferences=owners)

    eventually(refused, "a Service as the controller is refused")
    assert "only kube-nftlb's operator may label a farm" in as_tenant(labels=labels)
    cluster.kubectl("delete", "farm", "mine", "-n", guarded, "--ignore-not-found")
    assert as_tenant() == "", "a farm written by hand is taken"
    assert "may make a Service the controller of a farm" in as_tenant(ownerReferences=owners)
    assert as_tenant(ownerReferences=[{**owners[0], "controller": False}]) == ""
    edit = cluster.try_kubectl("label", "--as=tenant", "farm", "own--http", "-n", guarded, "colour=green")
    assert edit.returncode == 0, "what the operator has said may stay in an edit of another's"

    def patched(part: dict[str, Any]) -> str:
        patch = ("patch", "--as=tenant", "farm", "own--http", "-n", guarded, "--type=merge", "-p", json.dumps(part))
        return cluster.try_kubectl(*patch).stderr

    stolen = {"addresses": [{"ip": CLAIMED, "ports": "80"}]}
    assert "only kube-nftlb's operator may change its spec; change the Service" in patched({"spec": stolen})
    assert "only kube-nftlb's operator may add finalizers" in patched({"metadata": {"finalizers": ["a.b/c"]}})
    assert "only kube-nftlb's operator may change that" in patched({"metadata": {"ownerReferences": None}})
    unlabelled = {"metadata": {"labels": {names.LABEL_MANAGED_BY: None}}}
    assert "only kube-nftlb's operator may remove the label" in patched(unlabelled)
    assert patched({"metadata": {"labels": {"colour": "red"}}}) == ""


def test_a_deleted_services_address_is_free_though_its_farm_lingers(
    cluster: Cluster, namespace: str, client: str
) -> None:
    for app in ("evil", "web"):
        cluster.run(app, 1, namespace)
    cluster.apply(service("own", namespace, selector={"app": "evil"}, clusterIP=CLAIMED))
    cluster.farm_has("own--http", namespace, 1)
    patch = json.dumps({"metadata": {"finalizers": ["example.com/kept"]}})
    cluster.kubectl("patch", "farm", "own--http", "-n", namespace, "--type=merge", "-p", patch)
    try:
        cluster.delete("service", "own", namespace)
        cluster.apply(service("web", namespace, clusterIP=CLAIMED))
        cluster.reaches(client, cluster.pods("web", namespace), CLAIMED)
        assert cluster.farm("own--http", namespace) is not None
    finally:
        patch = json.dumps({"metadata": {"finalizers": None}})
        cluster.kubectl("patch", "farm", "own--http", "-n", namespace, "--type=merge", "-p", patch)
