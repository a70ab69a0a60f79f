"""etcd is set back to an older state: what was made since is forgotten everywhere, and what is older goes on."""

from functools import partial
from pathlib import Path

from lab.lab import Lab
from lab.state import LabFiles
from tests.builders.manifests import service
from tests.functional.cluster import Cluster, eventually
from tests.functional.features.operations.conftest import OPERATORS

WITHIN_S = 60
RESTORED = "etcd was restored to an older state"


def answers(cluster: Cluster, namespace: str) -> bool:
    return cluster.try_kubectl("get", "services", "-n", namespace).returncode == 0


def refuses(cluster: Cluster, client: str, vip: str) -> bool:
    return bool(cluster.count(client, 3, vip)["failures"].get("refused") == 3)


def copy(lab: Lab, source: Path, target: Path) -> None:
    """Replace a folder by a copy of another, as the programs of the lab see them: etcd's is in memory."""
    script = 'mkdir -p "$2" && rm -rf "$2"/* && cp -a "$1"/. "$2"'
    done = lab.exec("node-1", "sh", "-c", script, "copy", str(source), str(target))
    assert done.returncode == 0, done.stderr


def test_programs_start_anew_on_an_older_state_and_traffic_goes_on(
    cluster: Cluster, namespace: str, client: str
) -> None:
    lab, files = cluster.lab, LabFiles.of(cluster.lab.name)
    backup = files.root / "backup"
    cluster.serve("web", 2, namespace)
    cluster.apply(service("web", namespace))
    cluster.farm_has("web--http", namespace, 2)
    vip = cluster.vip("web", namespace)
    lab.stop("etcd")
    copy(lab, files.etcd, backup)
    lab.start("etcd")
    eventually(partial(answers, cluster, namespace), "the API server answers", WITHIN_S)
    cluster.apply(service("late", namespace, selector={"app": "web"}))
    cluster.farm_has("late--http", namespace, 2)
    late = cluster.vip("late", namespace)
    cluster.reaches(client, cluster.pods("web", namespace), late)

    with cluster.hammer(client, vip) as hammered:
        lab.stop("apiserver")
        lab.stop("etcd")
        copy(lab, backup, files.etcd)
        lab.start("etcd")
        lab.start("apiserver")
        eventually(partial(answers, cluster, namespace), "the API server answers", WITHIN_S)
        eventually(partial(refuses, cluster, client, late), "what was made since is gone", WITHIN_S)
    assert hammered["attempts"] > 100
    assert hammered["failures"] == []
    for node in cluster.nodes:
        assert RESTORED in lab.log_path("agent", node).read_text()
    # The one that stands by has read nothing.
    assert any(RESTORED in lab.log_path(operator).read_text() for operator in OPERATORS)

    cluster.apply(service("after", namespace, selector={"app": "web"}))
    cluster.farm_has("after--http", namespace, 2)
    cluster.reaches(client, cluster.pods("web", namespace), cluster.vip("after", namespace))
