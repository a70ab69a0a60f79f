from collections.abc import Iterable
from typing import Any

import pytest
from pydantic import BaseModel

from kube_nftlb import names
from kube_nftlb.api.backend import Backend
from kube_nftlb.api.farm import BACKENDS_MAX, FarmSpec
from kube_nftlb.api.limits import Limits
from kube_nftlb.operator.cache.slices import Slice, parse_slice
from kube_nftlb.operator.farms.backends import by_port, join
from kube_nftlb.operator.farms.builder import build
from kube_nftlb.operator.farms.ports import port_keys
from kube_nftlb.operator.farms.spec import count_backends, digest, fitting_backends, merge_patch
from tests.builders import endpoint, endpoint_slice, raw_slice, service

DUAL: dict[str, Any] = {"clusterIPs": ["10.96.0.10", "fd00::10"]}


def joined(slices: Iterable[Slice], port: str = "http", protocol: str = "TCP", **options: Any) -> list[dict[str, Any]]:
    return join(by_port(slices).get((port, protocol), ()), **options).backends


def backend_names(*slices: Slice, port: str = "http", protocol: str = "TCP") -> list[str]:
    return [backend["name"] for backend in joined(slices, port, protocol)]


def test_every_port_and_family_is_a_farm_that_the_models_accept() -> None:
    ports = [{"name": "http", "port": 80, "protocol": "TCP"}, {"name": "dns", "port": 53, "protocol": "UDP"}]
    built = build(service(ports=ports, **DUAL), [endpoint_slice(endpoint("10.244.0.1", "p1"))])
    assert [wanted.port.plain_name for wanted in built.farms] == [
        "web--http",
        "web--http--ipv6",
        "web--dns",
        "web--dns--ipv6",
    ]
    for wanted in built.farms:
        FarmSpec.model_validate(wanted.spec)
    assert built.farms[0].spec["backends"][0]["name"] == "p1"
    assert built.farms[1].spec["backends"] == []


def test_an_ipv6_only_service_has_no_ipv4_farm() -> None:
    built = build(service(clusterIP="fd00::10", clusterIPs=["fd00::10"]), [])
    assert [wanted.port.family for wanted in built.farms] == ["ipv6"]


def test_a_spec_names_every_field_of_the_model() -> None:
    (wanted,) = build(service(), []).farms
    unset = {name for name, field in FarmSpec.model_fields.items() if not field.is_required() and field.default is None}
    assert set(wanted.spec) == {field.alias for name, field in FarmSpec.model_fields.items() if name not in unset}
    assert merge_patch(wanted.spec).keys() == {field.alias for field in FarmSpec.model_fields.values()}
    assert merge_patch(wanted.spec)["limits"].keys() == {field.alias for field in Limits.model_fields.values()}


@pytest.mark.parametrize(
    "refused",
    [
        pytest.param({"clusterIP": "None", "clusterIPs": ["None"]}, id="a headless Service"),
        pytest.param({"clusterIP": "", "clusterIPs": None}, id="a Service without an address yet"),
        pytest.param({"type": "ExternalName"}, id="an ExternalName Service"),
        pytest.param({"labels": {names.LABEL_PROXY_NAME: ""}}, id="a Service of another proxy"),
        pytest.param({"labels": {names.LABEL_HEADLESS: ""}}, id="a Service labelled headless"),
    ],
)
def test_no_farm_is_made_of(refused: dict[str, Any]) -> None:
    assert build(service(**refused), []).farms == ()
    assert port_keys(service(**refused)) == ()


@pytest.mark.parametrize(
    ("ports", "port", "expected"),
    [
        pytest.param(
            [{"name": "http", "port": 8080, "protocol": "TCP"}], "http", [8080], id="same name and protocol match"
        ),
        pytest.param([{"name": None, "port": 8080}], "", [8080], id="nil is the nameless port, and TCP"),
        pytest.param([{"name": "", "port": 8080}], "", [8080], id="so is an empty name"),
        pytest.param(
            [{"name": "http", "port": 8080, "protocol": "UDP"}], "http", [], id="another protocol does not match"
        ),
        pytest.param([{"name": "http", "port": None}], "http", [], id="a port without a number is skipped"),
        pytest.param([{"name": "http", "port": 0}], "http", [], id="a port 0 is skipped"),
        pytest.param(None, "other", [], id="another name does not match"),
    ],
)
def test_ports_are_matched(ports: list[dict[str, Any]] | None, port: str, expected: list[int]) -> None:
    assert [
        backend["port"] for backend in joined([endpoint_slice(endpoint("10.244.0.1"), ports=ports)], port, "TCP")
    ] == expected


def test_slices_are_joined_and_sorted_whatever_their_order() -> None:
    one, other = endpoint_slice(endpoint("10.244.0.2", "b")), endpoint_slice(endpoint("10.244.0.1", "a"), name="web-2")
    assert backend_names(one, other) == backend_names(other, one) == ["a", "b"]


def test_an_address_in_two_slices_is_one_backend_the_ready_one() -> None:
    slices = [
        endpoint_slice(endpoint("10.244.0.1", "a", ready=False)),
        endpoint_slice(endpoint("10.244.0.1", "a", ready=True), name="x"),
    ]
    for order in (slices, slices[::-1]):
        (backend,) = joined(order, "http", "TCP")
        assert backend["ready"] is True


def test_slices_may_have_different_numbers_for_one_port_name() -> None:
    other = endpoint_slice(
        endpoint("10.244.0.2", "b"), name="x", ports=[{"name": "http", "port": 9090, "protocol": "TCP"}]
    )
    assert [b["port"] for b in joined([endpoint_slice(endpoint("10.244.0.1", "a")), other], "http", "TCP")] == [
        8080,
        9090,
    ]


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
    assert backend_names(endpoint_slice(made_of, address_type=address_type)) == [expected]


def test_of_backends_with_one_name_the_lowest_address_keeps_it() -> None:
    found = backend_names(
        endpoint_slice(endpoint("10.244.0.2", "a"), endpoint("10.244.0.1", "a"), endpoint("10.244.0.3", "a"))
    )
    assert len(set(found)) == 3
    again = joined([endpoint_slice(endpoint("10.244.0.3", "a"), endpoint("10.244.0.1", "a"))], "http", "TCP")
    assert [b["name"] for b in again if b["ip"] == "10.244.0.1"] == ["a"]
    assert {b["name"] for b in again} < set(found)


def test_conditions_are_carried_and_absent_ones_mean_ready() -> None:
    slices = [
        endpoint_slice(
            endpoint("10.244.0.1", "a"), endpoint("10.244.0.2", "b", ready=False, serving=True, terminating=True)
        )
    ]
    (a, b) = joined(slices, "http", "TCP")
    assert (a["ready"], a["serving"], a["terminating"], a["nodeName"]) == (True, True, False, "n1")
    assert (b["ready"], b["serving"], b["terminating"]) == (False, True, True)


def test_an_endpoint_outside_the_cluster_has_no_node() -> None:
    (backend,) = joined([endpoint_slice({"addresses": ["192.0.2.1"]})], "http", "TCP")
    assert "nodeName" not in backend


def test_only_the_first_address_counts() -> None:
    assert backend_names(endpoint_slice({"addresses": ["10.244.0.1", "10.244.0.2"]})) == ["10-244-0-1-8080"]


@pytest.mark.parametrize(
    ("text", "address_type"),
    [
        ("10.244.0.300", "IPv4"),
        ("fd00::1", "IPv4"),
        ("10.244.0.1", "IPv6"),
        ("010.244.0.1", "IPv4"),
        ("0.0.0.0", "IPv4"),
        ("::ffff:10.0.0.1", "IPv6"),
        ("fe80::1%eth0", "IPv6"),
        ("; flush ruleset", "IPv4"),
    ],
)
def test_an_address_that_is_none_is_left_out_and_told_of(text: str, address_type: str) -> None:
    slices = [endpoint_slice(endpoint(text), address_type=address_type)]
    built = build(service(**DUAL), slices)
    assert [wanted.spec["backends"] for wanted in built.farms] == [[], []]
    assert [(problem.reason, text in problem.message) for problem in built.problems] == [("InvalidEndpoint", True)]


def test_an_address_is_written_in_its_canonical_form() -> None:
    (peer,) = endpoint_slice(endpoint("FD00:0::1"), address_type="IPv6").peers
    assert peer.ip == "fd00::1"


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(raw_slice(address_type="FQDN"), id="names instead of addresses"),
        pytest.param(raw_slice(service=""), id="no Service"),
        pytest.param(raw_slice(labels={names.LABEL_HEADLESS: ""}), id="a headless Service's"),
        pytest.param(raw_slice(labels={names.LABEL_PROXY_NAME: "x"}), id="another proxy's"),
    ],
)
def test_a_slice_without_use_is_skipped(raw: dict[str, Any]) -> None:
    assert parse_slice(raw) is None


def test_too_many_endpoints_are_cut_the_ready_ones_first() -> None:
    def address(i: int) -> str:
        return f"10.244.{i // 250}.{i % 250 + 1}"

    many = endpoint_slice(*(endpoint(address(i), f"p{i:05}", ready=i >= 10) for i in range(BACKENDS_MAX + 10)))
    built = build(service(), [many])
    backends = built.farms[0].spec["backends"]
    assert (len(backends), backends[0]["name"], backends == sorted(backends, key=lambda b: b["name"])) == (
        BACKENDS_MAX,
        "p00010",
        True,
    )
    assert [problem.reason for problem in built.problems] == ["TooManyEndpoints"]


def test_of_endpoints_with_long_names_no_more_are_taken_than_etcd_does() -> None:
    slices = [
        endpoint_slice(
            *(
                endpoint(
                    f"10.{number}.{each // 250}.{each % 250 + 1}", f"{'long-' * 30}{number}-{each}" if ready else ""
                )
                for each in range(1000)
            ),
            name=f"s{number}",
        )
        for number, ready in enumerate((True, True, True, False))
    ]
    built = build(service(), slices)
    spec = built.farms[0].spec
    assert 1000 < len(spec["backends"]) < 4000
    assert fitting_backends(spec) == len(spec["backends"])
    (problem,) = built.problems
    assert f"{len(spec['backends'])} are used" in problem.message


def test_a_service_with_very_many_endpoints_has_farms_for_its_first_ports() -> None:
    ports = [{"name": name, "port": port} for port, name in enumerate(("a", "b", "c"), 80)]
    some = endpoint_slice(endpoint("10.244.0.1", "p1"), endpoint("10.244.0.2", "p2"), ports=ports)
    built = build(service(ports=ports), [some], backends_max=5)
    assert [wanted.port.port for wanted in built.farms] == ["a", "b"]
    (problem,) = built.problems
    assert (problem.reason, "port c" in problem.message) == ("TooManyEndpoints", True)


def test_a_digest_does_not_mind_order_and_defaults() -> None:
    spec = build(service(), [endpoint_slice(endpoint("10.244.0.1", "a"), endpoint("10.244.0.2", "b"))]).farms[0].spec
    short = {key: value for key, value in spec.items() if key == "addresses"}
    short["backends"] = [
        {k: v for k, v in b.items() if k in ("name", "ip", "port", "nodeName")} for b in spec["backends"][::-1]
    ]
    short["masquerade"] = "AsNeeded"
    short["fieldOfANewerVersion"] = 1
    assert digest(short) == digest(spec)
    short["backends"][0]["port"] = 1
    assert digest(short) != digest(spec)
    assert count_backends(short) == (2, 2)


@pytest.mark.parametrize(
    ("key", "one", "other"),
    [
        ("policies", ["a", "b"], ["b", "a"]),
        (
            "sessions",
            [{"client": "10.0.0.1", "backend": "a"}, {"client": "10.0.0.2", "backend": "a"}],
            [{"backend": "a", "client": "10.0.0.2"}, {"backend": "a", "client": "10.0.0.1"}],
        ),
        ("limits", {"new": "5/second", "verdict": "drop"}, {"verdict": "drop", "new": "5/second", "tcpStrict": False}),
    ],
)
def test_a_digest_covers_what_is_nested_in_any_order(key: str, one: Any, other: Any) -> None:
    spec = build(service(), []).farms[0].spec
    assert digest({**spec, key: one}) == digest({**spec, key: other}) != digest(spec)


def aliases(model: type[BaseModel]) -> list[str]:
    return [str(field.alias) for field in model.model_fields.values()]


def test_a_digest_covers_every_field() -> None:
    spec = build(service(), [endpoint_slice(endpoint("10.244.0.1", "a"))]).farms[0].spec
    (backend,) = spec["backends"]
    seen = {digest(spec)}
    for alias in aliases(FarmSpec):
        seen.add(digest({**spec, alias: {"tcpStrict": "x"} if alias == "limits" else _other(alias)}))
    for alias in aliases(Limits):
        seen.add(digest({**spec, "limits": {alias: "y"}}))
    for alias in aliases(Backend):
        seen.add(digest({**spec, "backends": [{**backend, alias: "z"}]}))
    assert len(seen) == 1 + len(FarmSpec.model_fields) + len(Limits.model_fields) + len(Backend.model_fields)


def _other(field: str) -> Any:
    return {
        "addresses": [{"ip": "10.0.0.1"}],
        "backends": [],
        "sessions": [{"client": "1", "backend": "b"}],
        "policies": ["p"],
    }.get(field, f"x-{field}")
