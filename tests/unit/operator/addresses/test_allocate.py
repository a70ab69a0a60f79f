"""Which address a Service gets, and why it gets none."""

import random
from typing import Any

import pytest

from kube_nftlb import names
from kube_nftlb.api.kubernetes.service import Service
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.operator.addresses.allocate import SHARED_MAX, Outcome, allocate
from kube_nftlb.operator.addresses.book import Book
from kube_nftlb.operator.addresses.cluster import ClusterAddresses
from kube_nftlb.operator.addresses.pools import parse
from tests.builders.pools import raw_balanced, raw_pool
from tests.processor_time import processor_time

Json = dict[str, Any]
NOTHING = ClusterAddresses([], [])
LATER = "2026-02-02T00:00:00Z"
BOTH: Json = {"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack"}
REQUIRED: Json = {**BOTH, "ipFamilyPolicy": "RequireDualStack"}
DUAL = ("192.0.2.1-192.0.2.3", "2001:db8::1-2001:db8::3")


class World:
    """Pools and Services, and what comes of them."""

    def __init__(self, *pools: Json, without_class: bool = False) -> None:
        self.book = Book(without_class=without_class)
        self.book.put_namespaces({"default": {"team": "a"}, "other": {}})
        self.pools(*pools or (raw_pool(),))

    def pools(self, *pools: Json) -> None:
        self.book.put_pools([parse(raw) for raw in pools], NOTHING)

    def put(self, *services: Json) -> None:
        for raw in services:
            service = Service.model_validate(raw)
            self.book.put_service(_key(service), service)

    def decide(self, raw: Json) -> Outcome:
        """Put in a Service, and assign what it gets."""
        service = Service.model_validate(raw)
        self.book.put_service(_key(service), service)
        return self.again(raw)

    def again(self, raw: Json) -> Outcome:
        key = ServiceKey(raw["metadata"]["namespace"], raw["metadata"]["name"])
        request = self.book.request(key)
        assert request is not None
        outcome = allocate(request, self.book)
        if not outcome.leave:
            self.book.assign(key, outcome.addresses)
        return outcome

    def gets(self, raw: Json) -> str:
        return texts(self.decide(raw))


def _key(service: Service) -> ServiceKey:
    return ServiceKey(service.metadata.namespace, service.metadata.name)


def texts(outcome: Outcome) -> str:
    return " ".join(map(str, outcome.addresses))


def test_services_get_the_lowest_addresses_that_are_free() -> None:
    world = World()
    assert [world.gets(raw_balanced(name)) for name in "abcd"] == ["192.0.2.1", "192.0.2.2", "192.0.2.3", ""]
    world.book.remove(ServiceKey("default", "b"))
    assert world.book.freed
    assert texts(world.again(raw_balanced("d"))) == "192.0.2.2"


@pytest.mark.parametrize(
    ("change", "freed"),
    [
        ({"labels": {"x": "y"}}, False),
        ({"annotations": {"address-pool": "pool"}}, False),
        ({"ports": [{"port": 81, "protocol": "TCP"}]}, False),
        ({"annotations": {"address-sharing-key": "one"}}, True),
        ({"annotations": {"address-sharing-key": "one"}, "ports": [{"port": 81, "protocol": "TCP"}]}, True),
    ],
)
def test_who_waits_is_looked_at_again_only_for_a_change_that_may_give_it_an_address(change: Json, freed: bool) -> None:
    world = World()
    assert world.gets(raw_balanced("a")) == "192.0.2.1"
    for raw in (raw_balanced("new"), raw_balanced("a", **change)):
        world.book.freed = False
        world.put(raw)
        assert world.book.freed is (freed and raw["metadata"]["name"] == "a")
    world.book.freed = False
    world.book.remove(ServiceKey("default", "new"))
    assert not world.book.freed, "it had none"


PORT_81: Json = {"ports": [{"port": 81, "protocol": "TCP"}]}
UDP: Json = {"ports": [{"port": 80, "protocol": "UDP"}]}
KEY = {"address-sharing-key": "one"}
ALSO = {"addresses": "192.0.2.1", **KEY}
LOCAL = {"externalTrafficPolicy": "Local"}
SAME: Json = {"selector": {"app": "same"}}
MORE_PORTS, ALL = {"ports": "81-90"}, {"protocol": "all"}


@pytest.mark.parametrize(
    ("pools", "service", "reason", "message"),
    [
        ([raw_pool("a", autoAssign=False)], {}, "NoPool", "no accepted address pool with IPv4 addresses"),
        ([raw_pool("a", "2001:db8::/64")], {}, "NoPool", "with IPv4 addresses selects this Service"),
        ([raw_pool("a", serviceSelector={"matchLabels": {"x": "y"}})], {}, "NoPool", "selects this Service"),
        ([raw_pool("a", namespaceSelector={"matchLabels": {"team": "b"}})], {}, "NoPool", "selects this Service"),
        ([], {"annotations": {"address-pool": "b"}}, "NoPool", "there is no address pool b"),
        ([raw_pool("b", "127.0.0.0/8")], {"annotations": {"address-pool": "b"}}, "NoPool", "b is not accepted"),
        ([raw_pool("b", "2001:db8::/64")], {"annotations": {"address-pool": "b"}}, "NoPool", "b has no IPv4 addresses"),
        (
            [raw_pool("b", serviceSelector={"matchLabels": {"x": "y"}})],
            {"annotations": {"address-pool": "b"}},
            "NotAllowed",
            "the address pool b does not select this Service",
        ),
        ([], {"loadBalancerIP": "192.0.2.9"}, "NoPool", "no accepted address pool has 192.0.2.9"),
        ([], {"loadBalancerIP": "192.0.02.1"}, "NotAllowed", "spec.loadBalancerIP: '192.0.02.1' is not an IP address"),
        ([], {"loadBalancerIP": "2001:db8::1"}, "NotAllowed", "2001:db8::1 is of no family of the Service"),
        ([], {"annotations": {"addresses": "192.0.2.1,192.0.2.2"}}, "NotAllowed", "two addresses of one family"),
        ([], {"annotations": {"addresses": "x" * 300}}, "NotAllowed", "has more than 253 characters"),
        ([], {"annotations": {"addresses": "web"}}, "NotAllowed", "'web' is not an IP address"),
        (
            [raw_pool("a"), raw_pool("b", "192.0.2.8/32")],
            {"loadBalancerIP": "192.0.2.8", "annotations": {"address-pool": "a"}},
            "NotAllowed",
            "192.0.2.8 is in the address pool b, not in a",
        ),
        (
            [raw_pool("a", namespaceSelector={"matchLabels": {"team": "b"}})],
            {"loadBalancerIP": "192.0.2.1"},
            "NotAllowed",
            "the address pool a, which has 192.0.2.1, does not select this Service",
        ),
        ([raw_pool("a", reserved=["192.0.2.1/32"])], {"loadBalancerIP": "192.0.2.1"}, "NotAllowed", "is reserved"),
        ([raw_pool("a", addressesPerNamespace=0)], {}, "NotAllowed", "may have 0 addresses of the address pool a"),
        ([raw_pool("a", reserved=["192.0.2.1-192.0.2.3"])], {}, "PoolExhausted", "no IPv4 address is free in"),
        ([], {"ipFamilies": []}, "NotAllowed", "no IP family yet"),
    ],
)
def test_a_service_that_gets_none_says_why(pools: list[Json], service: Json, reason: str, message: str) -> None:
    outcome = World(*pools).decide(raw_balanced("web", **service))
    assert (outcome.addresses, outcome.reason) == ((), reason)
    assert message in outcome.message


@pytest.mark.parametrize(
    ("other", "one", "message"),
    [
        ({}, {"loadBalancerIP": "192.0.2.1"}, "another Service has 192.0.2.1"),
        ({"annotations": KEY}, {"loadBalancerIP": "192.0.2.1"}, "another Service has 192.0.2.1"),
        ({}, {"annotations": ALSO, **PORT_81}, "another Service has 192.0.2.1"),
        ({"annotations": KEY}, {"annotations": ALSO}, "with the same sharing key also the port 80/TCP"),
        ({"annotations": KEY | MORE_PORTS}, {"annotations": ALSO, **PORT_81}, "also the port 81/TCP"),
        ({"annotations": KEY, **PORT_81}, {"annotations": ALSO | MORE_PORTS}, "also the port 81/TCP"),
        ({"annotations": KEY | ALL}, {"annotations": ALSO, **UDP}, "also every port of one of them"),
        ({"annotations": KEY, **UDP}, {"annotations": ALSO | ALL}, "also every port of one of them"),
        ({"annotations": KEY, **LOCAL}, {"annotations": ALSO, **PORT_81}, "externalTrafficPolicy Local"),
        ({"annotations": KEY}, {"annotations": ALSO, **PORT_81, **LOCAL}, "externalTrafficPolicy Local"),
        ({"annotations": KEY}, {"annotations": ALSO, **PORT_81, "namespace": "other"}, "another Service has 192.0.2.1"),
        ({"loadBalancerClass": "example.com/other"}, {"loadBalancerIP": "192.0.2.1"}, "another Service has 192.0.2.1"),
    ],
    ids=[
        *("no key", "one key", "other key", "port", "ports of it", "more ports", "all of it", "all"),
        *("local", "local too", "namespace", "class"),
    ],
)
def test_nobody_gets_an_address_that_another_has(other: Json, one: Json, message: str) -> None:
    world = World()
    world.put(raw_balanced("first", "192.0.2.1", **other))
    outcome = world.decide(raw_balanced("web", created=LATER, **one))
    assert (outcome.addresses, outcome.reason) == ((), "AddressTaken")
    assert message in outcome.message
    assert "first" not in outcome.message


@pytest.mark.parametrize(
    ("other", "one"),
    [
        ({"annotations": KEY}, {"annotations": ALSO, **PORT_81}),
        ({"annotations": KEY}, {"annotations": KEY, **UDP}),
        ({"annotations": KEY | MORE_PORTS}, {"annotations": KEY, "ports": [{"port": 91, "protocol": "TCP"}]}),
        # Not a list of ports: only the Service's own is served.
        ({"annotations": KEY | {"ports": "81-"}}, {"annotations": KEY, **PORT_81}),
        ({"annotations": KEY, **LOCAL, **SAME}, {"annotations": KEY, **UDP, **SAME}),
    ],
    ids=["asked", "any", "more ports", "invalid ports", "local"],
)
def test_services_with_one_key_share_an_address(other: Json, one: Json) -> None:
    world = World()
    world.put(raw_balanced("first", "192.0.2.1", **other))
    assert world.gets(raw_balanced("web", **one)) == "192.0.2.1"


def test_so_many_services_share_an_address_at_most() -> None:
    world = World()
    for number in range(SHARED_MAX):
        ports = [{"port": 1000 + number, "protocol": "TCP"}]
        world.put(raw_balanced(f"web-{number:03}", "192.0.2.1", annotations=KEY, ports=ports))
    asked = world.decide(raw_balanced("web", created=LATER, annotations=ALSO))
    assert asked.reason == "AddressTaken"
    assert "another Service has 192.0.2.1, which 64 Services share already, as many as may" in asked.message
    for number in range(3):
        ports = [{"port": 2000 + number, "protocol": "TCP"}]
        world.put(raw_balanced(f"zoo-{number}", "192.0.2.2", created=LATER, annotations=KEY, ports=ports))
        assert world.gets(raw_balanced("web", created=LATER, annotations=KEY)) == "192.0.2.2"


def test_a_service_that_cannot_share_gets_an_address_of_its_own() -> None:
    world = World()
    world.put(raw_balanced("first", "192.0.2.1", annotations=KEY))
    assert world.gets(raw_balanced("web", annotations=KEY)) == "192.0.2.2"


@pytest.mark.parametrize(
    ("pools", "service", "address"),
    [
        ([raw_pool("a", priority=1), raw_pool("b", "192.0.2.8/32", priority=2)], {}, "192.0.2.8"),
        ([raw_pool("b", "192.0.2.8/32"), raw_pool("a")], {}, "192.0.2.1"),
        ([raw_pool("a", reserved=["192.0.2.1-192.0.2.2"])], {}, "192.0.2.3"),
        ([raw_pool("a", "192.0.2.9/32", "192.0.2.4/32")], {}, "192.0.2.4"),
        ([raw_pool("a", autoAssign=False)], {"annotations": {"address-pool": "a"}}, "192.0.2.1"),
        ([raw_pool("a", autoAssign=False)], {"loadBalancerIP": "192.0.2.2"}, "192.0.2.2"),
        ([raw_pool("a", serviceSelector={"matchLabels": {"x": "y"}})], {"labels": {"x": "y"}}, "192.0.2.1"),
        ([raw_pool("a", namespaceSelector={"matchLabels": {"team": "a"}})], {}, "192.0.2.1"),
        ([raw_pool("a", *DUAL)], BOTH, "192.0.2.1 2001:db8::1"),
        ([raw_pool("a", *DUAL)], {**BOTH, "ipFamilies": ["IPv6", "IPv4"]}, "2001:db8::1 192.0.2.1"),
        ([raw_pool("a"), raw_pool("b", "2001:db8::/64")], REQUIRED, "192.0.2.1 2001:db8::"),
        ([raw_pool("a")], BOTH, "192.0.2.1"),
        ([raw_pool("a")], REQUIRED, ""),
        ([raw_pool("a", *DUAL, addressesPerNamespace=1)], REQUIRED, ""),
        ([raw_pool("a", *DUAL)], {**BOTH, "annotations": {"addresses": "2001:db8::3"}}, "192.0.2.1 2001:db8::3"),
    ],
)
def test_a_service_gets_what_it_asks_for(pools: list[Json], service: Json, address: str) -> None:
    assert World(*pools).gets(raw_balanced("web", **service)) == address


def test_the_next_pool_is_asked_when_one_is_exhausted() -> None:
    world = World(raw_pool("a", "192.0.2.1/32"), raw_pool("b", "198.51.100.1/32"))
    assert [world.gets(raw_balanced(name)) for name in "abc"] == ["192.0.2.1", "198.51.100.1", ""]
    assert world.again(raw_balanced("c")).message == "no IPv4 address is free in the address pools a, b"


def test_a_service_that_prefers_two_families_waits_for_the_second() -> None:
    world = World(raw_pool("a"))
    outcome = world.decide(raw_balanced("web", **BOTH))
    assert (texts(outcome), outcome.reason, outcome.waits) == ("192.0.2.1", "Assigned", True)
    world.pools(raw_pool("a"), raw_pool("b", "2001:db8::1/128"))
    assert texts(world.again(raw_balanced("web", **BOTH))) == "192.0.2.1 2001:db8::1"


@pytest.mark.parametrize("given", [["192.0.2.1"], ["192.0.2.1", "2001:db8::1"]])
def test_a_service_that_requires_both_families_keeps_what_it_has_until_it_gets_both(given: list[str]) -> None:
    world = World(raw_pool("pool", *DUAL))
    world.put(raw_balanced("other", "2001:db8::2"))
    raw = raw_balanced("web", *given, assigned=True, annotations={"addresses": "192.0.2.2,2001:db8::2"}, **REQUIRED)
    outcome = world.decide(raw)
    assert (texts(outcome), outcome.reason) == (" ".join(given), "AddressTaken")
    assert "the Service keeps 192.0.2.1 of the address pool pool" in outcome.message
    world.book.remove(ServiceKey("default", "other"))
    assert texts(world.again(raw)) == "192.0.2.2 2001:db8::2"


OTHER_RANGE = raw_pool("pool", "198.51.100.0/24")


@pytest.mark.parametrize(
    "pools",
    [
        [],
        [OTHER_RANGE],
        [raw_pool("pool", "127.0.0.0/8")],
        [raw_pool("pool", reserved=["192.0.2.2/32"])],
        [raw_pool("pool", serviceSelector={"matchLabels": {"x": "y"}})],
        [raw_pool("pool", addressesPerNamespace=0)],
        [raw_pool("higher", "198.51.100.0/24", priority=9), raw_pool("pool")],
    ],
    ids=["deleted", "moved", "invalid", "reserved", "selects no more", "quota", "priority"],
)
def test_an_address_stays_whatever_becomes_of_its_pool(pools: list[Json]) -> None:
    raw = raw_balanced("web", "192.0.2.2", assigned=True)
    world = World()
    world.put(raw)
    world.pools(*pools)
    assert (texts(world.again(raw)), world.again(raw).reason) == ("192.0.2.2", "Assigned")
    # A new operator knows no more than what the API server has.
    new = World(*pools) if pools else World(OTHER_RANGE)
    assert new.gets(raw) == "192.0.2.2"


@pytest.mark.parametrize("without_class", [False, True])
def test_an_address_of_a_pool_that_another_program_gave_is_adopted(without_class: bool) -> None:
    world = World(without_class=without_class)
    chosen: Json = {"loadBalancerClass": None} if without_class else {}
    assert world.gets(raw_balanced("web", "192.0.2.3", **chosen)) == "192.0.2.3"


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("2001:DB8::1", "2001:db8::1"),
        ("2001:db8:0:0::1", "2001:db8::1"),
        ("192.0.002.001", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
    ],
)
def test_an_address_is_taken_however_a_status_spells_it(given: str, taken: str) -> None:
    world = World(raw_pool("pool", *DUAL))
    world.put(raw_balanced("other", given, loadBalancerClass="example.com/other"))
    outcome = world.decide(raw_balanced("web", loadBalancerIP=taken, ipFamilies=BOTH["ipFamilies"]))
    assert (taken in texts(outcome), outcome.reason) == (False, "AddressTaken")


def test_an_address_of_no_pool_is_left_to_who_gave_it() -> None:
    world = World(without_class=True)
    outcome = world.decide(raw_balanced("web", "203.0.113.9", loadBalancerClass=None))
    assert (outcome.leave, outcome.reason) == (True, "NotAllowed")
    assert "203.0.113.9, which is in no accepted address pool" in outcome.message
    hostname = raw_balanced("name", loadBalancerClass=None)
    hostname["status"]["loadBalancer"]["ingress"] = [{"hostname": "lb.example.com"}]
    assert world.decide(hostname).leave


def test_services_of_other_kinds_get_nothing() -> None:
    world = World()
    world.put(
        raw_balanced("type", type="NodePort"),
        raw_balanced("class", loadBalancerClass="example.com/other"),
        raw_balanced("none", loadBalancerClass=None),
        raw_balanced("proxy", labels={names.LABEL_PROXY_NAME: "other"}),
    )
    assert [world.book.request(ServiceKey("default", name)) for name in ("type", "class", "none", "proxy")] == [
        None
    ] * 4


def test_an_address_changes_when_its_service_asks_for_another() -> None:
    world = World()
    world.put(raw_balanced("other", "192.0.2.3"))
    assert world.gets(raw_balanced("web", "192.0.2.1", assigned=True, loadBalancerIP="192.0.2.2")) == "192.0.2.2"
    outcome = world.decide(raw_balanced("web", "192.0.2.2", assigned=True, loadBalancerIP="192.0.2.3"))
    assert (texts(outcome), outcome.reason) == ("192.0.2.2", "AddressTaken")
    assert outcome.message == "another Service has 192.0.2.3; the Service keeps 192.0.2.2 of the address pool pool"


def test_what_was_assigned_counts_before_the_api_server_has_it() -> None:
    world = World()
    first = raw_balanced("first")
    assert world.gets(first) == "192.0.2.1"
    assert world.gets(raw_balanced("second")) == "192.0.2.2"
    assert texts(world.again(first)) == "192.0.2.1"


@pytest.mark.parametrize("order", [["old", "new"], ["new", "old"]])
def test_of_two_with_one_address_the_older_keeps_it(order: list[str]) -> None:
    """Two operators wrote at once, or somebody else did."""
    raws = {
        "old": raw_balanced("z", "192.0.2.1", assigned=True),
        "new": raw_balanced("a", "192.0.2.1", assigned=True, created=LATER),
    }
    world = World()
    world.put(*(raws[name] for name in order))
    assert [texts(world.again(raws[name])) for name in order] == [
        "192.0.2.1" if name == "old" else "192.0.2.2" for name in order
    ]


PORTS: Json = {"ports": [{"port": 81, "protocol": "TCP"}]}


@pytest.mark.parametrize(
    ("changed", "affected"),
    [
        (raw_balanced("one", "192.0.2.1", assigned=True, annotations=KEY), set()),
        (raw_balanced("one", "192.0.2.1", assigned=True, annotations=KEY, labels={"team": "b"}), set()),
        (raw_balanced("one", "192.0.2.1", assigned=True, annotations=KEY, selector={"app": "b"}), {"two"}),
        (raw_balanced("one", "192.0.2.1", assigned=True, annotations=KEY, **PORTS), {"two"}),
        (raw_balanced("one", "192.0.2.1", assigned=True), {"two"}),
        (raw_balanced("one", "192.0.2.1", assigned=True, annotations=KEY, created=LATER), {"two"}),
        (raw_balanced("one", "192.0.2.1", assigned=True, annotations=KEY, loadBalancerClass="other"), {"two"}),
        (raw_balanced("one", "192.0.2.2", assigned=True, annotations=KEY), {"two", "three"}),
    ],
    ids=["nothing", "labels", "selector", "ports", "key", "age", "class", "another address"],
)
def test_a_change_concerns_those_alone_who_have_the_address(changed: Json, affected: set[str]) -> None:
    world = World()
    world.put(
        raw_balanced("one", "192.0.2.1", assigned=True, annotations=KEY),
        raw_balanced("two", "192.0.2.1", assigned=True, annotations=KEY),
        raw_balanced("three", "192.0.2.2", assigned=True),
    )
    service = Service.model_validate(changed)
    assert {each.name for each in world.book.put_service(_key(service), service)} == affected


def test_a_status_with_what_was_assigned_concerns_nobody() -> None:
    world = World()
    world.put(raw_balanced("one", "192.0.2.1", assigned=True, annotations=KEY))
    two = raw_balanced("two", annotations=KEY, **PORTS)
    assert world.gets(two) == "192.0.2.1"
    service = Service.model_validate(raw_balanced("two", "192.0.2.1", assigned=True, annotations=KEY, **PORTS))
    assert world.book.put_service(_key(service), service) == set()


APART = "; another Service has 192.0.2.1 with the same sharing key, but another selector: with externalTrafficPolicy "


@pytest.mark.parametrize("local", ["old", "new"])
@pytest.mark.parametrize("edited", ["old", "new"])
def test_services_that_could_no_longer_share_their_address_keep_it_and_say_so(local: str, edited: str) -> None:
    world = World()
    of: dict[str, Json] = {"old": {}, "new": {"created": LATER, **UDP}}
    of[local] |= LOCAL
    raws = {name: raw_balanced(name, annotations=KEY, **SAME, **fields) for name, fields in of.items()}
    for raw in raws.values():
        assert world.decide(raw).message == "192.0.2.1 of the address pool pool"
    (other,) = raws.keys() - {edited}
    apart = {**raws[edited], "spec": {**raws[edited]["spec"], "selector": {"app": "another"}}}
    service = Service.model_validate(apart)
    assert world.book.put_service(_key(service), service) == {ServiceKey("default", other)}
    for raw in (apart, raws[other]):
        outcome = world.again(raw)
        assert (texts(outcome), outcome.reason) == ("192.0.2.1", "Assigned")
        assert outcome.message == f"192.0.2.1 of the address pool pool{APART}Local both need the same endpoints"
    assert world.book.remove(_key(service)) == {ServiceKey("default", other)}
    assert world.again(raws[other]).message == "192.0.2.1 of the address pool pool"


def test_ports_that_change_move_no_address() -> None:
    world = World()
    world.put(
        raw_balanced("old", "192.0.2.1", assigned=True, annotations=KEY),
        raw_balanced("new", "192.0.2.1", assigned=True, created=LATER, annotations=KEY),
    )
    assert texts(world.again(raw_balanced("new"))) == "192.0.2.1"


def test_the_addresses_of_a_namespace_have_a_limit() -> None:
    world = World(raw_pool(addressesPerNamespace=1))
    assert world.gets(raw_balanced("a", annotations=KEY)) == "192.0.2.1"
    outcome = world.decide(raw_balanced("b"))
    assert (outcome.addresses, outcome.reason) == ((), "NotAllowed")
    assert "may have 1 address of the address pool pool, and has as many" in outcome.message
    assert world.gets(raw_balanced("c", annotations=KEY, **PORT_81)) == "192.0.2.1", "a shared one counts once"
    assert world.gets(raw_balanced("d", namespace="other")) == "192.0.2.2"
    world.book.remove(ServiceKey("default", "a"))
    assert world.again(raw_balanced("b")).reason == "NotAllowed", "the other one has it still"
    world.book.remove(ServiceKey("default", "c"))
    assert texts(world.again(raw_balanced("b"))) == "192.0.2.1"


@pytest.mark.parametrize(
    ("limit", "before", "asks"),
    [
        (1, {}, {"annotations": {"addresses": "192.0.2.3"}}),
        (1, {}, {"loadBalancerIP": "192.0.2.3"}),
        (2, BOTH, {**BOTH, "annotations": {"addresses": "192.0.2.3,2001:db8::3"}}),
    ],
)
def test_a_service_may_ask_for_another_address_though_its_namespace_has_all_that_it_may(
    limit: int, before: Json, asks: Json
) -> None:
    world = World(raw_pool("pool", *DUAL, addressesPerNamespace=limit))
    assert len(world.decide(raw_balanced("web", **before)).addresses) == limit
    outcome = world.decide(raw_balanced("web", **asks))
    assert outcome.reason == "Assigned"
    assert texts(outcome) == "192.0.2.3 2001:db8::3"[: 9 if limit == 1 else None]


def test_a_service_that_moves_away_from_an_address_that_it_shares_needs_one_place_more() -> None:
    world = World(raw_pool(addressesPerNamespace=1))
    world.gets(raw_balanced("a", annotations=KEY))
    world.gets(raw_balanced("b", annotations=KEY, **PORT_81))
    outcome = world.decide(raw_balanced("b", **PORT_81, annotations={**KEY, "addresses": "192.0.2.3"}))
    assert (texts(outcome), outcome.reason) == ("192.0.2.1", "NotAllowed")


@pytest.mark.parametrize("both", [BOTH, REQUIRED])
def test_an_address_that_a_service_shares_counts_once_beside_the_second_that_it_gets(both: Json) -> None:
    world = World(raw_pool("pool", *DUAL, addressesPerNamespace=2))
    world.gets(raw_balanced("a", annotations=KEY))
    assert world.gets(raw_balanced("b", annotations=KEY, **PORT_81, **both)) == "192.0.2.1 2001:db8::1"


def test_the_numbers_of_a_pool_follow_whatever_happens() -> None:
    """The counters, and the lowest free address, are those that a count of all would give."""
    choice = random.Random(20261124)  # noqa: S311  # not for secrets
    world = World(raw_pool("pool", "192.0.2.0/28", reserved=["192.0.2.4/32"]))
    book, alive = world.book, dict[str, Json]()
    for step in range(600):
        name = f"s{choice.randrange(20)}"
        namespace = choice.choice(["default", "other"])
        key = ServiceKey(namespace, name)
        if choice.random() < 0.4:
            book.remove(key)
            alive.pop(f"{namespace}/{name}", None)
        else:
            raw = alive.setdefault(f"{namespace}/{name}", raw_balanced(name, namespace=namespace, annotations=KEY))
            if choice.random() < 0.3:
                raw["spec"]["ports"] = [{"port": choice.randrange(1, 4), "protocol": "TCP"}]
            world.decide(raw)
        if step % 50 == 0:
            world.pools(raw_pool("pool", "192.0.2.0/28", reserved=["192.0.2.4/32"]))
        (pool,) = book.accepted
        keys = _keys(alive)
        has = {ip: [key for key in keys if ip in book.has(key)] for ip in _all(book, keys)}
        assert book.used(pool, "ipv4") == len(has)
        assert book.free(pool, "ipv4") == 15 - len(has)
        for each in ("default", "other"):
            assert book.of_namespace(pool, each) == sum(any(k.namespace == each for k in of) for of in has.values())
        free = sorted({f"192.0.2.{n}" for n in range(16) if n != 4} - set(map(str, has)), key=lambda ip: int(ip[8:]))
        assert str(book.first_free(pool, "ipv4") or "") == (free[0] if free else "")


def _keys(alive: dict[str, Json]) -> list[ServiceKey]:
    return [ServiceKey(*text.split("/")) for text in alive]


def _all(book: Book, keys: list[ServiceKey]) -> set[Any]:
    return {ip for key in keys for ip in book.has(key)}


def test_thousands_that_wait_take_little_time_each() -> None:
    world = World(raw_pool("pool", "10.0.0.0/20"))
    for number in range(4096):
        assert world.decide(raw_balanced(f"s{number}")).addresses
    waiting = [raw_balanced(f"w{number}") for number in range(500)]
    world.put(*waiting)
    with processor_time() as taken:
        assert {world.again(raw).reason for raw in waiting} == {"PoolExhausted"}
    assert taken.seconds < 2.5, "5 ms each would hold up all others"
