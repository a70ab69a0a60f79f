"""The backends that a farm gets from the EndpointSlices of a Service."""

from collections.abc import Iterable
from typing import Any

import pytest

from kube_nftlb.agent.table.element_count import elements
from kube_nftlb.api.backend import Backend
from kube_nftlb.api.base import Family
from kube_nftlb.api.farm import BACKENDS_MAX, BackendsFrom, FarmSpec
from kube_nftlb.endpointslices.backends import Resolved, ResolvedEndpoint, resolve, resolved_spec, services, sized_spec
from kube_nftlb.endpointslices.slices import ServiceKey, Slice
from tests.builders import endpoint, endpoint_slice, farm, raw_backend


def resolved(slices: Iterable[Slice], family: Family = "ipv4", protocol: str = "TCP", **reference: Any) -> Resolved:
    """Resolve a reference to the port http, unless another is given."""
    from_ = BackendsFrom.model_validate({"service": "web", "port": "http", **reference})
    return resolve([from_], "default", family, protocol, slices, BACKENDS_MAX)


def joined(slices: Iterable[Slice], *options: Any, **fields: Any) -> tuple[ResolvedEndpoint, ...]:
    return resolved(slices, *options, **fields).endpoints


def backend_names(*slices: Slice, **fields: Any) -> list[str]:
    return [each.name for each in joined(slices, **fields)]


HTTP = {"name": "http", "port": 8080, "protocol": "TCP"}


@pytest.mark.parametrize(
    ("ports", "port", "expected"),
    [
        pytest.param([HTTP], "http", [8080], id="same name and protocol match"),
        pytest.param([{"name": None, "port": 8080}], "", [8080], id="nil is the nameless port, and TCP"),
        pytest.param([{"name": "", "port": 8080}], "", [8080], id="so is an empty name"),
        pytest.param([HTTP], "", [], id="a port with a name is not the nameless one"),
        pytest.param([{**HTTP, "protocol": "UDP"}], "http", [], id="another protocol does not match"),
        pytest.param([{"name": "http", "port": None}], "http", [], id="a port without a number is skipped"),
        pytest.param([{"name": "http", "port": 0}], "http", [], id="a port 0 is skipped"),
        pytest.param(None, "other", [], id="another name does not match"),
        pytest.param([HTTP], 8080, [8080], id="a number is that of the endpoints"),
        pytest.param([{"name": None, "port": 8080}], 8080, [8080], id="also of a port without a name"),
        pytest.param([HTTP], 80, [], id="another number does not match"),
        pytest.param([{**HTTP, "protocol": "UDP"}], 8080, [], id="a number does not match in another protocol"),
        pytest.param([HTTP, {**HTTP, "name": "web"}], 8080, [8080], id="a number under two names is one backend"),
        pytest.param([{**HTTP, "name": "8080"}], "8080", [8080], id="a name of digits is a name"),
        pytest.param([HTTP], "8080", [], id="and not a number"),
    ],
)
def test_ports_are_matched(ports: list[dict[str, Any]] | None, port: str | int, expected: list[int]) -> None:
    slices = [endpoint_slice(endpoint("10.244.0.1"), ports=ports)]
    assert [each.port for each in joined(slices, port=port)] == expected
    assert [each.backend.port for each in joined(slices, port=port)] == expected


def test_an_absent_port_is_the_nameless_one() -> None:
    slices = [endpoint_slice(endpoint("10.244.0.1"), ports=[{"name": "", "port": 7}, HTTP])]
    (found,) = resolve([BackendsFrom(service="web")], "default", "ipv4", "TCP", slices, BACKENDS_MAX).endpoints
    assert found.port == 7


@pytest.mark.parametrize("protocol", ["TCP", "UDP", "SCTP"])
def test_protocol_all_matches_ports_of_any_protocol(protocol: str) -> None:
    slices = [endpoint_slice(endpoint("10.244.0.1", "a"), ports=[{**HTTP, "protocol": protocol}])]
    assert [each.name for each in joined(slices, "ipv4", "All", keepPort=True)] == ["a"]


def test_a_backend_that_keeps_the_port_has_none() -> None:
    two = [HTTP, {**HTTP, "port": 9090}]
    (found,) = joined([endpoint_slice(endpoint("10.244.0.1"), ports=two)], keepPort=True)
    assert (found.name, found.port, found.backend.port) == ("10-244-0-1", 0, None)


def test_slices_of_the_other_family_are_ignored() -> None:
    slices = [
        endpoint_slice(endpoint("10.244.0.1", "a")),
        endpoint_slice(endpoint("fd00::1", "a"), name="six", address_type="IPv6"),
    ]
    assert [each.ip for each in joined(slices, "ipv4")] == ["10.244.0.1"]
    assert [each.ip for each in joined(slices, "ipv6")] == ["fd00::1"]


def test_slices_are_joined_and_sorted_whatever_their_order() -> None:
    one, other = endpoint_slice(endpoint("10.244.0.2", "b")), endpoint_slice(endpoint("10.244.0.1", "a"), name="web-2")
    assert backend_names(one, other) == backend_names(other, one) == ["a", "b"]


def test_backends_are_sorted_by_name_not_by_address() -> None:
    assert backend_names(endpoint_slice(endpoint("10.244.0.1", "b"), endpoint("10.244.0.2", "a"))) == ["a", "b"]


@pytest.mark.parametrize(
    ("worse", "better"),
    [
        pytest.param({"ready": False, "serving": False}, {"ready": True}, id="the ready one"),
        pytest.param({"ready": False, "serving": False}, {"ready": False, "serving": True}, id="then the serving one"),
        pytest.param(
            {"ready": False, "serving": True, "terminating": True},
            {"ready": False, "serving": True},
            id="then the one that is not terminating",
        ),
        pytest.param({"pod": None}, {"pod": "a"}, id="then the one with a pod"),
        pytest.param({"node": ""}, {"node": "n1"}, id="then the one with a node"),
    ],
)
def test_an_address_in_two_slices_is_one_backend(worse: dict[str, Any], better: dict[str, Any]) -> None:
    slices = [
        endpoint_slice(endpoint("10.244.0.1", **{"pod": "a", **worse})),
        endpoint_slice(endpoint("10.244.0.1", **{"pod": "a", **better}), name="x"),
    ]
    for order in (slices, slices[::-1]):
        (found,) = joined(order)
        assert found.endpoint == slices[1].endpoints[0]


def test_slices_may_have_different_numbers_for_one_port_name() -> None:
    other = endpoint_slice(endpoint("10.244.0.2", "b"), name="x", ports=[{**HTTP, "port": 9090}])
    assert [each.port for each in joined([endpoint_slice(endpoint("10.244.0.1", "a")), other])] == [8080, 9090]


@pytest.mark.parametrize(
    ("made_of", "address_type", "expected"),
    [
        pytest.param(endpoint("10.244.0.1", "pod-1"), "IPv4", "pod-1", id="after the pod"),
        pytest.param(endpoint("10.244.0.1"), "IPv4", "10-244-0-1-8080", id="after the address where there is no pod"),
        pytest.param(endpoint("fd00::1"), "IPv6", "fd00--1-8080", id="an IPv6 address too"),
        pytest.param(endpoint("::1:2"), "IPv6", "1-2-8080", id="a name does not begin with a dash"),
        pytest.param(endpoint("10.244.0.1", "Bad; name"), "IPv4", "10-244-0-1-8080", id="a pod's name that is none"),
        pytest.param(endpoint("10.244.0.1", "line\n"), "IPv4", "10-244-0-1-8080", id="nor may it end in a line feed"),
        pytest.param(endpoint("10.244.0.1", "a" * 300), "IPv4", "10-244-0-1-8080", id="nor be too long"),
    ],
)
def test_a_backend_is_named(made_of: dict[str, Any], address_type: str, expected: str) -> None:
    family: Family = "ipv6" if address_type == "IPv6" else "ipv4"
    assert backend_names(endpoint_slice(made_of, address_type=address_type), family=family) == [expected]


def test_of_backends_with_one_name_the_lowest_address_keeps_it() -> None:
    found = backend_names(
        endpoint_slice(endpoint("10.244.0.2", "a"), endpoint("10.244.0.1", "a"), endpoint("10.244.0.3", "a"))
    )
    assert len(set(found)) == 3
    again = joined([endpoint_slice(endpoint("10.244.0.3", "a"), endpoint("10.244.0.1", "a"))])
    assert [each.name for each in again if each.ip == "10.244.0.1"] == ["a"]
    assert {each.name for each in again} < set(found)


def test_conditions_are_carried_and_absent_ones_mean_ready_and_serving() -> None:
    down = endpoint("10.244.0.2", "b", ready=False, serving=False, terminating=True)
    ends = endpoint("10.244.0.3", "c", ready=False, terminating=True)
    a, b, c = (each.backend for each in joined([endpoint_slice(endpoint("10.244.0.1", "a"), down, ends)]))
    assert (a.ready, a.serving, a.terminating, a.node_name) == (True, True, False, "n1")
    assert (b.ready, b.serving, b.terminating) == (False, False, True)
    assert (c.ready, c.serving, c.terminating) == (False, True, True)


def test_a_gated_ip_gets_connections_unless_its_pod_terminates() -> None:
    waiting = endpoint("10.244.0.1", "a", ready=False, serving=False)
    ending = endpoint("10.244.0.2", "b", ready=False, serving=True, terminating=True)
    other = endpoint("10.244.0.3", "c", ready=False, serving=False)
    found = joined([endpoint_slice(waiting, ending, other)], gatedIPs=["10.244.0.1", "10.244.0.2"])
    assert [(each.name, each.endpoint.ready, each.endpoint.serving) for each in found] == [
        ("a", True, True),
        ("b", False, True),
        ("c", False, False),
    ]


def test_a_gated_ip_has_the_hints_of_all_others_so_that_these_count() -> None:
    hinted = [
        {**endpoint(f"10.244.0.{number}", zone, node=f"n-{zone}"), "hints": {"forZones": [{"name": zone}]}}
        for number, zone in enumerate("ab", 1)
    ]
    waiting = endpoint("10.244.0.3", "c", ready=False, serving=False)
    found = joined([endpoint_slice(*hinted), endpoint_slice(waiting)], gatedIPs=["10.244.0.3"])
    assert [each.endpoint.zones for each in found] == [("a",), ("b",), ("a", "b")]


def test_an_endpoint_outside_the_cluster_has_no_node() -> None:
    (found,) = joined([endpoint_slice({"addresses": ["192.0.2.1"]})])
    assert found.backend.node_name is None


def test_only_the_first_address_counts() -> None:
    assert backend_names(endpoint_slice({"addresses": ["10.244.0.1", "10.244.0.2"]})) == ["10-244-0-1-8080"]


def test_too_many_endpoints_are_cut_the_ready_ones_first() -> None:
    def part(number: int) -> Slice:
        several = range(number * 1000, min(number * 1000 + 1000, BACKENDS_MAX + 10))
        return endpoint_slice(
            *(endpoint(f"10.244.{i // 250}.{i % 250 + 1}", f"p{i:05}", ready=i >= 10) for i in several),
            name=f"web-{number}",
        )

    endpoints, total = resolved([part(number) for number in range(5)])
    assert (len(endpoints), total) == (BACKENDS_MAX, BACKENDS_MAX + 10)
    assert [each.name for each in endpoints] == [f"p{i:05}" for i in range(10, BACKENDS_MAX + 10)]
    assert all(each.endpoint.ready for each in endpoints)


def test_a_lower_limit_is_kept_and_all_are_counted() -> None:
    several = endpoint_slice(*(endpoint(f"10.244.0.{i}", ready=i > 2) for i in range(1, 6)))
    reference = BackendsFrom(service="web", port="http")
    endpoints, total = resolve([reference], "default", "ipv4", "TCP", [several], most=2)
    assert ([each.ip for each in endpoints], total) == (["10.244.0.3", "10.244.0.4"], 5)


def test_overrides_apply_to_the_endpoints_of_their_pod() -> None:
    pods = endpoint_slice(endpoint("10.244.0.1", "a"), endpoint("10.244.0.2", "b"), endpoint("10.244.0.3"))
    overrides = [{"pod": "a", "weight": 3, "state": "drain"}, {"pod": "elsewhere", "weight": 9}]
    found = {each.ip: each.backend for each in joined([pods], overrides=overrides)}
    assert [(backend.weight, backend.state) for backend in found.values()] == [(1, "up"), (3, "drain"), (1, "up")]
    assert found["10.244.0.1"].weight == 3
    assert [backend.name for backend in found.values()] == ["10-244-0-3-8080", "a", "b"]


def test_each_endpoint_of_a_pod_has_its_options_but_one_the_mark() -> None:
    slices = [
        endpoint_slice(endpoint("10.244.0.1", "a")),
        endpoint_slice(endpoint("10.244.0.1", "a"), name="x", ports=[{**HTTP, "port": 9090}]),
    ]
    found = joined(slices, overrides=[{"pod": "a", "weight": 3, "mark": 16}])
    assert [(each.backend.weight, each.backend.mark) for each in found] == [(3, 16), (3, None)]


ALL_OPTIONS = {
    "weight": 3,
    "priority": 2,
    "sourceAddress": "10.0.0.9",
    "mark": 16,
    "established": 50,
    "establishedLogPrefix": "many",
    "state": "drain",
}


@pytest.mark.parametrize("overrides", [[], [{"pod": "a", **ALL_OPTIONS}]], ids=["defaults", "all options"])
@pytest.mark.parametrize("keep_port", [False, True])
def test_a_backend_is_equal_to_one_that_was_validated(overrides: list[dict[str, Any]], *, keep_port: bool) -> None:
    hints = {"hints": {"forZones": [{"name": "zone-a"}], "forNodes": [{"name": "n1"}, {"name": "n2"}]}}
    pods = endpoint_slice({**endpoint("10.244.0.1", "a", ready=False, serving=True), **hints}, endpoint("10.244.0.2"))
    found = [each.backend for each in joined([pods], keepPort=keep_port, overrides=overrides)]
    written = [backend.model_dump(mode="json", by_alias=True, exclude_none=True) for backend in found]
    assert found == [Backend.model_validate(raw) for raw in written]
    assert [backend.for_nodes for backend in found if backend.name == "a"] == [("n1", "n2")]
    assert [backend.weight for backend in found] == [1, 3 if overrides else 1]


def test_a_farm_has_the_backends_that_it_refers_to() -> None:
    spec = farm(backends=[], backendsFrom=[{"service": "web", "port": "http"}]).spec
    slices = [endpoint_slice(endpoint("10.244.0.1", "a"))]
    found = resolved_spec(spec, "default", slices)
    assert found.backends == (Backend(name="a", ip="10.244.0.1", port=8080, node_name="n1"),)
    assert (found.backends_from, found.addresses) == (spec.backends_from, spec.addresses)
    assert resolved_spec(spec, "default", []).backends == ()
    FarmSpec.model_validate({**found.model_dump(by_alias=True), "backendsFrom": []})


def test_a_farm_with_backends_written_by_hand_is_as_it_was() -> None:
    spec = farm(backends=[raw_backend("mine", "10.244.0.9")]).spec
    assert resolved_spec(spec, "default", [endpoint_slice(endpoint("10.244.0.1", "a"))]) is spec


@pytest.mark.parametrize("engine", ["nftlb", "nftables"])
@pytest.mark.parametrize(
    "more",
    [
        pytest.param({}, id="plain"),
        pytest.param({"persistence": "srcip", "trafficPolicy": "Local"}, id="sticky and local"),
        pytest.param({"protocol": "UDP"}, id="no endpoints"),
        pytest.param({"overrides": [{"pod": "a", "weight": 3, "sourceAddress": "10.1.0.1"}]}, id="overrides"),
    ],
)
def test_a_farm_has_as_many_elements_with_blank_backends(engine: str, more: dict[str, Any]) -> None:
    reference = {"service": "web", "port": "http", "overrides": more.pop("overrides", [])}
    spec = farm(backends=[], backendsFrom=[reference], mode="snat", engine=engine, **more).spec
    slices = [endpoint_slice(endpoint("10.244.0.1", "a"), endpoint("10.244.0.2", "b"), endpoint("10.244.0.1", "c"))]
    assert elements(sized_spec(spec, "default", slices), 2) == elements(resolved_spec(spec, "default", slices), 2)


def test_the_limit_of_backends_counts_for_blank_ones_too() -> None:
    spec = farm(backends=[], backendsFrom=[{"service": "web", "port": "http"}]).spec
    slices = [
        endpoint_slice(
            *(endpoint(f"10.{each}.{number >> 8}.{number & 255}") for number in range(1, 1001)), name=str(each)
        )
        for each in range(5)
    ]
    assert len(sized_spec(spec, "default", slices).backends) == BACKENDS_MAX


def test_references_are_resolved_one_after_the_other() -> None:
    slices = [
        endpoint_slice(endpoint("10.244.0.2", "b"), endpoint("10.244.0.1", "a")),
        endpoint_slice(endpoint("10.244.0.1", "a"), endpoint("10.244.0.9", "c"), name="api-1", service="api"),
    ]
    references = [BackendsFrom(service=name, port="http") for name in ("web", "gone", "api")]
    found = resolve(references, "default", "ipv4", "TCP", slices, BACKENDS_MAX)
    assert [(each.group, each.ip) for each in found.endpoints if each.name != "c"] == [
        (0, "10.244.0.1"),
        (0, "10.244.0.2"),
        (2, "10.244.0.1"),
    ]
    assert [each.backend.group for each in found.endpoints] == [0, 0, 2, 2]
    assert len({each.name for each in found.endpoints}) == found.total == 4, "a pod in two groups has two names"
    assert services([*references, *references, BackendsFrom(refuse=True)], "default") == (
        ServiceKey("default", "web"),
        ServiceKey("default", "gone"),
        ServiceKey("default", "api"),
    )


@pytest.mark.parametrize(
    ("sizes", "most", "used"),
    [
        ((1, 2), 3, [1, 2]),
        ((5, 1), 4, [3, 1]),
        ((5, 5, 0), 4, [2, 2, 0]),
        ((9, 2, 9), 9, [3, 2, 4]),
    ],
)
def test_no_reference_takes_the_room_of_others(sizes: tuple[int, ...], most: int, used: list[int]) -> None:
    slices = [
        endpoint_slice(
            *(endpoint(f"10.{group}.0.{number}") for number in range(1, size + 1)),
            name=f"s{group}",
            service=f"s{group}",
        )
        for group, size in enumerate(sizes)
    ]
    references = [BackendsFrom(service=f"s{group}", port="http") for group in range(len(sizes))]
    found = resolve(references, "default", "ipv4", "TCP", slices, most)
    assert [sum(each.group == group for each in found.endpoints) for group in range(len(sizes))] == used
    assert found.total == sum(sizes)


def test_a_reference_with_a_namespace_gets_the_endpoints_of_the_service_there() -> None:
    own = endpoint_slice(endpoint("10.244.0.1", "own"))
    foreign = endpoint_slice(endpoint("10.244.0.2", "foreign"), namespace="other")
    references = [BackendsFrom(service="web", port="http"), BackendsFrom(namespace="other", service="web", port="http")]
    assert services(references, "default") == (ServiceKey("default", "web"), ServiceKey("other", "web"))
    found = resolve(references, "default", "ipv4", "TCP", [foreign, own], BACKENDS_MAX).endpoints
    assert [(each.name, each.group) for each in found] == [("own", 0), ("foreign", 1)]
