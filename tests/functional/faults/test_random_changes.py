"""Whatever is changed and broken, in whatever order: each connection goes where an independent model says."""

import os
import signal
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lab.addresses import CLIENT
from tests.builders.manifests import client_pod, policy, service
from tests.functional.cluster import Cluster, eventually
from tests.functional.faults import model, suite
from tests.functional.faults.model import Verdict, World

EXAMPLES, STEPS = suite.by_form((6, 15), (15, 30))
APPS = ("one", "two")
NAMES = ("red", "green", "blue")
SCHEDULERS = ("rr", "weight")
REPLICAS_MAX = 3
WITHIN_S = 40
OUTSIDE = "client"


def seen(cluster: Cluster, place: str, vip: str, expected: Verdict) -> Verdict | str:
    """Return the verdict on connections; those that are dropped are waited for no longer than needed."""
    number = 4 * len(expected) if isinstance(expected, frozenset) else 3
    counted = cluster.count(place, number, vip, 80, "--timeout", "0.4" if expected == "dropped" else "2")
    failures = {kind: count for kind, count in counted["failures"].items() if count}
    if not failures:
        return frozenset(counted["answers"])
    if failures == {"refused": number}:
        return "refused"
    if failures == {"timeout": number}:
        return "dropped"
    return f"{counted}"


class Changes(RuleBasedStateMachine):
    """Drives a cluster and the model alike."""

    cluster: Cluster

    def __init__(self) -> None:
        super().__init__()
        self._namespace = self.cluster.namespace()
        self.namespace = self._namespace.__enter__()
        near, far = self.cluster.nodes
        self.places = {f"{self.namespace}/near": near, f"{self.namespace}/far": far, OUTSIDE: near}
        self.world = World(self.places)
        self.log: list[str] = []

    def teardown(self) -> None:
        print("; ".join(self.log))
        self._namespace.__exit__(None, None, None)

    # What is there at first.

    @initialize()
    def begin(self) -> None:
        for place, node in list(self.places.items())[:2]:
            name = place.partition("/")[2]
            self.cluster.apply(client_pod(name, self.namespace, node))
            self.cluster.wait("pod", name, "Ready", self.namespace)
        for app in APPS:
            self.cluster.run(app, 2, self.namespace)
        self._look_at_pods()
        self.add("red", "one")

    def _look_at_pods(self) -> None:
        items = self.cluster.get("pod", namespace=self.namespace)["items"]
        self.world.pods = {
            item["metadata"]["name"]: model.Pod(item["metadata"]["labels"]["app"], item["spec"]["nodeName"])
            for item in items
            if item["metadata"].get("labels", {}).get("app") in APPS and "deletionTimestamp" not in item["metadata"]
        }

    def _address(self, place: str) -> str:
        if place == OUTSIDE:
            return f"{CLIENT[0].ip}/32"
        return f"{self.cluster.get('pod', place.partition('/')[2], self.namespace)['status']['podIP']}/32"

    def _apply(self, name: str) -> None:
        wanted = self.world.services[name]
        cidrs = [self._address(place) for place in sorted(wanted.denied)]
        self.cluster.apply(policy(name, self.namespace, "deny", cidrs))
        annotations = {"scheduler": wanted.scheduler, "policies": name, "state": "down" if wanted.down else "up"}
        spec: dict[str, Any] = {
            "selector": {"app": wanted.app},
            "internalTrafficPolicy": "Local" if wanted.local else "Cluster",
            "sessionAffinity": "ClientIP" if wanted.sticky else "None",
        }
        self.cluster.apply(service(name, self.namespace, annotations, **spec))

    def _told(self, what: str) -> None:
        self.log.append(what)

    @rule()
    def wait(self) -> None:
        """Change nothing. The first sequence is of this alone, as hypothesis begins with the simplest."""

    # Services.

    @rule(name=st.sampled_from(NAMES), app=st.sampled_from(APPS))
    def add(self, name: str, app: str) -> None:
        """Add a Service, or give it another selector."""
        self._told(f"{name} selects {app}")
        self.world.services.setdefault(name, model.Service(app)).app = app
        self._apply(name)

    @rule(
        name=st.sampled_from(NAMES),
        field=st.sampled_from(("local", "sticky", "down")),
        value=st.booleans(),
    )
    def change(self, name: str, field: str, value: bool) -> None:
        if (wanted := self.world.services.get(name)) is not None:
            self._told(f"{name} {field}={value}")
            setattr(wanted, field, value)
            self._apply(name)

    @rule(name=st.sampled_from(NAMES), scheduler=st.sampled_from(SCHEDULERS))
    def schedule(self, name: str, scheduler: str) -> None:
        if (wanted := self.world.services.get(name)) is not None:
            self._told(f"{name} scheduler={scheduler}")
            wanted.scheduler = scheduler
            self._apply(name)

    @rule(name=st.sampled_from(NAMES), which=st.sets(st.integers(0, 2)))
    def deny(self, name: str, which: set[int]) -> None:
        if (wanted := self.world.services.get(name)) is not None:
            wanted.denied = {list(self.places)[index] for index in which}
            self._told(f"{name} denies {sorted(wanted.denied)}")
            self._apply(name)

    @precondition(lambda self: len(self.world.services) > 1)
    @rule(number=st.integers(0, 2))
    def delete(self, number: int) -> None:
        name = sorted(self.world.services)[number % len(self.world.services)]
        self._told(f"{name} is deleted")
        del self.world.services[name]
        self.cluster.delete("service", name, self.namespace)

    # Pods.

    @rule(number=st.integers(0, 2 * REPLICAS_MAX), ready=st.booleans())
    def probe(self, number: int, ready: bool) -> None:
        name = sorted(self.world.pods)[number % len(self.world.pods)]
        self._told(f"{name} ready={ready}")
        self.world.pods[name].ready = ready
        self.cluster.lab.pod(ready, f"{self.namespace}/{name}")

    @rule(app=st.sampled_from(APPS), replicas=st.integers(1, REPLICAS_MAX))
    def scale(self, app: str, replicas: int) -> None:
        self._told(f"{app} has {replicas} pods")
        for name, pod in self.world.pods.items():
            if not pod.ready:
                self.cluster.lab.pod(True, f"{self.namespace}/{name}")
        self.cluster.scale(app, replicas, self.namespace)
        for each in APPS:
            wanted = replicas if each == app else sum(pod.app == each for pod in self.world.pods.values())
            self.cluster.rolled_out(each, wanted, self.namespace)
        self._look_at_pods()

    # Faults.

    @rule(
        program=st.sampled_from(("agent", "nftlb", "operator")),
        sent=st.sampled_from((signal.SIGKILL, signal.SIGTERM)),
        number=st.integers(0, 1),
    )
    def end(self, program: str, sent: signal.Signals, number: int) -> None:
        self._told(f"{program} gets {sent.name}")
        node = None if program == "operator" else self.cluster.nodes[number]
        eventually(lambda: self._is_running(program, node), f"{program} runs", WITHIN_S)
        os.kill(self.cluster.lab.pid(program, node), sent)

    def _is_running(self, program: str, node: str | None) -> bool:
        return any((e["component"], e["node"]) == (program, node) and e["pid"] for e in self.cluster.lab.status())

    @rule(number=st.integers(0, 1))
    def flush(self, number: int) -> None:
        self._told(f"the rules of node {number} are flushed")
        self.cluster.nft(self.cluster.nodes[number], "flush ruleset")

    # What must be so after each step.

    @invariant()
    def connections_go_where_the_model_says(self) -> None:
        for name, wanted in self.world.services.items():
            vip = self.cluster.vip(name, self.namespace)
            for place in self.places:
                expected = self.world.verdict(name, place)
                found: list[Verdict | str] = []

                def is_so(
                    place: str = place,
                    vip: str = vip,
                    expected: Verdict = expected,
                    found: list[Verdict | str] = found,
                    wanted: model.Service = wanted,
                ) -> bool:
                    found[:] = [seen(self.cluster, place, vip, expected)]
                    if wanted.sticky and isinstance(expected, frozenset) and isinstance(found[0], frozenset):
                        return found[0] <= expected and len(found[0]) == 1
                    return found[0] == expected

                try:
                    eventually(is_so, f"{place} gets {expected} of {name}", WITHIN_S)
                except AssertionError as error:
                    raise AssertionError(f"{error}, but {found[0]}, after: {'; '.join(self.log)}") from None


@pytest.mark.long
@pytest.mark.timeout(suite.by_form(400, 7200))
def test_connections_go_where_an_independent_model_says(cluster: Cluster) -> None:
    suite.chance()

    @seed(suite.SEED)
    class OfThisCluster(Changes):
        pass

    OfThisCluster.cluster = cluster
    run_state_machine_as_test(
        OfThisCluster,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            # A step takes seconds, so that a shorter way to a failure is for the reader to find.
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
    suite.record("model", "sequences", "", EXAMPLES)
    suite.record("model", "steps at most", "", EXAMPLES * STEPS)
    suite.record("model", "contradictions", "", 0)
