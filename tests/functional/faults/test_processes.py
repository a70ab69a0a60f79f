"""Each program is killed and frozen, under load of both engines: what clients notice, and that all converges."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any, NamedTuple

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

    def is_felt_by(self, web: Web) -> bool:
        """True if clients may feel it: a daemon that starts takes the rules of its farms away and adds them again."""
        return self[:2] == ("nftlb", "SIGKILL") and web.name == "web-nftlb"


def faults() -> list[Fault]:
    """All of them in random order."""
    chance = suite.chance()
    kinds = list(product(PROGRAMS, SIGNALS))
    drawn = [Fault(*kind, chance.uniform(1, suite.by_form(2, 20))) for kind in kinds for _ in range(ROUNDS)]
    chance.shuffle(drawn)
    return drawn


def api_is_back(cluster: Cluster) -> None:
    eventually(
        lambda: cluster.try_kubectl("get", "nodes", "--request-timeout=2s").returncode == 0,
        "the API server answers",
        60,
    )


def creates(cluster: Cluster, services: list[dict[str, Any]]) -> bool:
    """Create Services, if the API server can: for a while after its start it may say of cluster IPs "range is full"."""
    try:
        cluster.apply(*services)
    except AssertionError as error:
        if "range is full" not in str(error):
            raise
        return False
    return True


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


def converges(web: Web, name: str) -> None:
    """A Service that was made during or after a fault is served on every node."""
    cluster = web.cluster
    cluster.farm_has(f"{name}--http", web.namespace, PODS)
    pods, vip = cluster.pods("web", web.namespace), cluster.vip(name, web.namespace)
    for where in (web.client, *cluster.nodes):
        cluster.reaches(where, pods, vip)


def endure(cluster: Cluster, webs: list[Web], fault: Fault, name: str) -> None:
    """Suffer a fault under load of all engines, and change something meanwhile, or afterwards if nobody can be told."""
    print(fault)
    names = [f"{name}-{by}" for by in engine.BOTH]
    new = [
        service(each, web.namespace, {"engine": by}, selector={"app": "web"})
        for each, by, web in zip(names, engine.BOTH, webs, strict=True)
    ]
    served: list[float] = []
    with contextlib.ExitStack() as stack:
        loads = [stack.enter_context(web.loaded()) for web in webs]
        with suffered(cluster, fault):
            if fault.program not in OF_KUBERNETES:
                cluster.apply(*new)
        eventually(partial(creates, cluster, new), "the API server has cluster IPs", WITHIN_S)
        began = time.monotonic()
        for each, web in zip(names, webs, strict=True):
            converges(web, each)
            served.append(time.monotonic() - began)
    for each, web in zip(names, webs, strict=True):
        cluster.delete("service", each, web.namespace)
        forgotten = partial(cluster.has_forgotten, f"{web.namespace}.{each}--")
        eventually(forgotten, f"every node has forgotten {each}", WITHIN_S)
    for web, load, after, by in zip(webs, loads, served, engine.BOTH, strict=True):
        print(by, load)
        note(fault, by, load, after)
        assert load.tcp > 50
        assert load.broken == 0, (fault, load)
        if fault.is_felt_by(web):
            assert load.longest_gap_ms < 5000, (fault, load)
        else:
            assert load.failed == 0, (fault, load)


def note(fault: Fault, by: str, load: Load, served_after_s: float) -> None:
    """Record what the clients of an engine felt."""
    for metric, unit, value in (
        ("served again after", "s", served_after_s),
        ("connections", "", load.tcp),
        ("failed connections", "", load.tcp_failed),
        ("datagrams", "", load.udp),
        ("lost datagrams", "", load.udp_lost),
        ("longest gap", "ms", load.longest_gap_ms),
    ):
        suite.record_of(by, "processes", metric, unit, value, program=fault.program, signal=fault.signal)


@pytest.fixture
def webs(cluster: Cluster, own_namespace: str) -> list[Web]:
    """A Service of each engine, before the same pods."""
    return [Web.start(cluster, own_namespace, by) for by in engine.BOTH]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_killed_program_fails_no_connection_and_all_converges(
    cluster: Cluster, webs: list[Web], program: str
) -> None:
    before = cluster.node_farms()
    if program == "nftlb":
        # The start-up file is written some seconds after a change at the latest.
        time.sleep(3)
    endure(cluster, webs, Fault(program, "SIGKILL", 1), "late")
    assert cluster.node_farms() == before


@pytest.mark.long
@pytest.mark.timeout(suite.by_form(600, 3600))
def test_killed_and_frozen_programs_in_random_order_fail_no_connection(cluster: Cluster, webs: list[Web]) -> None:
    before = cluster.node_farms()
    time.sleep(3)
    for number, fault in enumerate(faults()):
        endure(cluster, webs, fault, f"late-{number}")
    assert cluster.node_farms() == before
