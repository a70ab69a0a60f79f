"""A node's report about connections to backends that drain."""

from collections import Counter
from typing import Any

import pytest

from kube_nftlb.agent.endpoints.selection import may_drain
from kube_nftlb.agent.status.drains import Drains, draining, summary
from kube_nftlb.agent.sync.progress import Problem, Progress
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm
from kube_nftlb.netfilter.conntrack.table import Address
from kube_nftlb.reasons import FailureReason
from tests.builders import farm, raw_backend
from tests.fakes.node import WEB

A, B = raw_backend("a", "10.244.1.2"), raw_backend("b", "10.244.1.3", 80)


def served(_: FarmKey) -> bool:
    return True


class Counted:
    """Answers with these connections, and remembers what was asked."""

    def __init__(self) -> None:
        self.connections: Counter[Address] = Counter()
        self.asked: list[set[Address]] = []

    async def count(self, backends: set[Address]) -> Counter[Address]:
        self.asked.append(backends)
        return self.connections


@pytest.mark.parametrize(
    ("spec", "addresses"),
    [
        ({"backends": [A, B]}, set()),
        ({"backends": [A, {**B, "state": "drain"}]}, {("10.244.1.3", 80)}),
        ({"backends": [A, {**B, "state": "off"}]}, set()),
        ({"backends": [A, B], "state": "drain"}, {("10.244.1.2", 8080), ("10.244.1.3", 80)}),
    ],
)
def test_backends_drain_by_their_own_state_and_by_that_of_the_farm(spec: Any, addresses: set[Address]) -> None:
    made = farm(**spec)
    assert draining([made]) == addresses
    assert may_drain(made.spec) == bool(addresses)


async def test_nothing_is_counted_while_nothing_drains() -> None:
    counted, progress, changes = Counted(), Progress(watermark=7), list[None]()
    await Drains(lambda: [farm()], served, counted, progress, lambda: changes.append(None)).look()
    assert (counted.asked, changes, progress.draining.watermark) == ([], [], "")


async def test_each_new_count_is_reported_with_how_far_the_node_was() -> None:
    counted, progress, changes = Counted(), Progress(watermark=7), list[None]()
    farms: list[Farm] = [farm(backends=[{**A, "state": "drain"}])]
    drains = Drains(lambda: farms, served, counted, progress, lambda: changes.append(None))
    counted.connections[("10.244.1.2", 8080)] = 2
    await drains.look()
    assert (progress.draining.watermark, progress.draining.connections, len(changes)) == ("7", 2, 1)
    await drains.look()
    assert len(changes) == 1, "nothing is new"
    progress.watermark = 8
    await drains.look()
    assert (progress.draining.watermark, len(changes)) == ("8", 2)
    farms.clear()
    await drains.look()
    assert (progress.draining.backends, len(changes)) == (0, 3)


@pytest.mark.parametrize(
    "reason", ["Refused", "Unsupported", "NftlbDefect", "NftlbUnreachable", "KernelFeatureMissing"]
)
async def test_nobody_takes_for_drained_what_stays_as_it_was(reason: FailureReason) -> None:
    counted, progress, serving = Counted(), Progress(watermark=7), {WEB}
    farms = [farm(backends=[{**A, "state": "drain"}])]
    drains = Drains(lambda: farms, serving.__contains__, counted, progress, lambda: None)
    await drains.look()
    progress.problems[WEB] = Problem(reason, "out of memory")
    progress.watermark = 9
    await drains.look()
    assert progress.draining.watermark == "7"
    serving.clear()
    await drains.look()
    assert progress.draining.watermark == "9", "nobody is sent anywhere"
    progress.watermark = 11
    serving.add(WEB)
    await drains.look()
    assert progress.draining.watermark == "9"
    progress.problems[WEB] = Problem("AddressInUse", "it is served at its other addresses")
    await drains.look()
    assert progress.draining.watermark == "11"


def test_a_report_is_bounded_and_has_the_busiest_first() -> None:
    counted: Counter[Address] = Counter({(f"10.0.0.{number}", 80): number for number in range(1, 201)})
    told = summary(300, counted, 5)
    assert (told.backends, told.connections, len(told.busiest)) == (300, sum(range(201)), 100)
    assert told.busiest[0].connections == 200
