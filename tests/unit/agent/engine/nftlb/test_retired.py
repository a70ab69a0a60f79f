"""When retired IPv6 farms are removed from nftlb."""

from kube_nftlb.agent.engine.nftlb.retired import Retired
from kube_nftlb.nftlb import objects
from kube_nftlb.nftlb.requests import RemoveFarm


def six(name: str, number: int) -> objects.Farm:
    return objects.Farm(name, {}, {name: objects.Address(name, "ipv6", f"fd00::{number}", "80", "tcp")})


def removed(retired: Retired, present: dict[str, objects.Farm], *, busy: bool = False) -> set[str]:
    return {step.name for step in retired.burial(present, busy=busy) if isinstance(step, RemoveFarm)}


def test_retired_farms_do_not_accumulate() -> None:
    present = {name: six(name, number) for number, name in enumerate("abcdefgh", 1)}
    retired = Retired(maximum=4)
    for name in "abcd":
        retired.withdrawn(name, present)
        assert removed(retired, present) == set()
    retired.withdrawn("e", present)
    assert removed(retired, present, busy=True) == set()
    assert removed(retired, present) == set("abcde")


def test_the_last_ipv6_farms_go_at_once() -> None:
    present = {name: six(name, number) for number, name in enumerate("ab", 1)}
    retired = Retired()
    retired.withdrawn("a", present)
    assert removed(retired, present) == set()
    retired.withdrawn("b", present)
    assert removed(retired, present) == {"a", "b"}


def test_a_farm_that_is_served_again_is_not_removed() -> None:
    present = {"a": six("a", 1)}
    retired = Retired()
    retired.withdrawn("a", present)
    retired.served("a")
    assert removed(retired, present) == set()
