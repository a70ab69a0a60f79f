"""Which addresses Gateways get, beside Services."""

from collections.abc import Iterable
from typing import Any

import pytest

from kube_nftlb.api.address_ranges import ip_of
from kube_nftlb.api.gateway.gateway import Gateway
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.operator.addresses import gateways
from kube_nftlb.operator.addresses.book import Book
from kube_nftlb.operator.addresses.cluster import ClusterAddresses
from kube_nftlb.operator.addresses.pools import parse
from kube_nftlb.operator.addresses.requests import GatewayKey
from kube_nftlb.operator.gateway.objects import AddressState
from kube_nftlb.operator.gateway.wanted import AddressRequest
from tests.builders.pools import raw_balanced, raw_pool
from tests.builders.services import service


def book(*pools: dict[str, Any], services: Iterable[dict[str, Any]] = ()) -> Book:
    made = Book()
    made.put_namespaces({"default": {"team": "a"}, "other": {}})
    made.put_pools(map(parse, pools or [raw_pool()]), ClusterAddresses((), ()))
    for raw in services:
        name, given = raw["metadata"]["name"], [each["ip"] for each in raw["status"]["loadBalancer"]["ingress"]]
        made.put_service(ServiceKey("default", name), service(name, status=raw["status"], **raw["spec"]))
        made.assign(ServiceKey("default", name), tuple(map(ip_of, given)))
    return made


def decide(
    made: Book,
    *static: str,
    name: str = "edge",
    namespace: str = "default",
    given: Iterable[str] = (),
    labels: dict[str, str] | None = None,
    **wanted: Any,
) -> AddressState:
    metadata = {"name": name, "namespace": namespace, "labels": labels or {}}
    gateway = Gateway.model_validate({"metadata": metadata, "spec": {"gatewayClassName": "x"}})
    asked = AddressRequest(static, **{"families": () if static else (None,), **wanted})
    request = gateways.request_of(GatewayKey(namespace, name), gateway, asked)
    made.put_gateway(request, tuple(map(ip_of, given)))
    ips, state = gateways.allocate(request, asked, made)
    made.assign(request.key, ips)
    made.put_gateway(request, ())
    return state


def test_gateways_and_services_get_distinct_addresses() -> None:
    made = book(services=[raw_balanced("web", "192.0.2.1")])
    assert decide(made) == AddressState(("192.0.2.2",))
    assert decide(made, name="next") == AddressState(("192.0.2.3",))
    assert decide(made, name="last") == AddressState(
        (), "AddressNotAssigned", "no IPv4 address is free in the address pool pool"
    )
    assert made.services_of_pools() == {"pool": 1}, "Gateways are no Services"
    made.remove(GatewayKey("default", "edge"))
    assert decide(made, name="last") == AddressState(("192.0.2.2",))


def test_a_gateway_and_a_service_of_one_name_are_two() -> None:
    made = book(services=[raw_balanced("edge", "192.0.2.1")])
    assert decide(made).addresses == ("192.0.2.2",)


def test_the_quota_of_a_namespace_counts_both() -> None:
    pool = raw_pool("pool", addressesPerNamespace=2)
    made = book(pool, services=[raw_balanced("web", "192.0.2.1")])
    assert decide(made).addresses == ("192.0.2.2",)
    refused = decide(made, name="more")
    assert refused.problem == "AddressNotAssigned"
    assert "the namespace may have 2 addresses of the address pool pool" in refused.message
    assert decide(made, namespace="other").addresses == ("192.0.2.3",)


def test_an_address_stays_whatever_becomes_of_its_pool() -> None:
    made = book()
    first = decide(made)
    made.put_pools([parse(raw_pool("pool", "198.51.100.0/30"))], ClusterAddresses((), ()))
    assert decide(made) == first
    after_restart = book(raw_pool("pool", "198.51.100.0/30"))
    assert decide(after_restart, given=first.addresses) == first


@pytest.mark.parametrize(
    ("static", "message"),
    [
        ("192.0.2.1", "another Service has 192.0.2.1"),
        ("203.0.113.1", "no accepted address pool has 203.0.113.1"),
        ("192.0.2.01", "'192.0.2.01' is not an IP address"),
        ("2001:DB8::1", "'2001:DB8::1' must be written 2001:db8::1"),
        ("192.0.2.9", "192.0.2.9 is reserved in the address pool more"),
    ],
)
def test_an_address_that_cannot_be_had_is_named(static: str, message: str) -> None:
    more = raw_pool("more", "192.0.2.8/30", reserved=["192.0.2.9/32"])
    made = book(raw_pool(), more, services=[raw_balanced("web", "192.0.2.1")])
    assert decide(made, "192.0.2.2", static) == AddressState(
        ("192.0.2.2",), "AddressNotUsable", f"spec.addresses: {message}"
    )


@pytest.mark.parametrize(
    ("static", "wanted", "problem", "message"),
    [
        (["192.0.2.01"], {}, "AddressNotUsable", "spec.addresses: '192.0.2.01' is not an IP address"),
        (["192.0.2.1"], {}, "AddressNotUsable", "spec.addresses: another Service has 192.0.2.1"),
        ([], {"families": ("ipv6",)}, "AddressNotAssigned", "no accepted address pool with IPv6 addresses selects"),
    ],
)
def test_a_gateway_keeps_what_it_has_until_it_has_what_it_asks_for(
    static: list[str], wanted: dict[str, Any], problem: str, message: str
) -> None:
    made = book(services=[raw_balanced("web", "192.0.2.1")])
    assert decide(made, families=(None, None)).addresses == ("192.0.2.2", "192.0.2.3")
    state = decide(made, *static, **wanted)
    assert (state.addresses, state.problem, state.unasked) == (("192.0.2.2",), problem, 1)
    assert state.message.startswith(message)
    assert state.message.endswith("; until then it keeps 192.0.2.2")
    assert decide(made, "192.0.2.3").addresses == ("192.0.2.3",)
    assert not made.at(ip_of("192.0.2.2"), ServiceKey("default", "web"))


@pytest.mark.parametrize("bad", [[], ["203.0.113.1"]])
def test_a_gateway_changes_its_address_where_its_namespace_may_have_no_more(bad: list[str]) -> None:
    made = book(raw_pool("pool", addressesPerNamespace=1))
    assert decide(made).addresses == ("192.0.2.1",)
    assert decide(made, "192.0.2.2", *bad).addresses == ("192.0.2.2",)
    assert decide(made, "192.0.2.2", "192.0.2.3", *bad).addresses == ("192.0.2.2",)
    assert made.of_namespace(made.accepted[0], "default") == 1


def test_several_addresses_of_a_family_may_be_named_and_others_go() -> None:
    made = book()
    assert decide(made).addresses == ("192.0.2.1",)
    assert decide(made, "192.0.2.2", "192.0.2.3").addresses == ("192.0.2.2", "192.0.2.3")
    assert decide(made, name="next").addresses == ("192.0.2.1",)


def test_a_pool_that_does_not_select_it_is_no_pool_of_it() -> None:
    pool = raw_pool("pool", namespaceSelector={"matchLabels": {"team": "a"}})
    refused = decide(book(pool), "192.0.2.1", namespace="other")
    assert refused.message == (
        "spec.addresses: the address pool pool, which has 192.0.2.1, does not select this Gateway"
    )
    assert decide(book(pool), namespace="other").message == (
        "no accepted address pool with IPv4 addresses selects this Gateway"
    )
    chosen = raw_pool("pool", serviceSelector={"matchLabels": {"public": "yes"}})
    assert decide(book(chosen)).problem == "AddressNotAssigned"
    assert decide(book(chosen), labels={"public": "yes"}).addresses == ("192.0.2.1",)


def test_families_are_those_that_it_names_or_the_one_that_pools_have() -> None:
    both = raw_pool("pool", "192.0.2.0/30", "2001:db8::/126")
    assert decide(book(both)).addresses == ("192.0.2.0",)
    assert decide(book(both), families=("ipv6", "ipv4")).addresses == ("2001:db8::", "192.0.2.0")
    six = raw_pool("pool", "2001:db8::/126")
    assert decide(book(six)).addresses == ("2001:db8::",)
    half = decide(book(six), families=("ipv4", "ipv6"))
    assert half.addresses == ("2001:db8::",)
    assert half.message == "no accepted address pool with IPv4 addresses selects this Gateway"
    assert decide(book(both), pool="other").message == "there is no address pool other"


def test_the_addresses_in_a_status_are_read_whatever_else_it_has() -> None:
    listed = [{"value": "192.0.2.2"}, {"value": "203.0.113.1"}, {"value": 3}, {}, "x"]
    assert list(map(str, gateways.listed({"addresses": listed}))) == ["192.0.2.2", "203.0.113.1"]
    assert list(gateways.listed({"addresses": "x"})) == []


@pytest.mark.parametrize(
    ("pool", "listed", "found"),
    [
        (raw_pool(), ["192.0.2.2", "203.0.113.1", "192.0.2.2"], ["192.0.2.2"]),
        (raw_pool(), ["192.0.2.1"], []),
        (raw_pool("pool", reserved=["192.0.2.2/32"]), ["192.0.2.2", "192.0.2.3"], ["192.0.2.3"]),
        (raw_pool("pool", namespaceSelector={"matchLabels": {"team": "b"}}), ["192.0.2.2"], []),
        (raw_pool("pool", serviceSelector={"matchLabels": {"public": "yes"}}), ["192.0.2.2"], []),
        (raw_pool("pool", addressesPerNamespace=2), ["192.0.2.2", "192.0.2.3"], ["192.0.2.2"]),
    ],
)
def test_an_address_in_a_status_counts_if_the_gateway_could_get_it(
    pool: dict[str, Any], listed: list[str], found: list[str]
) -> None:
    made = book(pool, services=[raw_balanced("web", "192.0.2.1")])
    gateway = Gateway.model_validate(
        {"metadata": {"name": "edge", "namespace": "default"}, "spec": {"gatewayClassName": "x"}}
    )
    request = gateways.request_of(GatewayKey("default", "edge"), gateway, AddressRequest())
    assert list(map(str, gateways.regained(request, map(ip_of, listed), made))) == found


def test_of_several_addresses_of_a_family_each_is_judged_by_itself() -> None:
    made = book(services=[])
    decide(made, "192.0.2.1", "192.0.2.2")
    raw = raw_balanced("old", "192.0.2.2")
    older = {"creation_timestamp": "2020-01-01T00:00:00Z"}
    made.put_service(ServiceKey("default", "old"), service("old", status=raw["status"], **older, **raw["spec"]))
    state = decide(made, "192.0.2.1", "192.0.2.2")
    assert (state.addresses, state.message) == (("192.0.2.1",), "spec.addresses: another Service has 192.0.2.2")


def test_a_gateway_that_only_keeps_its_addresses_gets_no_others() -> None:
    made = book()
    assert decide(made, only_kept=True) == AddressState()
    first = decide(made)
    assert decide(made, only_kept=True) == first
