"""etcd is set back to an older state: what was made since is forgotten everywhere, and what is older goes on."""

import contextlib
import os
from functools import partial
from pathlib import Path

import pytest

from lab.lab import Lab
from lab.state import LabFiles
from tests import engine
from tests.builders.manifests import client_pod, service
from tests.functional.cluster import Cluster, eventually

pytestmark = pytest.mark.once("what is read from the API server")

NAME = f"restore-{os.getpid()}"
WITHIN_S = 60


def answers(cluster: Cluster, namespace: str) -> bool:
    return cluster.try_kubectl("get", "services", "-n", namespace).returncode == 0


def refuses(cluster: Cluster, client: str, vip: str) -> bool:
    return bool(cluster.count(client, 3, vip)["failures"].get("refused") == 3)


def copy(lab: Lab, source: Path, target: Path) -> None:
    """Replace a folder by a copy of another, as the programs of the lab see them: etcd's is in memory."""
    script = 'mkdir -p "$2" && rm -rf "$2"/* && cp -a "$1"/. "$2"'
    done = lab.exec("node-1", "sh", "-c", script, "copy", str(source), str(target))
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(240)
def test_programs_start_anew_on_an_older_state_and_traffic_goes_on() -> None:
    lab = Lab.up(NAME, nodes=1, settings={"operator": engine.OPERATOR})
    try:
        with contextlib.closing(Cluster(lab)) as cluster, cluster.namespace() as namespace:
            etcd, backup = LabFiles.of(NAME).etcd, LabFiles.of(NAME).root / "backup"
            cluster.apply(client_pod("client", namespace, "node-1"), service("web", namespace))
            client = f"{namespace}/client"
            cluster.run("web", 2, namespace)
            cluster.farm_has("web--http", namespace, 2)
            vip = cluster.vip("web", namespace)
            lab.stop("etcd")
            copy(lab, etcd, backup)
            lab.start("etcd")
            eventually(partial(answers, cluster, namespace), "the API server answers", WITHIN_S)
            cluster.apply(service("late", namespace, selector={"app": "web"}))
            cluster.farm_has("late--http", namespace, 2)
            late = cluster.vip("late", namespace)
            cluster.reaches(client, cluster.pods("web", namespace), late)

            with cluster.hammer(client, vip) as hammered:
                lab.stop("apiserver")
                lab.stop("etcd")
                copy(lab, backup, etcd)
                lab.start("etcd")
                lab.start("apiserver")
                eventually(partial(answers, cluster, namespace), "the API server answers", WITHIN_S)
                eventually(partial(refuses, cluster, client, late), "what was made since is gone", WITHIN_S)
            assert hammered["attempts"] > 100
            assert hammered["failures"] == []
            for component in ("agent", "operator"):
                log = lab.log_path(component, "node-1" if component == "agent" else None).read_text()
                assert "etcd was restored to an older state" in log

            cluster.apply(service("after", namespace, selector={"app": "web"}))
            cluster.farm_has("after--http", namespace, 2)
            cluster.reaches(client, cluster.pods("web", namespace), cluster.vip("after", namespace))
    finally:
        lab.down()
