"""CustomResourceDefinitions that are newer than the agents: what these do not know, they name."""

import contextlib
import copy
import itertools
from collections.abc import Iterator
from typing import Any

from tests.builders.manifests import farm
from tests.functional.cluster import Cluster, eventually
from tests.functional.farms import backends, unique

CRD = "nftlbfarms.kube-nftlb.io"
TEXT = {"type": "string"}


@contextlib.contextmanager
def newer(cluster: Cluster) -> Iterator[None]:
    """The definition of farms has a field ``colour``, of farms and of their addresses."""
    versions = cluster.get("crd", CRD)["spec"]["versions"]
    changed = copy.deepcopy(versions)
    spec = changed[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    spec["colour"] = TEXT
    spec["addresses"]["items"]["properties"]["colour"] = TEXT
    cluster.api.patch("crd", CRD, "", {"spec": {"versions": changed}})
    try:
        yield
    finally:
        cluster.api.patch("crd", CRD, "", {"spec": {"versions": versions}})


def test_a_field_that_the_agents_do_not_know_is_named(cluster: Cluster, namespace: str, client: str) -> None:
    node = cluster.nodes[0]
    cluster.serve("web", 1, namespace)
    (pod,) = cluster.pods("web", namespace)
    behind, vip, other = backends(cluster, "web", namespace), unique(), unique()

    def put(name: str, **spec: Any) -> bool:
        """Return False while the API server does not know the field."""
        try:
            cluster.apply(farm(name, namespace, backends=behind, **spec))
        except AssertionError:
            return False
        return "colour" in str(cluster.farm(name, namespace)["spec"])

    def reported(name: str, where: str) -> str:
        listed = cluster.get("nftlbnode", node)["status"].get(where, [])
        return next((f"{each['reason']} {each['message']}" for each in listed if each["name"] == name), "")

    with newer(cluster):
        address = {"ip": vip, "ports": "80"}
        eventually(lambda: put("served", addresses=[address], colour="green"), "there is such a field", 30)
        # The API server's watches of before the change leave the field out; a later generation comes by a new one,
        # which begins within a minute, or with a new agent.
        cluster.lab.restart("agent", node)
        numbers = itertools.count()

        def is_named() -> bool:
            put("served", addresses=[address], colour=f"green {next(numbers)}")
            return reported("served", "warnings").startswith("NoEffect spec.colour: this agent")

        eventually(is_named, "it is named", 60)
        cluster.reaches(client, [pod], vip)
        assert put("waits", addresses=[{"ip": other, "ports": "80", "colour": "green"}])
        eventually(
            lambda: reported("waits", "failedFarms").startswith("Invalid spec.addresses[0].colour: this agent"),
            "this one is not served",
        )
        assert not cluster.answers(client, other, 80, "--timeout", "0.3", number=2)
        for name in ("served", "waits"):
            cluster.delete("farm", name, namespace)
        eventually(lambda: not cluster.get("farm", namespace=namespace)["items"], "the farms are gone")
