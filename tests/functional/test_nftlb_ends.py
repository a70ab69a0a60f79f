"""A farm over which nftlb ends, on real parts: the others are served, and it is named."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import build
from lab.programs import cache_folder
from tests.builders.manifests import client_pod, service
from tests.functional import deadly_nftlb
from tests.functional.cluster import Cluster, eventually, running

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.engine("nftlb", "the engine nftables has no daemon"),
]

DEADLY = "deadly--http"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A node whose nftlb ends over the farm DEADLY."""
    program = build.nftlb(cache_folder(), print)
    made = deadly_nftlb.folder(tmp_path_factory.mktemp("bin") / "deadly", str(program))
    settings = {"nftlb": {"PATH": f"{made}:{os.environ['PATH']}", "KUBE_NFTLB_TEST_DEADLY": DEADLY}}
    with running("functional-ends", nodes=1, settings=settings) as cluster:
        yield cluster


def ends(cluster: Cluster) -> int:
    return cluster.lab.log_path("nftlb", cluster.nodes[0]).read_text(errors="replace").count("ended over")


def known(cluster: Cluster) -> list[str]:
    """The farms that nftlb has; none while it is away."""
    try:
        return cluster.node_farms()
    except ConnectionError:
        return []


def test_a_farm_over_which_nftlb_ends_is_named_and_all_others_are_served(cluster: Cluster, namespace: str) -> None:
    node = cluster.nodes[0]
    cluster.apply(client_pod("client", namespace, node))
    cluster.run("web", 2, namespace)
    cluster.wait("pod", "client", "Ready", namespace)
    client = f"{namespace}/client"
    cluster.apply(service("first", namespace, selector={"app": "web"}))
    cluster.farm_has("first--http", namespace, 2)
    cluster.lab.stop("operator")
    cluster.apply(*(service(name, namespace, selector={"app": "web"}) for name in ("deadly", "second", "third")))
    cluster.lab.start("operator")

    def failed() -> dict[str, str]:
        status = (cluster.get("nftlbnode", node) or {}).get("status", {})
        return {each["name"]: each["reason"] for each in status.get("failedFarms", [])}

    eventually(lambda: failed().get(DEADLY) == "NftlbDefect", "the farm is named", 30)
    assert ends(cluster) == 2
    for name in ("first", "second", "third"):
        cluster.farm_has(f"{name}--http", namespace, 2)
        cluster.reaches(client, cluster.pods("web", namespace), cluster.vip(name, namespace))
    conditions = {each["type"]: each for each in cluster.farm(DEADLY, namespace)["status"]["conditions"]}
    assert conditions["Programmed"]["status"] == "False"
    assert "nftlb ended twice" in conditions["Programmed"]["message"]
    # Others come and go, and it is left alone.
    cluster.apply(service("fourth", namespace, selector={"app": "web"}))
    cluster.farm_has("fourth--http", namespace, 2)
    assert ends(cluster) == 2
    assert set(failed()) == {DEADLY}


def test_a_start_up_file_over_which_nftlb_ends_is_put_aside(cluster: Cluster, namespace: str) -> None:
    node = cluster.nodes[0]
    cluster.apply(client_pod("client", namespace, node))
    cluster.run("web", 2, namespace)
    cluster.wait("pod", "client", "Ready", namespace)
    cluster.apply(service("web", namespace))
    cluster.farm_has("web--http", namespace, 2)
    file = Path(cluster.lab.environment(node)["KUBE_NFTLB_RUN_DIR"]) / "nftlb.json"
    eventually(lambda: file.exists() and "web--http" in file.read_text(), "the start-up file has the farm")
    before = ends(cluster)
    cluster.lab.stop("nftlb")
    file.write_text(file.read_text().replace("web--http", DEADLY))
    cluster.lab.start("nftlb")
    eventually(lambda: ends(cluster) == before + 1, "nftlb ends over its start-up file")
    eventually(lambda: f"{namespace}.web--http" in known(cluster), "nftlb has the farm again")
    cluster.reaches(f"{namespace}/client", cluster.pods("web", namespace), cluster.vip("web", namespace))
    assert DEADLY in file.with_suffix(".failed").read_text()
    eventually(lambda: file.exists() and "web--http" in file.read_text(), "there is a new start-up file")
    assert ends(cluster) == before + 1
