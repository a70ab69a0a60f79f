"""A farm over which nftlb ends, on real parts: the others are served, and it is named."""

from pathlib import Path

from tests.builders.manifests import service
from tests.functional.cluster import Cluster, eventually
from tests.functional.features.operations.conftest import OPERATORS
from tests.functional.features.operations.deadly_nftlb import FARM as DEADLY


def ends(cluster: Cluster) -> int:
    return cluster.lab.log_path("nftlb", cluster.nodes[0]).read_text(errors="replace").count("ended over")


def knows(cluster: Cluster, farm: str) -> bool:
    """Return True if all nftlbs have a farm; False also while one is away."""
    try:
        return all(farm in cluster.nftlb(node, "GET", "/farms") for node in cluster.nodes)
    except ConnectionError:
        return False


def test_a_farm_over_which_nftlb_ends_is_named_and_all_others_are_served(
    cluster: Cluster, namespace: str, client: str
) -> None:
    node, before = cluster.nodes[0], ends(cluster)
    cluster.serve("web", 2, namespace)
    cluster.apply(service("first", namespace, selector={"app": "web"}))
    cluster.farm_has("first--http", namespace, 2)
    for operator in OPERATORS:
        cluster.lab.stop(operator)
    cluster.apply(*(service(name, namespace, selector={"app": "web"}) for name in ("deadly", "second", "third")))
    for operator in OPERATORS:
        cluster.lab.start(operator)

    def failed() -> dict[str, str]:
        status = (cluster.get("nftlbnode", node) or {}).get("status", {})
        return {each["name"]: each["reason"] for each in status.get("failedFarms", [])}

    eventually(lambda: failed().get(DEADLY) == "NftlbDefect", "the farm is named", 60)
    assert ends(cluster) == before + 2
    for name in ("first", "second", "third"):
        cluster.farm_has(f"{name}--http", namespace, 2)
        cluster.reaches(client, cluster.pods("web", namespace), cluster.vip(name, namespace))
    found = cluster.condition("farm", DEADLY, "Programmed", namespace)
    assert found["status"] == "False"
    assert "nftlb ended twice" in found["message"]
    # Others come and go, and it is left alone.
    cluster.apply(service("fourth", namespace, selector={"app": "web"}))
    cluster.farm_has("fourth--http", namespace, 2)
    assert ends(cluster) == before + 2
    assert set(failed()) == {DEADLY}


def test_a_start_up_file_over_which_nftlb_ends_is_put_aside(cluster: Cluster, namespace: str, client: str) -> None:
    node, before = cluster.nodes[0], ends(cluster)
    cluster.serve("web", 2, namespace)
    cluster.apply(service("web", namespace))
    cluster.farm_has("web--http", namespace, 2)
    file = Path(cluster.lab.environment(node)["KUBE_NFTLB_RUN_DIR"]) / "nftlb.json"
    eventually(lambda: file.exists() and "web--http" in file.read_text(), "the start-up file has the farm")
    cluster.lab.stop("nftlb", node)
    file.write_text(file.read_text().replace("web--http", DEADLY))
    cluster.lab.start("nftlb", node)
    eventually(lambda: ends(cluster) == before + 1, "nftlb ends over its start-up file")
    eventually(lambda: knows(cluster, f"{namespace}.web--http"), "nftlb has the farm again")
    cluster.reaches(client, cluster.pods("web", namespace), cluster.vip("web", namespace))
    assert DEADLY in file.with_suffix(".failed").read_text()
    eventually(lambda: file.exists() and "web--http" in file.read_text(), "there is a new start-up file")
    assert ends(cluster) == before + 1
