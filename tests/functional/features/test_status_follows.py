"""The status of a farm follows its endpoints, whatever happened before."""

import json
import subprocess
import threading
import time
from functools import partial

import pytest

from tests.builders.manifests import service
from tests.functional.cluster import Cluster, eventually

pytestmark = pytest.mark.timeout(180)

_OPTIONS = {"persistence": "srcip", "sessions": "10.0.0.1=pod-a, 10.0.0.2=pod-b", "new-rtlimit": "5"}
_WITHIN_S = 3.0
"""A second on an idle machine, from an EndpointSlice that has the pods to a status that shows them as programmed."""


def test_a_status_is_right_soon_however_often_a_deployment_was_scaled(cluster: Cluster, namespace: str) -> None:
    cluster.apply(service("web", namespace))
    cluster.run("web", 2, namespace)
    for replicas in (5, 1, 4, 2, 3, 6):
        cluster.scale("web", replicas, namespace)
        eventually(partial(_has_pods, cluster, namespace, replicas), "the slices have the pods", 60)
        took_s = eventually(partial(_shows, cluster, namespace, replicas), f"{replicas} are shown", 60)
        assert took_s <= _WITHIN_S, f"{replicas} replicas"


def test_a_watch_tells_each_step_of_a_rollout_and_the_list_follows(cluster: Cluster, namespace: str) -> None:
    cluster.apply(service("web", namespace))
    cluster.run("web", 4, namespace)
    eventually(partial(_shows, cluster, namespace, 4), "all are ready")
    watch = subprocess.Popen(
        [str(cluster.lab.bin / "kubectl"), "get", "farm", "web--http", "-n", namespace, "-w", "-o", "json"],
        env={"KUBECONFIG": str(cluster.lab.kubeconfig)},
        stdout=subprocess.PIPE,
        text=True,
    )
    seen: list[tuple[str, int]] = []
    reader = threading.Thread(target=_read, args=(watch, seen), daemon=True)
    reader.start()
    try:
        eventually(lambda: bool(seen), "the watch has begun")
        pods = sorted(cluster.pods("web", namespace))
        for ready in (False, True):
            for pod in pods[:3]:
                cluster.lab.pod(ready, f"{namespace}/{pod}")
                time.sleep(2)
        eventually(lambda: seen[-1] == ("4/4", 4), "at rest the backends are listed again")
    finally:
        watch.terminate()
        reader.join(10)
        watch.wait()
        assert watch.stdout
        watch.stdout.close()
    steps = [number for at, (number, _) in enumerate(seen) if at == 0 or seen[at - 1][0] != number]
    assert steps == ["4/4", "3/4", "2/4", "1/4", "2/4", "3/4", "4/4"]


def test_a_farm_that_changes_often_is_not_tracked_and_its_service_still_decides_what_it_is(
    cluster: Cluster, namespace: str
) -> None:
    cluster.apply(service("web", namespace, _OPTIONS))
    cluster.run("web", 1, namespace)
    for replicas in (2, 1, 2, 1, 2):
        cluster.scale("web", replicas, namespace)
        eventually(partial(_shows, cluster, namespace, replicas), f"{replicas} are shown", 60)
    before = cluster.farm("web--http", namespace)
    assert not before["metadata"].get("managedFields")
    assert len(before["spec"]["sessions"]) == 2
    # The API server rejects sessions without persistence: these must go with it.
    cluster.apply(service("web", namespace))
    eventually(lambda: not cluster.farm("web--http", namespace)["spec"].get("sessions"), "it has no sessions")
    without = cluster.farm("web--http", namespace)["spec"]
    assert (without["persistence"], without["limits"].get("new")) == ("none", None)
    cluster.apply(service("web", namespace, _OPTIONS))
    eventually(lambda: cluster.farm("web--http", namespace)["spec"] == before["spec"], "it is as it was")
    cluster.apply(service("web", namespace))
    eventually(lambda: cluster.farm("web--http", namespace)["spec"] == without, "it has none of them")


def _has_pods(cluster: Cluster, namespace: str, number: int) -> bool:
    slices = cluster.get("endpointslice", namespace=namespace, labelSelector="kubernetes.io/service-name=web")["items"]
    endpoints = [each for item in slices for each in item.get("endpoints") or ()]
    # Those that terminate are of the total, too.
    return len(endpoints) == number and all(each["conditions"].get("ready") for each in endpoints)


def _shows(cluster: Cluster, namespace: str, number: int) -> bool:
    status = cluster.farm("web--http", namespace).get("status", {})
    conditions = {each["type"]: each["status"] for each in status.get("conditions", ())}
    return status.get("backendsReady") == f"{number}/{number}" and conditions.get("EndpointsProgrammed") == "True"


def _read(watch: "subprocess.Popen[str]", seen: list[tuple[str, int]]) -> None:
    """Note the number of ready backends, and of those listed, in each state that a watch prints."""
    text = ""
    for line in watch.stdout or ():
        text += line
        if line == "}\n":
            status, text = json.loads(text)["status"], ""
            seen.append((status["backendsReady"], len(status.get("backends", ()))))
