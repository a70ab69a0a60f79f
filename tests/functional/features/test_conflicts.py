"""Two objects that claim one address, port and protocol: who wins, who is told, and what happens afterwards."""

from functools import partial
from typing import Any

from kube_nftlb import names
from tests.builders.manifests import farm, service
from tests.functional.cluster import Cluster, eventually
from tests.functional.farms import accepted, backends, service_ip, unique


def by_hand(cluster: Cluster, name: str, app: str, namespace: str, ip: str, **metadata: Any) -> dict[str, Any]:
    made = farm(name, namespace, addresses=[{"ip": ip, "ports": "80"}], backends=backends(cluster, app, namespace))
    return {**made, "metadata": {**made["metadata"], **metadata}}


def has_event(cluster: Cluster, name: str, namespace: str, words: str) -> bool:
    """Return True if a farm has an Event with these words, or for this reason."""
    found = cluster.events("NftlbFarm", name, namespace)
    return any(words == event["reason"] or words in event["message"] for event in found)


def controlled_by(cluster: Cluster, name: str, namespace: str) -> list[dict[str, Any]]:
    """The reference that says that a Service controls an object."""
    uid = cluster.get("service", name, namespace)["metadata"]["uid"]
    return [{"apiVersion": "v1", "kind": "Service", "name": name, "uid": uid, "controller": True}]


def test_of_two_farms_by_hand_one_is_served_and_the_other_when_it_goes(
    cluster: Cluster, namespace: str, client: str
) -> None:
    ip = unique()
    for app in ("one", "two"):
        cluster.serve(app, 1, namespace)
    cluster.apply(by_hand(cluster, "a-first", "one", namespace, ip))
    cluster.reaches(client, cluster.pods("one", namespace), ip)
    recoveries = cluster.recoveries()
    with cluster.hammer(client, ip) as hammered:
        cluster.apply(by_hand(cluster, "b-second", "two", namespace, ip))
        eventually(lambda: accepted(cluster, "b-second", namespace)[0] == "False", "it is not accepted")
    assert hammered["failures"] == []
    assert set(hammered["answers"]) == set(cluster.pods("one", namespace))
    assert cluster.recoveries() == recoveries, "nftlb never got it"
    message = f"{namespace}/a-first has {ip}:80/TCP; give one of the two another address or port, or delete one"
    eventually(
        lambda: accepted(cluster, "b-second", namespace) == ("False", "AddressConflict", message), "the loser says why"
    )
    eventually(lambda: has_event(cluster, "b-second", namespace, message), "and so does an Event")
    eventually(lambda: accepted(cluster, "a-first", namespace)[0] == "True", "the other is accepted")
    cluster.reaches(client, cluster.pods("one", namespace), ip)
    cluster.delete("farm", "a-first", namespace)
    cluster.reaches(client, cluster.pods("two", namespace), ip)
    eventually(lambda: accepted(cluster, "b-second", namespace)[0] == "True", "it is accepted now")


def test_a_service_gets_its_address_from_an_older_farm_by_hand(cluster: Cluster, namespace: str, client: str) -> None:
    claimed = service_ip()
    for app in ("hand", "web"):
        cluster.serve(app, 1, namespace)
    cluster.apply(by_hand(cluster, "squatter", "hand", namespace, claimed))
    cluster.reaches(client, cluster.pods("hand", namespace), claimed)
    cluster.apply(service("web", namespace, clusterIP=claimed))
    cluster.reaches(client, cluster.pods("web", namespace), claimed)
    message = f"{namespace}/web--http has {claimed}:80/TCP; give one of the two another address or port, or delete one"
    eventually(lambda: accepted(cluster, "squatter", namespace)[1:] == ("AddressConflict", message), "it says why")
    eventually(lambda: has_event(cluster, "squatter", namespace, message), "and so does an Event")
    eventually(lambda: accepted(cluster, "web--http", namespace)[0] == "True", "the Service's farm is accepted")
    cluster.delete("service", "web", namespace)
    cluster.reaches(client, cluster.pods("hand", namespace), claimed)
    eventually(lambda: accepted(cluster, "squatter", namespace)[0] == "True", "it is accepted again")


def test_a_farm_of_every_port_gives_way_to_a_service(cluster: Cluster, namespace: str, client: str) -> None:
    ip = service_ip()
    cluster.serve("web", 1, namespace)
    every = farm("every", namespace, protocol="All", addresses=[{"ip": ip}], state="down")
    cluster.apply(every)
    cluster.apply(service("web", namespace, clusterIP=ip))
    cluster.reaches(client, cluster.pods("web", namespace), ip)
    eventually(lambda: accepted(cluster, "every", namespace)[1] == "AddressConflict", "it says that it lost")
    assert accepted(cluster, "every", namespace)[2].startswith(f"{namespace}/web--http has {ip}:80/TCP; give ")


def test_a_farm_that_only_claims_to_be_a_services_ranks_as_handwritten(
    cluster: Cluster, namespace: str, client: str
) -> None:
    ip = service_ip()
    for app in ("evil", "web"):
        cluster.serve(app, 1, namespace)
    cluster.apply(service("own", namespace, selector={"app": "evil"}))
    cluster.farm_has("own--http", namespace, 1)
    owners = controlled_by(cluster, "own", namespace)
    cluster.apply(by_hand(cluster, "forged", "evil", namespace, ip, ownerReferences=owners))
    eventually(lambda: has_event(cluster, "forged", namespace, "ForgedOwner"), "it is told")
    eventually(
        lambda: (
            [each["controller"] for each in cluster.farm("forged", namespace)["metadata"]["ownerReferences"]] == [False]
        ),
        "it has no controller any more",
    )
    cluster.apply(service("web", namespace, clusterIP=ip))
    cluster.reaches(client, cluster.pods("web", namespace), ip)
    eventually(lambda: accepted(cluster, "forged", namespace)[1] == "AddressConflict", "it has lost")
    assert cluster.farm("own--http", namespace)["metadata"]["ownerReferences"][0]["controller"] is True


def gone(cluster: Cluster, name: str, namespace: str) -> bool:
    return cluster.farm(name, namespace) is None


def test_a_farm_with_forged_labels_does_not_stay(cluster: Cluster, namespace: str) -> None:
    cluster.serve("web", 1, namespace)
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
        cluster.apply(by_hand(cluster, name, "web", namespace, unique(), labels=forged, ownerReferences=owners))
        eventually(partial(gone, cluster, name, namespace), f"{name} is deleted")
    assert cluster.farm("own--http", namespace)["spec"]["backendsFrom"][0]["service"] == "own"


def test_a_services_farm_that_is_given_another_controller_is_put_right(cluster: Cluster, namespace: str) -> None:
    cluster.apply(service("own", namespace, selector={"app": "nobody"}), service("other", namespace))
    eventually(lambda: cluster.farm("own--http", namespace) is not None, "it has its farm")
    wanted = cluster.farm("own--http", namespace)
    patch = {
        "metadata": {"ownerReferences": controlled_by(cluster, "other", namespace)},
        "spec": {"addresses": [{"ip": unique(), "ports": "80"}]},
    }
    cluster.api.patch("farm", "own--http", namespace, patch)

    def right() -> bool:
        there = cluster.farm("own--http", namespace)
        uids = [each["uid"] for each in there["metadata"]["ownerReferences"] if each.get("controller")]
        return (there["spec"], uids) == (wanted["spec"], [wanted["metadata"]["ownerReferences"][0]["uid"]])

    eventually(right, "its spec and its controller are what they were")


def test_a_deleted_services_address_is_free_though_its_farm_lingers(
    cluster: Cluster, namespace: str, client: str
) -> None:
    claimed = service_ip()
    for app in ("evil", "web"):
        cluster.serve(app, 1, namespace)
    cluster.apply(service("own", namespace, selector={"app": "evil"}, clusterIP=claimed))
    cluster.farm_has("own--http", namespace, 1)
    cluster.api.patch("farm", "own--http", namespace, {"metadata": {"finalizers": ["example.com/kept"]}})
    try:
        cluster.delete("service", "own", namespace)
        cluster.apply(service("web", namespace, clusterIP=claimed))
        cluster.reaches(client, cluster.pods("web", namespace), claimed)
        assert cluster.farm("own--http", namespace) is not None
    finally:
        cluster.api.patch("farm", "own--http", namespace, {"metadata": {"finalizers": None}})
