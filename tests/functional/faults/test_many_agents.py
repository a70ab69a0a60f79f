"""Hundreds of agents at one API server: what they ask of it, and what one change costs it."""

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.processes import usage
from tests import engine
from tests.builders.manifests import service
from tests.functional.cluster import Cluster, eventually, running
from tests.functional.faults import suite

AGENTS = suite.by_form(25, 500)
CHANGES = suite.by_form(2, 3)
QUIET_S = suite.by_form(3, 60)
SETTLED_S = suite.by_form(3, 8)
WITHIN_S = suite.by_form(60, 600)
PROGRAMS = {"apiserver": "the API server", "etcd": "etcd", "operator": "the operator"}
NODE_STATUS, FARM_STATUS = "nftlbnodes/status", "nftlbfarms/status"
WATCHED = ("nodes", "endpointslices", "nftlbfarms", "nftlbpolicies", "servicecidrs")
LISTS = {f"{verb} {what}" for verb in ("LIST", "WATCH") for what in WATCHED}
WHERE = "client"
"""The agents have this place of the lab for themselves, so that its interface counts their bytes."""


@dataclass(frozen=True)
class Spent:
    """The cost counted since the start, or between two moments."""

    requests: dict[str, float]
    sent: int
    received: int
    cpu_s: dict[str, float]
    seconds: float

    def __sub__(self, before: "Spent") -> "Spent":
        return Spent(
            {key: more for key, value in self.requests.items() if (more := value - before.requests.get(key, 0))},
            self.sent - before.sent,
            self.received - before.received,
            {program: value - before.cpu_s[program] for program, value in self.cpu_s.items()},
            self.seconds - before.seconds,
        )


def writes(spent: Spent, what: str) -> float:
    """The requests that wrote a resource, in whatever way."""
    return sum(spent.requests.get(f"{verb} {what}", 0) for verb in ("APPLY", "PATCH", "PUT"))


class Meter:
    """Reads the counters of a lab."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._pids = {program: cluster.lab.pid(program) for program in PROGRAMS}

    def read(self) -> Spent:
        def interface() -> str:
            return Path("/proc/thread-self/net/dev").read_text()

        counted = self._cluster.lab.inside(WHERE, interface).partition("eth0:")[2].split()
        cpu_s = {program: usage(pid).cpu_s for program, pid in self._pids.items()}
        return Spent(self._requests(), int(counted[8]), int(counted[0]), cpu_s, time.monotonic())

    def _requests(self) -> dict[str, float]:
        """The requests by verb and resource, of all clients."""
        done = self._cluster.kubectl("get", "--raw", "/metrics")
        found: dict[str, float] = {}
        for line in done.splitlines():
            if line.startswith("apiserver_request_total{"):
                labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
                what = f"{labels['verb']} {labels['resource']}" + ("/status" if labels["subresource"] else "")
                found[what] = found.get(what, 0) + float(line.rpartition(" ")[2])
        return found


def note(what: str, spent: Spent, share: float = 1) -> None:
    """Record what was spent during one of so many changes, or in so many minutes, with what idle nodes ask."""
    print(what, json.dumps(spent.requests), spent.sent, spent.received, spent.cpu_s)
    told: dict[str, str | int | float] = {"agents": AGENTS, "for": what}
    suite.record("agents", "time", "s", spent.seconds / share, **told)
    lists = sum(number for request, number in spent.requests.items() if request in LISTS)
    for metric, number in (
        ("statuses of nodes written", writes(spent, NODE_STATUS)),
        ("statuses of farms written", writes(spent, FARM_STATUS)),
        ("lists and watches", lists),
    ):
        suite.record("agents", metric, "", number / share, **told)
    suite.record("agents", "to the agents", "kB", spent.received / share / 1000, **told)
    suite.record("agents", "from the agents", "kB", spent.sent / share / 1000, **told)
    for program, seconds in spent.cpu_s.items():
        suite.record("agents", f"CPU time of {PROGRAMS[program]}", "s", seconds / share, **told)


def node(name: str, number: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {"podCIDRs": [f"10.{128 + number // 256}.{number % 256}.0/24"]},
    }


@contextlib.contextmanager
def agents(cluster: Cluster, number: int) -> Iterator[None]:
    """Run so many agents, and wait until each has told a status."""
    for index in range(number):
        cluster.apply(node(f"simulated-{index}", index))
    program = f"exec python -m tests.functional.faults.agents simulated {number}"
    log = cluster.lab.log_path("operator").with_name("agents.log")
    process = cluster.lab.popen(WHERE, "sh", "-c", f"{program} 2>{log}")
    assert process.stdout
    try:
        assert process.stdout.readline() == "begun\n", log.read_text()
        eventually(lambda: len(ready(cluster)) == number + 1, "all agents are ready", WITHIN_S)
        yield
    finally:
        process.terminate()
        process.communicate(timeout=60)


def ready(cluster: Cluster) -> list[str]:
    return [
        item["metadata"]["name"]
        for item in cluster.get("nftlbnode")["items"]
        for each in item.get("status", {}).get("conditions", [])
        if (each["type"], each["status"]) == ("InSync", "True")
    ]


def put_slice(cluster: Cluster, ready_endpoints: int) -> None:
    cluster.apply(
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": "web-1",
                "namespace": "default",
                "labels": {"kubernetes.io/service-name": "web", "endpointslice.kubernetes.io/managed-by": "a-test"},
            },
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
            "endpoints": [
                {"addresses": [f"10.244.9.{number + 1}"], "conditions": {"ready": number < ready_endpoints}}
                for number in range(10)
            ],
        }
    )


def everywhere(cluster: Cluster, **wanted: Any) -> bool:
    """Return True if all nodes have programmed the farm, with these fields of its spec or this many ready backends."""
    farm = cluster.farm("web--http", "default") or {}
    status = farm.get("status", {})
    conditions = {each["type"]: each for each in status.get("conditions", [])}
    current = conditions.get("Programmed", {}).get("observedGeneration") == farm.get("metadata", {}).get("generation")
    is_so = all(conditions.get(kind, {}).get("status") == "True" for kind in ("Programmed", "EndpointsProgrammed"))
    found = {**farm.get("spec", {}), "readyBackends": status.get("readyBackends")}
    return current and is_so and all(found.get(key) == value for key, value in wanted.items())


def cost(meter: Meter, cluster: Cluster, change: Callable[[int], dict[str, Any]]) -> Spent:
    """Return the cost of CHANGES changes. Each returns what shows that all nodes have it."""
    before = meter.read()
    for number in range(CHANGES):
        wanted = change(number)
        eventually(lambda wanted=wanted: everywhere(cluster, **wanted), f"all nodes have {wanted}", WITHIN_S)  # type: ignore[misc]  # a bound loop variable
        # Each node tells of it within seconds of the others.
        time.sleep(SETTLED_S)
    return meter.read() - before


@pytest.mark.long
@pytest.mark.skipif(engine.DEFAULT != "nftlb", reason="the agents have no engine")
@pytest.mark.timeout(suite.by_form(240, 3600))
def test_what_many_agents_ask_of_the_api_server() -> None:
    with running("agents", nodes=1, settings={"operator": engine.OPERATOR}) as cluster:
        cluster.apply(service("web", "default", selector=None))
        put_slice(cluster, 1)
        cluster.farm_has("web--http", "default", 1)
        meter = Meter(cluster)
        before = meter.read()
        with agents(cluster, AGENTS):
            note("the start of all", meter.read() - before)
            time.sleep(QUIET_S)
            before = meter.read()
            time.sleep(QUIET_S)
            note("a quiet minute", meter.read() - before, QUIET_S / 60)

            def farm(number: int) -> dict[str, Any]:
                scheduler = ("weight", "symhash")[number % 2]
                cluster.apply(service("web", "default", {"scheduler": scheduler}, selector=None))
                return {"scheduler": scheduler}

            def endpoint(number: int) -> dict[str, Any]:
                put_slice(cluster, number + 2)
                return {"readyBackends": number + 2}

            changed = cost(meter, cluster, farm)
            note("a farm that changes", changed, CHANGES)
            assert writes(changed, NODE_STATUS) <= 3 * CHANGES * (AGENTS + 1)
            changed = cost(meter, cluster, endpoint)
            note("an endpoint that changes", changed, CHANGES)
            assert writes(changed, NODE_STATUS) <= 2 * CHANGES * (AGENTS + 1)
            assert writes(changed, FARM_STATUS) <= 4 * CHANGES
        assert "Traceback" not in cluster.lab.log_path("operator").read_text()
