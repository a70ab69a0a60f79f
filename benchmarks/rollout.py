"""``python -m benchmarks.rollout``: connections during a rolling update, with and without the readiness gate.

Each update is made twice: while all works, and while the program that follows Services on the client's node is frozen
(SIGSTOP) for its first seconds, as on a node that is starved. Prints one line for each; nothing is recorded.
"""

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from benchmarks import cluster
from benchmarks.cluster import CLIENT_POD, DEPLOYMENTS, NODE, TRAFFIC
from benchmarks.subjects import KUBE_PROXY, NFTABLES, NFTLB, Subject
from kube_nftlb import names
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import SERVICES, JsonObject
from lab.lab import Lab

_REPLICAS = 4
_GRACE_S = 5
_FROZEN_S = 15.0
_NODES = 2
_VIP = "10.96.200.1"
_ROLLED_OUT_WITHIN_S = 300
_SETTLED_S = 3.0


class _Case(NamedTuple):
    subject: Subject
    gated: bool

    @property
    def name(self) -> str:
        return f"{self.subject.name}{', gated' if self.gated else ''}"

    def lab(self) -> Lab:
        settings = self.subject.settings
        if self.gated:
            settings["operator"] = {**settings["operator"], "KUBE_NFTLB_READINESS_GATE": "on"}
        name = f"bench-rollout-{self.name.replace(', ', '-').replace(' ', '-')}"
        return Lab.up(name, nodes=_NODES, proxy=self.subject.proxy, settings=settings)

    @property
    def follower(self) -> str:
        """The program that follows Services on a node."""
        return "agent" if self.subject.ours else "kube-proxy"

    def deployment(self, revision: int) -> JsonObject:
        """Return the Deployment; another revision replaces all of its pods."""
        body = cluster.deployment("web", _REPLICAS)
        # No old pod goes before a new one is ready, whatever that means.
        body["spec"]["strategy"] = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
        template = body["spec"]["template"]
        template["metadata"]["annotations"] = {"revision": str(revision)}
        template["spec"]["terminationGracePeriodSeconds"] = _GRACE_S
        if self.gated:
            template["metadata"]["labels"] = {**template["metadata"]["labels"], names.LABEL_READINESS_GATE: "enabled"}
            template["spec"]["readinessGates"] = [{"conditionType": names.READINESS_GATE}]
        return body


_CASES = (
    _Case(Subject(KUBE_PROXY), gated=False),
    _Case(Subject(NFTLB), gated=False),
    _Case(Subject(NFTABLES), gated=False),
    _Case(Subject(NFTLB), gated=True),
    _Case(Subject(NFTABLES), gated=True),
)


def main() -> None:
    """Run all cases, one after another."""
    for case in _CASES:
        lab = case.lab()
        try:
            asyncio.run(_measure(lab, case))
        finally:
            lab.down()


async def _measure(lab: Lab, case: _Case) -> None:
    async with await Kube.connect(lab.kubeconfig) as kube:
        await kube.create(SERVICES, cluster.service("web", _VIP, "web"), "default")
        await cluster.run_pods(kube, {})
        await kube.create(DEPLOYMENTS, case.deployment(0), "default")
        await _rolled_out(kube)
        for revision, frozen in enumerate((False, True), 1):
            await asyncio.sleep(_SETTLED_S)
            process = lab.popen(CLIENT_POD, *TRAFFIC, "hammer", _VIP, "80", "--timeout", "3")
            began = time.monotonic()
            freezing = _frozen(lab.pid(case.follower, NODE)) if frozen else contextlib.nullcontext()
            with freezing:
                await kube.patch(DEPLOYMENTS, "web", case.deployment(revision), "default")
                if frozen:
                    await asyncio.sleep(_FROZEN_S)
            await _rolled_out(kube)
            seconds = time.monotonic() - began
            await asyncio.sleep(_SETTLED_S)
            process.terminate()
            told: dict[str, Any] = json.loads(process.communicate(timeout=60)[0])
            state = f"frozen for {_FROZEN_S:g} s" if frozen else "works"
            print(
                f"{case.name:30} {case.follower} {state:16} rolled out in {seconds:5.1f} s, "
                f"{told['attempts']} connections, {sum(told['failed'].values())} failed",
                flush=True,
            )


@contextlib.contextmanager
def _frozen(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def _rolled_out(kube: Kube) -> None:
    async with asyncio.timeout(_ROLLED_OUT_WITHIN_S):
        while not _is_rolled_out(await kube.get(DEPLOYMENTS, "web", "default")):  # noqa: ASYNC110 - as kubectl does
            await asyncio.sleep(0.2)


def _is_rolled_out(body: JsonObject) -> bool:
    status = body.get("status", {})
    counted = [status.get(key, 0) for key in ("replicas", "updatedReplicas", "availableReplicas")]
    return status.get("observedGeneration") == body["metadata"]["generation"] and counted == [_REPLICAS] * 3


if __name__ == "__main__":
    main()
