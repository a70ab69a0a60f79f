"""A farm that nft refuses of nftlb, on real parts: it is named and tried again, and the others are served."""

from pathlib import Path

from tests.builders.manifests import service
from tests.functional.cluster import Cluster, eventually


def test_a_change_that_is_refused_is_told_and_tried_again_and_others_are_served(
    cluster: Cluster, namespace: str, client: str, refused: Path
) -> None:
    cluster.run("web", 2, namespace)
    cluster.apply(*(service(name, namespace, selector={"app": "web"}) for name in ("web", "other")))
    for name in ("web", "other"):
        cluster.farm_has(f"{name}--http", namespace, 2)
    web, other = (cluster.vip(name, namespace) for name in ("web", "other"))

    def programmed() -> dict[str, str]:
        return cluster.condition("farm", "web--http", "Programmed", namespace)

    refused.write_text("web--http")
    try:
        with cluster.hammer(client, other) as hammered:
            cluster.scale("web", 3, namespace)
            # nftlb has taken its rules away before it adds others.
            message = "Refused: nftlb or the kernel refused it"
            eventually(lambda: message in programmed().get("message", ""), "the farm tells it")
            cluster.farm_has("other--http", namespace, 3)
            cluster.reaches(client, cluster.pods("web", namespace), other)
            print(programmed())
            assert programmed()["status"] == "False"
    finally:
        refused.unlink()
    cluster.farm_has("web--http", namespace, 3)
    cluster.reaches(client, cluster.pods("web", namespace), web)
    print(hammered["attempts"], "attempts", hammered["failed"], hammered["longest_gap_ms"])
    assert hammered["failed"] == {}
