"""What is kept of farms to be sent again is what they have now, and has a limit."""

import pytest

from kube_nftlb.agent.engine.nftables import encoded, layout
from kube_nftlb.agent.engine.nftables.elements import elements
from kube_nftlb.agent.engine.nftables.encoded import EncodedFarms
from kube_nftlb.agent.engine.nftables.placement import Placement, place
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.resolve import node_farm
from kube_nftlb.netfilter.nftables import messages
from tests.builders import farm, raw_backend

HERE = NodeFacts("here", "a", {"ipv4": ("172.31.0.11",)}, {"ipv4": ("10.244.1.0/24",)})


def placed(name: str = "web", endpoints: int = 3) -> Placement:
    backends = [
        raw_backend(f"b{number}", f"10.244.{number // 250}.{number % 250}") for number in range(1, endpoints + 1)
    ]
    return place(node_farm(farm(name, backends=backends, engine="nftables"), HERE, None), None, layout.farm_number(1))


@pytest.mark.parametrize("endpoints", [0, 3, 4000])
def test_the_elements_of_a_farm_are_the_same_in_few_messages(endpoints: int) -> None:
    wanted = {(each.map, messages.element(each.key, each.data)) for each in elements(placed(endpoints=endpoints))}
    made = encoded.encoded(placed(endpoints=endpoints))
    assert {name: b"".join(parts) for name, parts in made.items()}.keys() == {name for name, _ in wanted}
    assert sum(map(len, (part for parts in made.values() for part in parts))) == sum(len(each) for _, each in wanted)
    for message in encoded.added([made]):
        assert len(message.attributes) < 1 << 16, "the length of an attribute has 16 bits"


def test_a_farm_that_changed_is_made_anew() -> None:
    farms = EncodedFarms()
    farms.keep(placed())
    kept = farms.of(placed())
    assert farms.of(placed()) is kept
    farms.forget("web")
    assert farms.of(placed(endpoints=4)) == encoded.encoded(placed(endpoints=4))
    farms.forget("web")


def test_no_more_is_kept_than_there_is_room_for() -> None:
    farms = EncodedFarms(bytes_max=1)
    for name in ("a", "b"):
        farms.keep(placed(name))
    assert farms.of(placed("a")) is farms.of(placed("a"))
    assert farms.of(placed("b")) is not farms.of(placed("b"))
    farms.forget("a")
    farms.keep(placed("b"))
    assert farms.of(placed("b")) is farms.of(placed("b"))
