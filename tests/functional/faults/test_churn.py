"""Endpoints change a thousand times a second, and Services come and go all day: nobody else notices, nothing grows."""

import contextlib
import difflib
import random
import threading
import time
from collections.abc import Iterator
from functools import partial
from operator import le
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from benchmarks.processes import usage
from tests.builders.manifests import endpoint_slice, service
from tests.functional.api import Api
from tests.functional.cluster import Cluster, eventually
from tests.functional.faults import suite
from tests.functional.faults.load import PODS, Web

pytestmark = pytest.mark.long

WRITES = suite.by_form(200, 1200)
WRITES_PER_S, CHANGES_PER_WRITE = 40, 25
SLICES, ENDPOINTS = 4, 50
FRESH_WITHIN_S = 30

ROUNDS = suite.by_form(3, 60)
WARM_UP = suite.by_form(1, 6)
SERVICES = suite.by_form(3, 5)
PROGRAMS = ("agent", "nftlb", "operator")
MORE_MB = suite.by_form(15, 30)
MORE_FILES = 8
"""Connections to the API server that are kept for the next request."""


class Storm:
    """Changes the endpoints of one Service, as fast as the API server takes it, up to 1,000 endpoints a second."""

    def __init__(self, cluster: Cluster, namespace: str, chance: random.Random) -> None:
        self._api = Api(cluster.lab.kubeconfig)
        self._namespace = namespace
        self._chance = chance
        self.ready = [[True] * ENDPOINTS for _ in range(SLICES)]

    def write(self, number: int) -> None:
        """Write one slice."""
        endpoints = [(f"10.250.{number}.{index + 1}", ready) for index, ready in enumerate(self.ready[number])]
        self._api.apply(endpoint_slice(f"storm-{number}", self._namespace, "storm", *endpoints))

    def rage(self) -> None:
        """Write as often as is wanted, as fast as the API server takes it: which is slower on a slow machine."""
        began = time.monotonic()
        for count in range(WRITES):
            time.sleep(max(0.0, count / WRITES_PER_S - (time.monotonic() - began)))
            number = count % SLICES
            for index in self._chance.sample(range(ENDPOINTS), CHANGES_PER_WRITE):
                self.ready[number][index] = not self.ready[number][index]
            self.write(number)

    def close(self) -> None:
        self._api.close()


@contextlib.contextmanager
def raging(storm: Storm) -> Iterator[None]:
    thread = threading.Thread(target=storm.rage)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@pytest.mark.timeout(suite.by_form(240, 600))
def test_a_storm_of_endpoint_changes_fails_no_connection_and_delays_no_other_service(
    cluster: Cluster, web: Web
) -> None:
    namespace = web.namespace
    with contextlib.closing(Storm(cluster, namespace, suite.chance())) as storm:
        for number in range(SLICES):
            storm.write(number)
        cluster.apply(service("storm", namespace, selector=None))
        cluster.farm_has("storm--http", namespace, SLICES * ENDPOINTS)
        pods = cluster.pods("web", namespace)
        with web.loaded() as load:
            began = time.monotonic()
            with raging(storm):
                time.sleep(1)
                fresh = time.monotonic()
                cluster.apply(service("fresh", namespace, selector={"app": "web"}))
                vip = cluster.vip("fresh", namespace)
                eventually(
                    lambda: cluster.answers(web.client, vip, number=4) == set(pods), "it answers", FRESH_WITHIN_S
                )
                suite.record(
                    "storm", "a new Service meanwhile", "s", time.monotonic() - fresh, seconds=WRITES // WRITES_PER_S
                )
            seconds = time.monotonic() - began
            ended = time.monotonic()
            cluster.farm_has("storm--http", namespace, sum(map(sum, storm.ready)))
            suite.record(
                "storm",
                "all nodes have the last change after",
                "s",
                time.monotonic() - ended,
                seconds=WRITES // WRITES_PER_S,
            )
        rate = WRITES * CHANGES_PER_WRITE / seconds
        print(f"{rate:.0f} endpoint changes a second for {seconds:.1f} s", load)
        suite.record("storm", "endpoint changes", "1/s", rate, seconds=WRITES // WRITES_PER_S)
        suite.record("storm", "failed connections", "", load.failed, seconds=WRITES // WRITES_PER_S)
        assert load.failed == 0, load


class Size(NamedTuple):
    """The memory and open files of programs, and the ruleset of the kernel."""

    mb: dict[str, float]
    files: dict[str, int]
    ruleset: str

    @property
    def rules(self) -> tuple[int, int]:
        """The lines of the ruleset, and the elements and words that its commas separate."""
        return len(self.ruleset.splitlines()), self.ruleset.count(",")


def size(cluster: Cluster) -> Size:
    node = cluster.nodes[0]
    pids = {program: cluster.lab.pid(program) for program in PROGRAMS}
    return Size(
        {program: usage(pid).mb for program, pid in pids.items()},
        {program: len(list(Path(f"/proc/{pid}/fd").iterdir())) for program, pid in pids.items()},
        cluster.nft(node, "list", "ruleset"),
    )


def has_no_more(after: Size, before: Size) -> bool:
    """Return True if the kernel holds no more than before. It may hold less: a chain that nobody uses goes later."""
    return all(map(le, after.rules, before.rules))


def dual(name: str, namespace: str, **more: Any) -> dict[str, Any]:
    return service(name, namespace, selector={"app": "web"}, ipFamilyPolicy="RequireDualStack", **more)


def live_and_die(cluster: Cluster, web: Web, number: int) -> None:
    """The life of some Services: made, changed in each way that rewrites rules, scaled, deleted."""
    namespace, names = web.namespace, [f"day-{number}-{index}" for index in range(SERVICES)]
    farms = [f"{name}--http{suffix}" for name in names for suffix in ("", "--ipv6")]
    port = {"name": "http", "port": 80}
    for change in (
        {},
        {"sessionAffinity": "ClientIP"},
        {"type": "NodePort", "ports": [port]},
        {"ports": [{**port, "port": 81}]},
    ):
        for name in names:
            cluster.apply(dual(name, namespace, **change))
        for farm in farms:
            cluster.farm_has(farm, namespace, PODS)
    cluster.scale("web", PODS + 1, namespace)
    cluster.farm_has(farms[0], namespace, PODS + 1)
    cluster.scale("web", PODS, namespace)
    for farm in farms:
        cluster.farm_has(farm, namespace, PODS)
    for name in names:
        cluster.delete("service", name, namespace)
    eventually(partial(cluster.has_forgotten, f"{namespace}.day-"), "all are forgotten", 60)


@pytest.mark.timeout(suite.by_form(240, 3600))
def test_a_day_of_changes_leaves_nothing_behind(cluster: Cluster, web: Web) -> None:
    before: Size | None = None
    with web.loaded() as load:
        for number in range(ROUNDS):
            if number == WARM_UP:
                cluster.rolled_out("web", PODS, web.namespace)
                before = size(cluster)
            live_and_die(cluster, web, number)
    cluster.rolled_out("web", PODS, web.namespace)
    assert before is not None
    # Statuses, Events and the state on disk follow within seconds.
    with contextlib.suppress(AssertionError):
        eventually(lambda: has_no_more(size(cluster), before), "the kernel has what it had", 60)
    after = size(cluster)
    print(before[:2], before.rules, after[:2], after.rules, load)
    more = difflib.unified_diff(before.ruleset.splitlines(), after.ruleset.splitlines(), lineterm="", n=1)
    assert has_no_more(after, before), "\n".join(more)
    for program in PROGRAMS:
        suite.record("churn", "memory before", "MB", before.mb[program], program=program)
        suite.record("churn", "memory after", "MB", after.mb[program], program=program)
        suite.record("churn", "open files before", "", before.files[program], program=program)
        suite.record("churn", "open files after", "", after.files[program], program=program)
        assert after.mb[program] < before.mb[program] + MORE_MB, (before, after)
        assert after.files[program] <= before.files[program] + MORE_FILES, (before, after)
    suite.record("churn", "lines of the ruleset before", "", before.rules[0])
    suite.record("churn", "lines of the ruleset after", "", after.rules[0])
    suite.record("churn", "Services made and deleted", "", (ROUNDS - WARM_UP) * SERVICES)
    assert load.broken == 0, load
