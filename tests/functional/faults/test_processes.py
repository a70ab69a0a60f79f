"""Each program is killed and frozen, in random order under load: what clients notice, and that all converges."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import pytest

from tests import engine
from tests.builders.manifests import service
from tests.functional.cluster import Cluster, eventually
from tests.functional.faults import suite
from tests.functional.faults.load import PODS, Load, Web

PROGRAMS = ("agent", "nftlb", "operator", "apiserver", "etcd")
OF_A_NODE = ("agent", "nftlb")
OF_KUBERNETES = ("apiserver", "etcd")
SIGNALS = ("SIGKILL", "SIGSTOP")
ROUNDS = suite.by_form(1, 4)
WITHIN_S = 90


class Fault(NamedTuple):
    program: str
    signal: str
    seconds: float

    @property
    def felt(self) -> bool:
        """True if clients may feel it: a daemon that starts takes the rules of its farms away and adds them again."""
        return self[:2] == ("nftlb", "SIGKILL") and engine.ENGINE == "nftlb"


def faults() -> list[Fault]:
    """All of them in random order; in the short form few of Kubernetes' own programs, which take the longest."""
    chance = suite.chance()
    kinds = list(product(PROGRAMS, SIGNALS))
    if not suite.LONG:
        kept = {(program, chance.choice(SIGNALS)) for program in OF_KUBERNETES if engine.ENGINE == "nftlb"}
        kinds = [kind for kind in kinds if kind in kept or kind[0] not in OF_KUBERNETES]
    drawn = [Fault(*kind, chance.uniform(1, suite.by_form(2, 20))) for kind in kinds for _ in range(ROUNDS)]
    chance.shuffle(drawn)
    return drawn


def api_is_back(cluster: Cluster) -> None:
    eventually(
        lambda: cluster.try_kubectl("get", "nodes", "--request-timeout=2s").returncode == 0,
        "the API server answers",
        60,
    )


@contextlib.contextmanager
def suffered(cluster: Cluster, fault: Fault) -> Iterator[None]:
    """Begin the fault, and end it after the block. One that was killed is started by the lab."""
    pid = cluster.lab.pid(fault.program, cluster.nodes[0] if fault.program in OF_A_NODE else None)
    os.kill(pid, getattr(signal, fault.signal))
    began = time.monotonic()
    try:
        yield
        time.sleep(max(0.0, fault.seconds - (time.monotonic() - began)))
    finally:
        if fault.signal == "SIGSTOP":
            os.kill(pid, signal.SIGCONT)
    if fault.program in OF_KUBERNETES:
        api_is_back(cluster)
        # It would wait for up to half a minute before it looks again.
        cluster.lab.restart("controller-manager")


def converges(cluster: Cluster, web: Web, name: str) -> None:
    """A Service that was made during or after a fault is served on every node."""
    cluster.farm_has(f"{name}--http", web.namespace, PODS)
    pods, vip = cluster.pods("web", web.namespace), cluster.vip(name, web.namespace)
    for where in (web.client, *cluster.nodes):
        cluster.reaches(where, pods, vip)


def is_forgotten(cluster: Cluster, web: Web, name: str) -> None:
    cluster.delete("service", name, web.namespace)
    eventually(lambda: cluster.has_forgotten(f"{web.namespace}.{name}--"), f"every node has forgotten {name}", WITHIN_S)


def endure(cluster: Cluster, web: Web, fault: Fault, name: str) -> Load:
    """Suffer a fault under load, and change something meanwhile, or afterwards if there is nobody to tell."""
    new = service(name, web.namespace, selector={"app": "web"})
    with web.loaded() as load:
        with suffered(cluster, fault):
            if fault.program not in OF_KUBERNETES:
                cluster.apply(new)
        cluster.apply(new)
        began = time.monotonic()
        converges(cluster, web, name)
        suite.record(
            "processes", "served again after", "s", time.monotonic() - began, program=fault.program, signal=fault.signal
        )
    return load


@pytest.mark.timeout(suite.by_form(300, 3600))
def test_killed_and_frozen_programs_fail_no_connection_and_all_converges(cluster: Cluster, namespace: str) -> None:
    web = Web.start(cluster, namespace)
    before = cluster.node_farms()
    # The start-up file is written some seconds after a change at the latest.
    time.sleep(3)
    for number, fault in enumerate(faults()):
        print(fault)
        load = endure(cluster, web, fault, f"late-{number}")
        is_forgotten(cluster, web, f"late-{number}")
        print(load)
        told = {"program": fault.program, "signal": fault.signal}
        suite.record("processes", "connections", "", load.tcp, **told)
        suite.record("processes", "failed connections", "", load.tcp_failed, **told)
        suite.record("processes", "datagrams", "", load.udp, **told)
        suite.record("processes", "lost datagrams", "", load.udp_lost, **told)
        suite.record("processes", "longest gap", "ms", load.longest_gap_ms, **told)
        assert load.tcp > 50
        assert load.broken == 0, (fault, load)
        if fault.felt:
            assert load.longest_gap_ms < 5000, (fault, load)
        else:
            assert load.failed == 0, (fault, load)
    assert cluster.node_farms() == before
