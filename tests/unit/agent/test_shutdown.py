"""The agent's rules when it stops."""

from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from kube_nftlb import errors
from kube_nftlb.agent import shutdown
from kube_nftlb.agent.kube_proxy.rules import Fingerprint, ProxyRules
from kube_nftlb.agent.node.daemonset import OwnDaemonSet
from kube_nftlb.agent.node.own_node import OwnNode
from kube_nftlb.agent.shutdown import GRACE_S, HAND_OVER_S, ShutdownReason, shutdown_reason
from kube_nftlb.api.kubernetes.node import CoreNode
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import NFTLB_NODES
from tests.fakes.clock import FakeClock
from tests.fakes.kube import FakeKube

SELECTOR = {"kube-nftlb.io/service-proxy": "kube-nftlb"}


class Cluster:
    """An API server with the agent's DaemonSet and its Node."""

    def __init__(self) -> None:
        self.daemon_sets: list[dict[str, Any]] = [
            {"metadata": {}, "spec": {"template": {"spec": {"nodeSelector": SELECTOR}}}}
        ]
        self.labels: dict[str, str] = dict(SELECTOR)
        self.away = False
        self.items = self.daemon_sets

    async def list(self, *_: object, **__: object) -> "Cluster":
        self._answer()
        return self

    async def get(self, *_: object) -> dict[str, Any]:
        self._answer()
        return {"metadata": {"labels": self.labels}}

    def _answer(self) -> None:
        if self.away:
            raise errors.KubeUnreachableError("away")


class Rules:
    """Rules of kube-proxy, from some time on."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.there_at = float("inf")
        self.asked: set[str] = set()

    async def fingerprints(self, family: str) -> set[Fingerprint]:
        self.asked.add(family)
        return {Fingerprint("nat", 1, 2)} if self.clock.now() >= self.there_at else set()


class Node:
    def __init__(self) -> None:
        self.cluster, self.clock = Cluster(), FakeClock()
        self.rules = Rules(self.clock)
        self.own_node = OwnNode("a")
        self.watched(SELECTOR)
        kube = cast("Kube", self.cluster)
        self.daemon_set: OwnDaemonSet | None = OwnDaemonSet(kube, "kube-nftlb-system", "kube-nftlb-agent")
        self.proxy_lives = False
        self.held: list[int] = []

    def watched(self, labels: dict[str, str]) -> None:
        addresses = [{"type": "InternalIP", "address": each} for each in ("192.0.2.1", "2001:db8::1")]
        raw = {"metadata": {"name": "a", "labels": labels}, "status": {"addresses": addresses}}
        self.own_node.update(CoreNode.model_validate(raw))

    async def free_ports(self) -> None:
        if self.proxy_lives:
            self.held = [10256]

    async def ends(self) -> ShutdownReason:
        return await shutdown_reason(
            self.daemon_set,
            self.own_node,
            cast("ProxyRules", self.rules),
            lambda: self.held,
            self.clock,
            self.free_ports,
            proxy_gone=False,
        )


@pytest.fixture
def node() -> Node:
    return Node()


async def test_an_agent_that_restarts_leaves_its_rules(node: Node) -> None:
    assert await node.ends() is ShutdownReason.RESTART
    assert node.rules.asked == set()


async def test_one_whose_daemon_set_is_deleted_does_not(node: Node) -> None:
    node.cluster.daemon_sets.clear()
    assert await node.ends() is ShutdownReason.UNINSTALL


async def test_one_whose_node_is_moved_back_waits_for_kube_proxy_in_all_families(node: Node) -> None:
    node.cluster.labels.clear()
    began = node.clock.now()
    node.rules.there_at = began + 10
    assert await node.ends() is ShutdownReason.MOVE
    assert node.clock.now() >= began + 10
    assert node.rules.asked == {"ip", "ip6"}


async def test_its_rules_stay_if_no_kube_proxy_comes(node: Node) -> None:
    node.cluster.labels.clear()
    began = node.clock.now()
    assert await node.ends() is ShutdownReason.RESTART
    assert node.clock.now() >= began + HAND_OVER_S


async def test_its_rules_stay_if_kube_proxys_are_left_ones(node: Node) -> None:
    node.cluster.labels.clear()
    node.rules.there_at = 0
    assert await node.ends() is ShutdownReason.RESTART


async def test_a_kube_proxy_that_came_before_takes_over_once_the_ports_are_free(node: Node) -> None:
    node.cluster.labels.clear()
    node.rules.there_at = 0
    node.proxy_lives = True
    began = node.clock.now()
    assert await node.ends() is ShutdownReason.MOVE
    assert node.clock.now() < began + HAND_OVER_S


async def test_while_the_api_server_is_away_what_was_last_seen_of_the_node_counts(node: Node) -> None:
    assert node.daemon_set is not None
    assert not await node.daemon_set.is_deleted()
    node.cluster.labels.clear()
    node.cluster.away = True
    node.rules.there_at = node.clock.now() + 10
    assert await node.ends() is ShutdownReason.RESTART, "its label was there"
    node.watched({})
    node.rules.there_at = node.clock.now() + 10
    assert await node.ends() is ShutdownReason.MOVE
    node.own_node.update(None)
    node.rules.there_at = node.clock.now() + 10
    assert await node.ends() is ShutdownReason.MOVE, "the Node was deleted meanwhile"


async def test_its_rules_stay_if_nobody_can_tell(node: Node) -> None:
    assert node.daemon_set is not None
    assert not await node.daemon_set.is_deleted()
    node.cluster.labels.clear()
    node.cluster.away = True
    node.own_node = OwnNode("a")
    with capture_logs() as logs:
        assert await node.ends() is ShutdownReason.RESTART
    assert "the rules stay" in logs[0]["event"]


async def test_its_rules_stay_without_a_daemon_set(node: Node) -> None:
    node.daemon_set = None
    assert await node.ends() is ShutdownReason.RESTART


@pytest.mark.parametrize(("remaining_s", "nftlb_s"), [(GRACE_S, 60), (GRACE_S - HAND_OVER_S, 20), (5, 1)])
async def test_an_nftlb_that_hangs_leaves_time_to_remove_the_tables(
    node: Node, monkeypatch: pytest.MonkeyPatch, remaining_s: float, nftlb_s: float
) -> None:
    given: list[float] = []

    async def clean(_settings: object, _nft: object, patience_s: float = 60) -> None:
        given.append(patience_s)

    monkeypatch.setattr(shutdown, "clean", clean)
    unused = cast("Any", None)
    await shutdown.clean_up(ShutdownReason.UNINSTALL, unused, node.own_node, unused, unused, remaining_s)
    assert given == [nftlb_s]


@pytest.mark.parametrize("refusals", [2, 1000])
async def test_a_node_that_moves_deletes_its_nftlb_node_as_soon_as_the_api_server_answers(
    node: Node, monkeypatch: pytest.MonkeyPatch, refusals: int
) -> None:
    class BusyKube(FakeKube):
        left = refusals

        async def delete(self, *arguments: Any, **options: Any) -> None:
            self.left -= 1
            if self.left >= 0:
                raise errors.KubeError(429, "TooManyRequests", "later")
            await super().delete(*arguments, **options)

    async def clean(*_: object) -> None:
        pass

    kube = BusyKube()
    kube.put(NFTLB_NODES, {"metadata": {"name": node.own_node.name}})
    for name, value in (("clean", clean), ("_RETRY_S", 0.001), ("_REMOVAL_S", 0.1)):
        monkeypatch.setattr(shutdown, name, value)
    unused = cast("Any", None)
    with capture_logs() as logs:
        await shutdown.clean_up(ShutdownReason.MOVE, cast("Any", kube), node.own_node, unused, unused, 10)
    assert (kube.find(NFTLB_NODES, node.own_node.name) is None) == (refusals == 2)
    assert ("kubectl delete nftlbnode" in logs[0]["event"]) == (refusals == 1000)


def test_the_grace_is_the_charts() -> None:
    template = (Path(__file__).parents[3] / "charts/kube-nftlb/templates/agent.yaml").read_text()
    assert f"terminationGracePeriodSeconds: {GRACE_S:g}\n" in template
