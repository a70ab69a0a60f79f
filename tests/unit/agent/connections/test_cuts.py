"""The connections of a farm with onGone cut that may stay, and the times at which others are looked for."""

from typing import Any

import pytest

from kube_nftlb.agent.connections.cuts import GRACE_S, Cuts
from kube_nftlb.agent.model import NodeFarm
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.resolve import node_farm
from tests.builders import farm, raw_backend

A, B = ("10.244.1.2", 8080), ("10.244.1.3", 8080)
BOTH = [raw_backend("a", A[0]), raw_backend("b", B[0])]


def cutting(**spec: Any) -> NodeFarm:
    return node_farm(farm(**{"onGone": "cut", "backends": BOTH, **spec}), NodeFacts("here"), None)


@pytest.mark.parametrize(
    ("state", "is_kept"),
    [
        ({}, True),
        ({"ready": False}, True),
        ({"ready": False, "terminating": True}, True),
        ({"state": "off"}, True),
        ({"priority": 9}, True),
        ({"nodeName": "elsewhere"}, True),
        ({"ready": False, "serving": False}, False),
        ({"ready": False, "serving": False, "terminating": True}, False),
    ],
)
def test_connections_are_kept_to_what_is_ready_or_serving(state: dict[str, Any], is_kept: bool) -> None:
    cuts = Cuts()
    cuts.changed("web", cutting(trafficPolicy="Local", backends=[BOTH[0], {**BOTH[1], **state}]), 0)
    (cut,) = cuts.take(GRACE_S).values()
    assert cut.kept == ({A, B} if is_kept else {A})


@pytest.mark.parametrize(("protocol", "is_cut"), [("TCP", True), ("UDP", False), ("SCTP", False), ("All", True)])
def test_only_connections_over_tcp_are_cut(protocol: str, is_cut: bool) -> None:
    cuts = Cuts()
    ports = {} if protocol == "All" else {"ports": "80"}
    cuts.changed("web", cutting(protocol=protocol, addresses=[{"ip": "10.96.0.10", **ports}], backends=[]), 0)
    assert [bool(each.listeners) for each in cuts.take(GRACE_S).values()] == [is_cut]


def test_an_endpoint_is_gone_after_a_second_and_not_if_it_comes_back() -> None:
    cuts = Cuts()
    cuts.changed("web", cutting(), 0)
    assert cuts.take(GRACE_S).keys() == {"web"}
    assert cuts.next_due() is None
    cuts.changed("web", cutting(backends=BOTH[:1]), 10)
    cuts.changed("web", cutting(backends=BOTH[1:]), 10.9)
    assert cuts.next_due() == 10 + GRACE_S
    assert cuts.take(10.5) == {}
    # The one is back, and the other has just left.
    assert cuts.take(11.0)["web"].kept == {A, B}
    assert cuts.take(cuts.next_due() or 0)["web"].kept == {B}
    assert cuts.next_due() is None


def test_what_changes_nothing_about_endpoints_or_listeners_needs_no_look() -> None:
    cuts = Cuts()
    cuts.changed("web", cutting(), 0)
    cuts.take(GRACE_S)
    cuts.changed("web", cutting(scheduler="weight"), 5)
    cuts.changed("web", cutting(backends=[*BOTH, raw_backend("c", "10.244.1.4")]), 5)
    assert cuts.next_due() is None
    cuts.changed("web", cutting(addresses=[{"ip": "10.96.0.10", "ports": "80,81"}]), 5)
    assert cuts.next_due() is not None


@pytest.mark.parametrize("farm_", [None, cutting(onGone="keep")])
def test_a_farm_that_goes_or_keeps_connections_is_not_looked_at(farm_: NodeFarm | None) -> None:
    cuts = Cuts()
    cuts.changed("web", cutting(), 0)
    cuts.changed("web", farm_, 0)
    assert (cuts.next_due(), cuts.take(60)) == (None, {})


def test_what_could_not_be_done_is_done_again() -> None:
    cuts = Cuts()
    cuts.changed("web", cutting(), 0)
    cuts.again(cuts.take(GRACE_S).keys() | {"gone"}, 7)
    assert cuts.next_due() == 7
