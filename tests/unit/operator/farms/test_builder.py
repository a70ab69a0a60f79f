from typing import Any

import pytest
from pydantic import BaseModel

from kube_nftlb import names
from kube_nftlb.api.backend import Backend
from kube_nftlb.api.farm import OVERRIDES_MAX, BackendsFrom, FarmSpec, Override
from kube_nftlb.api.kubernetes.service import Service
from kube_nftlb.api.limits import Limits
from kube_nftlb.operator.farms.builder import Profile, build
from kube_nftlb.operator.farms.ports import port_keys
from kube_nftlb.operator.farms.spec import count_backends, digest, merge_patch
from kube_nftlb.operator.model.annotation_options import Given
from kube_nftlb.operator.model.pods import parse_pod, slim
from tests.annotations import GENEROUS
from tests.builders import raw_backend, raw_pod, service

DUAL: dict[str, Any] = {"clusterIPs": ["10.96.0.10", "fd00::10"]}


def test_every_port_and_family_is_a_farm_that_the_models_accept() -> None:
    ports = [{"name": "http", "port": 80, "protocol": "TCP"}, {"name": "dns", "port": 53, "protocol": "UDP"}]
    built = build(service(ports=ports, **DUAL))
    assert [wanted.port.plain_name for wanted in built.farms] == [
        "web--http",
        "web--http--ipv6",
        "web--dns",
        "web--dns--ipv6",
    ]
    for wanted in built.farms:
        FarmSpec.model_validate(wanted.spec)


def test_ports_past_the_most_are_told_and_not_served() -> None:
    ports = [{"name": f"p{number}", "port": number, "protocol": "TCP"} for number in range(1, 8001)]
    built = build(service(ports=ports, **DUAL), profile=Profile(ports_max=3))
    assert {wanted.port.port for wanted in built.farms} == {"p1", "p2", "p3"}
    (problem,) = built.problems
    assert (problem.reason, "port p4 and later ones" in problem.message) == ("TooManyPorts", True)


def test_auto_leaves_to_nftlb_what_the_other_engine_cannot_do_for_all_protocols() -> None:
    asked = service(annotations={"protocol": "all", "mark": "0x1000"})
    (farm,) = build(asked, profile=GENEROUS._replace(engine="auto")).farms
    assert (farm.spec["protocol"], farm.spec["engine"]) == ("All", "nftlb")
    assert build(service(), profile=Profile(engine="auto")).farms[0].spec["engine"] == "nftables"


def test_an_ipv6_only_service_has_no_ipv4_farm() -> None:
    built = build(service(clusterIP="fd00::10", clusterIPs=["fd00::10"]))
    assert [wanted.port.family for wanted in built.farms] == ["ipv6"]


def test_a_spec_names_every_field_of_the_model() -> None:
    (wanted,) = build(service()).farms
    unset = {name for name, field in FarmSpec.model_fields.items() if not field.is_required() and field.default is None}
    unset.remove("service_creation_timestamp")
    assert set(wanted.spec) == {field.alias for name, field in FarmSpec.model_fields.items() if name not in unset}
    assert merge_patch(wanted.spec).keys() == {field.alias for field in FarmSpec.model_fields.values()}
    assert merge_patch(wanted.spec)["limits"].keys() == set(aliases(Limits))
    (reference,) = wanted.spec["backendsFrom"]
    assert reference.keys() == set(aliases(BackendsFrom)) - {"namespace", "gatedIPs"}


def test_a_merge_patch_replaces_the_list_of_references() -> None:
    (gated,) = build(service(), gated_ips={"ipv4": ["10.244.0.1"], "ipv6": ["fd00::1"]}).farms
    (reference,) = merge_patch(gated.spec)["backendsFrom"]
    assert reference["gatedIPs"] == ["10.244.0.1"]


@pytest.mark.parametrize(
    "refused",
    [
        pytest.param({"clusterIP": "None", "clusterIPs": ["None"]}, id="a headless Service"),
        pytest.param({"clusterIP": "", "clusterIPs": None}, id="a Service without an address yet"),
        pytest.param({"type": "ExternalName"}, id="an ExternalName Service"),
        pytest.param({"labels": {names.LABEL_PROXY_NAME: ""}}, id="a Service of another proxy"),
    ],
)
def test_no_farm_is_made_of(refused: dict[str, Any]) -> None:
    assert build(service(**refused)).farms == ()
    assert port_keys(service(**refused), 1024) == ()


@pytest.mark.parametrize(
    ("asked", "reference"),
    [
        pytest.param(service(), {"service": "web", "port": "http", "keepPort": False}, id="a port with a name"),
        pytest.param(service("shop"), {"service": "shop", "port": "http", "keepPort": False}, id="another Service"),
        pytest.param(
            service(ports=[{"port": 80, "protocol": "TCP", "targetPort": 8080}]),
            {"service": "web", "keepPort": False},
            id="a port without a name",
        ),
        pytest.param(
            service(annotations={"protocol": "all"}),
            {"service": "web", "port": "http", "keepPort": True},
            id="all ports, as the client asked",
        ),
        pytest.param(
            service(annotations={"ports": "8000-8100"}),
            {"service": "web", "port": "http", "keepPort": True},
            id="several ports, as the client asked",
        ),
        pytest.param(
            service(annotations={"ports": "81"}, ports=[{"name": "http", "port": 80, "targetPort": 8080}]),
            {"service": "web", "port": "http", "keepPort": False},
            id="several ports that all go to the targetPort",
        ),
    ],
)
def test_a_farm_refers_to_the_endpoints_of_its_port(asked: Service, reference: dict[str, Any]) -> None:
    (wanted,) = build(asked).farms
    whole = {"port": "", **reference, "weight": 1, "refuse": False, "overrides": []}
    assert wanted.spec["backendsFrom"] == [whole]
    assert wanted.spec["backends"] == []
    assert FarmSpec.model_validate(wanted.spec).backends_from == (BackendsFrom.model_validate(reference),)


def test_each_farm_refers_to_its_own_port() -> None:
    ports = [{"name": "http", "port": 80, "protocol": "TCP"}, {"name": "dns", "port": 53, "protocol": "UDP"}]
    built = build(service(ports=ports, **DUAL))
    assert [wanted.spec["backendsFrom"][0]["port"] for wanted in built.farms] == ["http", "http", "dns", "dns"]


@pytest.mark.parametrize(
    ("port", "ingress", "having"),
    [
        pytest.param({}, [], ["web--http"], id="no external address yet"),
        pytest.param({}, [{"hostname": "a.example"}], ["web--http"], id="a load balancer with a name alone"),
        pytest.param({}, [{"ip": "192.0.2.1"}], ["web--http--external"], id="the farm that has the external ones"),
        pytest.param({"nodePort": 30080}, [], ["web--http--external"], id="or the node port"),
    ],
)
def test_a_load_balancer_service_with_local_has_its_health_check_port(
    port: dict[str, Any], ingress: list[dict[str, Any]], having: list[str]
) -> None:
    built = build(
        service(
            type="LoadBalancer",
            externalTrafficPolicy="Local",
            healthCheckNodePort=32000,
            ports=[{"name": "http", "port": 80, **port}],
            status={"loadBalancer": {"ingress": ingress}},
        )
    )
    assert [each.port.plain_name for each in built.farms if each.spec.get("healthCheckNodePort") == 32000] == having
    assert all("healthCheckNodePort" not in each.spec for each in build(service(healthCheckNodePort=32000)).farms)


def options(**annotations: str) -> Given:
    kept = slim(raw_pod(annotations=annotations))
    assert kept is not None
    return parse_pod(kept).given


def overrides(pods: dict[str, Given], **asked: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """The overrides of the only farm of a Service with these pods, and all problems."""
    built = build(service(**asked), sorted(pods), lambda pod: pods[pod], GENEROUS)
    (wanted,) = built.farms
    FarmSpec.model_validate(wanted.spec)
    return wanted.spec["backendsFrom"][0]["overrides"], [problem.message for problem in built.problems]


def test_annotations_of_pods_are_overrides_sorted_by_pod() -> None:
    pods = {"b": options(weight="3"), "a": options(state="drain", weight="2")}
    assert overrides(pods) == ([{"pod": "a", "weight": 2, "state": "drain"}, {"pod": "b", "weight": 3}], [])


def test_a_pod_whose_annotations_have_no_effect_has_no_override() -> None:
    pods = {"a": options(**{"source-addr": "fd00::9"}), "b": options(weight="many"), "c": options(weight="3")}
    assert overrides(pods) == ([{"pod": "c", "weight": 3}], [])


@pytest.mark.parametrize("annotations", [{"mode": "dnat"}, {"protocol": "all"}])
def test_an_option_that_the_farm_cannot_have_is_ignored(annotations: dict[str, str]) -> None:
    given = options(weight="3", **{"source-addr": "10.0.0.9"})
    found, (message,) = overrides({"a": given, "b": given}, annotations=annotations)
    assert found == [{"pod": "a", "weight": 3}, {"pod": "b", "weight": 3}]
    assert "source-addr: of the Pod a and others" in message


def test_a_mark_belongs_to_the_first_of_several_pods() -> None:
    pods = {name: options(mark="16", weight="3") for name in "cba"} | {"d": options(mark="17")}
    found, messages = overrides(pods)
    assert found == [
        {"pod": "a", "weight": 3, "mark": 16},
        {"pod": "b", "weight": 3},
        {"pod": "c", "weight": 3},
        {"pod": "d", "mark": 17},
    ]
    assert [message.partition("mark: ")[2] for message in messages] == [
        "backends a and b both ask for 16; a gets it",
        "backends a and c both ask for 16; a gets it",
    ]


def test_a_duplicate_mark_in_several_farms_is_one_problem() -> None:
    given = options(mark="16")
    built = build(service(**DUAL), ["a", "b"], lambda _: given, GENEROUS)
    assert [wanted.spec["backendsFrom"][0]["overrides"] for wanted in built.farms] == [
        [{"pod": "a", "mark": 16}, {"pod": "b"}]
    ] * 2
    assert len(built.problems) == 1


def test_of_many_duplicate_marks_a_few_are_reported() -> None:
    found, messages = overrides({f"p{number:02}": options(mark="16") for number in range(20)})
    assert [override["pod"] for override in found if "mark" in override] == ["p00"]
    assert len(messages) == 5


def test_of_too_many_pods_with_annotations_the_first_count() -> None:
    pods = [f"p{number:05}" for number in range(OVERRIDES_MAX + 2)]
    given = options(weight="3")
    built = build(service(), pods, lambda _: given)
    spec = built.farms[0].spec
    FarmSpec.model_validate(spec)
    assert [override["pod"] for override in spec["backendsFrom"][0]["overrides"]] == pods[:OVERRIDES_MAX]
    (problem,) = built.problems
    assert problem.reason == "TooManyOverrides"
    assert problem.message == (
        "1026 of its Pods have annotations; those of p01024 and later ones are ignored, the limit is 1024"
    )


def test_the_farms_of_a_service_share_what_annotations_of_pods_say() -> None:
    ports = [{"name": f"p{number}", "port": number, "protocol": "TCP"} for number in range(1, 4)]
    farms = build(service(ports=ports), ["a"], lambda _: options(weight="3")).farms
    (shared,) = {id(farm.spec["backendsFrom"][0]["overrides"]) for farm in farms}
    assert shared


def test_as_many_pods_with_annotations_as_allowed_are_no_problem() -> None:
    pods = [f"p{number:05}" for number in range(OVERRIDES_MAX)]
    given = options(weight="3")
    assert build(service(), pods, lambda _: given).problems == ()


def test_a_digest_does_not_mind_order_and_defaults() -> None:
    given = options(weight="3")
    spec = build(service(), ["a", "b"], lambda _: given).farms[0].spec
    short = {key: value for key, value in spec.items() if key in ("addresses", "serviceCreationTimestamp")}
    short["backendsFrom"] = [
        {
            "overrides": [{"weight": 3, "pod": "b"}, {"pod": "a", "weight": 3, "state": "up"}],
            "port": "http",
            "service": "web",
            "fieldOfANewerVersion": 1,
        }
    ]
    short["masquerade"] = "AsNeeded"
    short["fieldOfANewerVersion"] = 1
    assert digest(short) == digest(spec)
    short["backendsFrom"][0]["overrides"][0]["weight"] = 1
    assert digest(short) != digest(spec)


def test_a_digest_covers_backends_in_any_order() -> None:
    one, other = raw_backend("a", "10.244.0.1"), raw_backend("b", "10.244.0.2", ready=False)
    spec = {**build(service()).farms[0].spec, "backends": [one, other], "backendsFrom": []}
    assert digest(spec) == digest({**spec, "backends": [other, {**one, "weight": 1}]})
    assert digest(spec) != digest({**spec, "backends": [other, {**one, "weight": 2}]})
    assert (count_backends(spec), count_backends({})) == ((1, 2), (0, 0))


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
    spec = build(service()).farms[0].spec
    assert digest({**spec, key: one}) == digest({**spec, key: other}) != digest(spec)


def aliases(model: type[BaseModel]) -> list[str]:
    return [str(field.alias) for field in model.model_fields.values()]


def test_a_digest_covers_every_field() -> None:
    given = options(weight="3")
    spec = build(service(), ["a"], lambda _: given).farms[0].spec
    spec["backends"] = [raw_backend("a", "10.244.0.1")]
    (reference,), (backend,) = spec["backendsFrom"], spec["backends"]
    (override,) = reference["overrides"]
    specs = [spec]
    specs.extend({**spec, alias: _other(alias)} for alias in aliases(FarmSpec))
    specs.extend({**spec, "limits": {alias: "y"}} for alias in aliases(Limits))
    specs.extend({**spec, "backends": [{**backend, alias: "z"}]} for alias in aliases(Backend))
    specs.extend({**spec, "backendsFrom": [{**reference, alias: _other(alias)}]} for alias in aliases(BackendsFrom))
    specs.extend(
        {**spec, "backendsFrom": [{**reference, "overrides": [{**override, alias: "z"}]}]}
        for alias in aliases(Override)
    )
    assert len({digest(each) for each in specs}) == len(specs)


def _other(field: str) -> Any:
    return {
        "addresses": [{"ip": "10.0.0.1"}],
        "backends": [],
        "backendsFrom": [],
        "limits": {"tcpStrict": "x"},
        "overrides": [],
        "sessions": [{"client": "1", "backend": "b"}],
        "policies": ["p"],
    }.get(field, f"x-{field}")
