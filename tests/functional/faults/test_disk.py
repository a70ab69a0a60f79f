"""The disk with the state of agent and nftlb is full: traffic and changes go on, and it is said where people look."""

import contextlib
import os
import signal
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests import engine
from tests.builders.manifests import service
from tests.functional.cluster import Cluster, eventually
from tests.functional.faults import suite
from tests.functional.faults.conftest import STATE
from tests.functional.faults.load import PODS, Web

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

SIZE = "256k"
FILE = {"nftlb": "nftlb.json", "nftables": "nftables.json"}[engine.DEFAULT]


def in_lab(cluster: Cluster, *command: str) -> str:
    done = cluster.lab.exec(cluster.nodes[0], *command)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextlib.contextmanager
def small_disk(cluster: Cluster) -> Iterator[None]:
    in_lab(cluster, "mkdir", "-p", STATE)
    in_lab(cluster, "mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=0700", "tmpfs", STATE)
    try:
        yield
    finally:
        in_lab(cluster, "umount", STATE)


def fill(cluster: Cluster) -> None:
    cluster.lab.exec(cluster.nodes[0], "dd", "if=/dev/zero", f"of={STATE}/filler", "bs=4k")
    in_lab(cluster, "sh", "-c", f"! echo more >{STATE}/more")


def saved(cluster: Cluster) -> str:
    return cluster.lab.exec(cluster.nodes[0], "cat", f"{STATE}/{FILE}").stdout


def status(cluster: Cluster) -> Any:
    return cluster.get("nftlbnode", cluster.nodes[0])["status"]


def serve(web: Web, name: str) -> None:
    """Make one more Service, and wait until it is served."""
    cluster, namespace = web.cluster, web.namespace
    cluster.apply(service(name, namespace, selector={"app": "web"}))
    cluster.farm_has(f"{name}--http", namespace, PODS)
    cluster.reaches(web.client, cluster.pods("web", namespace), cluster.vip(name, namespace))


def test_a_full_disk_stops_no_change_and_no_traffic(small: Cluster, small_web: Web) -> None:
    node, namespace = small.nodes[0], small_web.namespace

    def has(name: str) -> bool:
        return f"{namespace}.{name}--http" in saved(small)

    with small_disk(small):
        serve(small_web, "early")
        eventually(partial(has, "early"), "the state is saved")
        fill(small)
        with small_web.loaded() as load:
            serve(small_web, "late")
            eventually(lambda: "No space left on device" in status(small)["lastError"], "the node says why")
            assert not has("late")
            os.kill(small.lab.pid("agent", node), signal.SIGKILL)
            serve(small_web, "later")
        assert load.failed == 0, load
        suite.record("disk", "failed connections", "", load.failed)
        os.kill(small.lab.pid("nftlb", node), signal.SIGKILL)
        # It starts with the farms of its file, and gets the others from the agent.
        for name in ("early", "late", "later"):
            vip = small.vip(name, namespace)
            small.reaches(small_web.client, small.pods("web", namespace), vip)
        serve(small_web, "latest")
        in_lab(small, "rm", f"{STATE}/filler")
        # It is written with the next change.
        serve(small_web, "last")
        for name in ("early", "late", "later", "latest", "last"):
            eventually(partial(has, name), f"{name} is saved")
