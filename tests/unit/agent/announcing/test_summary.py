"""The status of a node names the addresses that it announces, and groups the others by the reason that blocks them."""

from kube_nftlb.agent.announcing.pools import Pools
from kube_nftlb.agent.announcing.summary import counts, merged, summary
from kube_nftlb.announce.ownership.address import Act
from kube_nftlb.announce.ownership.gate import Blocker, Reason
from kube_nftlb.api.address_pool import AddressPool
from tests.builders.pools import raw_pool

EXCLUDED = Act(why_not=Blocker(Reason.NODE_EXCLUDED, "the node has the label x"))
LATE = Act(why_not=Blocker(Reason.NOT_PROGRAMMED, "the farm default/web is late"))


def test_addresses_are_announced_blocked_or_on_standby() -> None:
    acts = {"192.0.2.1": Act(answer=True), "192.0.2.2": Act(watch="02:00:00:00:00:01"), "192.0.2.3": EXCLUDED}
    told = summary(acts, pending=False)
    assert (told.number, told.announced) == (1, ("192.0.2.1",))
    assert [(each.reason, each.number, each.addresses) for each in told.blocked] == [
        ("NodeExcluded", 1, ("192.0.2.3",))
    ]
    acts |= {"192.0.2.4": Act(used_by="02:00:00:00:00:ee"), "198.51.100.1": Act(why_not=Blocker(Reason.NO_LINK, ""))}
    racks = [raw_pool("one", "192.0.2.0/24"), raw_pool("two", "198.51.100.0/25")]
    assert counts({**acts, "203.0.113.1": Act(answer=True)}, Pools(map(AddressPool.model_validate, racks))) == {
        **dict.fromkeys((("one", state) for state in ("announced", "standby", "blocked", "in_use")), 1),
        ("two", "no_link"): 1,
        ("", "announced"): 1,
    }


def test_many_are_counted_and_the_first_are_named() -> None:
    acts = {f"192.0.2.{number}": EXCLUDED for number in range(100)}
    acts |= {f"198.51.100.{number}": Act(answer=True) for number in range(200)}
    acts |= {f"203.0.113.{n}": Act(why_not=Blocker(Reason.NO_ENDPOINT, f"reason {n}")) for n in range(40)}
    told = summary(acts, pending=False)
    assert told.number == len(told.announced) == 200
    assert len(told.blocked) == 20
    most = next(each for each in told.blocked if each.reason == "NodeExcluded")
    assert (most.number, len(most.addresses)) == (100, 10)


def test_what_is_about_to_be_programmed_is_no_news() -> None:
    assert summary({"192.0.2.1": LATE}, pending=True).blocked == ()
    assert len(summary({"192.0.2.1": LATE}, pending=False).blocked) == 1


def test_a_foreign_host_is_named_with_its_mac_address() -> None:
    (told,) = summary({"192.0.2.1": Act(used_by="02:00:00:00:00:ee")}, pending=False).blocked
    assert (told.reason, told.message) == ("AddressInUse", "another host has the address, at 02:00:00:00:00:ee")


def test_an_address_is_announced_if_it_is_on_a_segment_or_by_bgp() -> None:
    yes, standby = Act(answer=True), Act()
    for held, routed, expected in (
        (yes, EXCLUDED, yes),
        (standby, yes, yes),
        (EXCLUDED, yes, yes),
        (EXCLUDED, LATE, EXCLUDED),
        (yes, yes, yes),
    ):
        assert merged({"192.0.2.1": held}, {"192.0.2.1": routed}) == {"192.0.2.1": expected}
    assert merged({"192.0.2.1": yes}, {"192.0.2.2": LATE}) == {"192.0.2.1": yes, "192.0.2.2": LATE}
