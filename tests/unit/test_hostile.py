"""Hostile input is either refused or harmless."""

import contextlib
import copy
import json
import re
import string
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from kube_nftlb import names
from kube_nftlb.agent import resolve
from kube_nftlb.agent.engine.nftlb.translate import translate
from kube_nftlb.agent.farm_objects import parse
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.sync.progress import Problem
from kube_nftlb.agent.table import base as base_
from kube_nftlb.agent.table import layout as layout_
from kube_nftlb.agent.table import policies, policy_references, policy_sets
from kube_nftlb.agent.table.unserved import POOL_SETS
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm, FarmSpec
from kube_nftlb.api.node import NodeStatus
from kube_nftlb.api.policy import PolicyKey
from kube_nftlb.api.schema.reference import rows
from kube_nftlb.api.schema.structural import structural
from kube_nftlb.api.values import PERSISTENCE_SETS
from kube_nftlb.endpointslices.backends import resolved_spec
from kube_nftlb.netfilter.table_text import State, changes, combined, creation
from kube_nftlb.nftlb import encoding, layout, objects
from kube_nftlb.operator.cache.farm_record import parse_farm
from kube_nftlb.operator.cache.node_record import parse_node
from kube_nftlb.operator.farms.builder import build
from kube_nftlb.operator.model.pods import parse_pod, slim
from tests import builders
from tests.builders import endpoint, endpoint_slice, service
from tests.builders.metadata import raw_metadata
from tests.hostile import FARM, FARM_PATHS, TEXTS, VALUES, check_commands, check_wire, examples, replaced
from tests.views import overlay

KEY = FarmKey("default", "web--http")
REFERENCE = {"service": "web", "port": "http", "overrides": [{"pod": "web-1"}]}
REFERRING = {**FARM, "backends": [], "backendsFrom": [REFERENCE]}
DENYING = policy_sets.policy({"metadata": {"namespace": "default", "name": "x"}, "spec": {"type": "deny"}})
SCHEMA = structural(FarmSpec)


def trying(examples: int) -> settings:
    """Try so many examples, also where few of those that are generated can be used."""
    return settings(max_examples=examples, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


texts = st.one_of(st.sampled_from(TEXTS), st.text(), st.text(string.printable, max_size=60))
junk = st.recursive(
    st.one_of(st.sampled_from(VALUES), st.none(), st.booleans(), st.integers(), st.floats(), texts),
    lambda inside: st.one_of(st.lists(inside, max_size=3), st.dictionaries(texts, inside, max_size=3)),
    max_leaves=6,
)


@st.composite
def spoiled(draw: st.DrawFn, value: str) -> str:
    """Generate allowed values with something forbidden in them."""
    at = draw(st.integers(0, len(value)))
    return value[:at] + draw(texts) + value[at:]


def schema_of(path: list[str]) -> dict[str, Any]:
    node = SCHEMA
    for key in path:
        node = node.get("items", node)["properties"][key]
    return node


def allowed(node: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Generate values that the API server accepts for a field, and a bit more (strings with a trailing line feed)."""
    if "enum" in node:
        return st.sampled_from(node["enum"])
    if any("isIP" in rule["rule"] for rule in node.get("x-kubernetes-validations", ())):
        return st.one_of(st.ip_addresses().map(str), st.sampled_from(("10.1.2.3", "fd00::7")))
    if node.get("x-kubernetes-int-or-string"):
        return st.one_of(st.integers(1, 65535), st.sampled_from(("http", *TEXTS)))
    match node["type"]:
        case "string" if "pattern" in node:
            likely = [text for text in ("10.1.2.3", "fd00::7", "02:00:00:00:00:01") if re.search(node["pattern"], text)]
            return st.one_of(st.from_regex(node["pattern"]), *(st.just(text) for text in likely))
        case "string":
            return texts
        case "integer":
            return st.integers(node.get("minimum", 0), node.get("maximum", 2**31))
        case "boolean":
            return st.booleans()
        case "array":
            return st.lists(allowed(node["items"]), min_size=node.get("minItems", 0), max_size=3)
        case _:
            inside = {name: allowed(child) for name, child in node["properties"].items()}
            required = {name: inside.pop(name) for name in node.get("required", ())}
            return st.fixed_dictionaries(required, optional=inside)


@st.composite
def farm_specs(draw: st.DrawFn) -> dict[str, Any]:
    """Generate a valid farm with one to three fields changed to a valid or spoiled value or junk."""
    spec = copy.deepcopy(FARM)
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(FARM_PATHS))
        value = draw(allowed(schema_of(path)))
        kind = draw(st.sampled_from(("good", "good", "spoiled", "junk")))
        if kind == "junk":
            value = draw(junk)
        elif kind == "spoiled" and isinstance(value, str):
            value = draw(spoiled(value))
        if path[0] == "backendsFrom":
            spec = {**spec, "backends": [], "backendsFrom": spec.get("backendsFrom", [REFERENCE])}
        spec = replaced(spec, path, value)
    return spec


def raw_farm(spec: Any, name: str = "web--http", namespace: str = "default") -> dict[str, Any]:
    """A farm whose whole spec is the given one, which need not be an object."""
    return {**builders.raw_farm(name, namespace=namespace), "spec": spec}


SLICES = [
    endpoint_slice(*(endpoint(f"10.1.2.{n}", text) for n, text in enumerate(TEXTS, 1)), name="texts"),
    endpoint_slice(endpoint("10.1.3.1", "web-1")),
]
HERE = NodeFacts("here", "a", {"ipv4": ("172.31.0.11",), "ipv6": ("fd00:31::b",)})


def check_farm(farm: Farm) -> None:
    """Check what results from an accepted farm, for an empty nftlb and for one with another state."""
    had = objects.parse(
        {"farms": [{"name": "x", "log-prefix": "old", "est-connlimit": "3", "source-addr": "10.0.0.9"}]}
    )
    farm = farm.model_copy(update={"spec": resolved_spec(farm.spec, farm.metadata.namespace, SLICES)})
    for present in (None, had["x"]):
        node_farm = resolve.node_farm(farm, HERE, None)
        seen = translate(node_farm, present)
        check_wire([seen.wire()])
        known = policies.Policies()
        known.refer(KEY, policy_references.references(farm))
        known.put_all({PolicyKey(KEY.namespace, name): DENYING for name in farm.spec.policies})
        # Without what all farms share, which is the same whatever a farm says.
        rules = known.rules(KEY, node_farm.name, node_farm.listeners)
        own = combined([overlay(node_farm, seen), rules])
        check_commands(creation(layout_.TABLE, own))
        check_commands(changes(layout_.TABLE, own, State()))


@trying(200)
@given(farm_specs(), st.sampled_from(("web--http", "x" * 253)), st.sampled_from(("default", "n" * 63)))
def test_a_farm_is_refused_or_what_is_sent_is_plain(spec: dict[str, Any], name: str, namespace: str) -> None:
    farm = parse(raw_farm(spec, name, namespace))
    if isinstance(farm, Farm):
        check_farm(farm)
    else:
        assert farm.reason == "Invalid"
        assert farm.message


@trying(100)
@given(junk)
def test_a_spec_that_is_none_is_refused(spec: Any) -> None:
    assert isinstance(parse(raw_farm(spec)), Problem)


@pytest.mark.parametrize("times", [1, pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.parametrize("path", FARM_PATHS, ids=".".join)
def test_every_field_takes_good_values_that_are_plain_on_the_wire(path: list[str], times: int) -> None:
    """Otherwise the tests above could pass because everything is refused."""
    accepted = 0
    values = allowed(schema_of(path))
    if len(path) == 1 and isinstance(own := FARM.get(path[0]), list) and own:
        # The fields of a random item seldom suit each other: beside such, the farm's own items.
        values |= st.lists(
            st.one_of(st.sampled_from(own), allowed(SCHEMA["properties"][path[0]]["items"])), min_size=1, max_size=2
        )

    @trying(times * (40 if len(path) == 1 else 10))
    @given(values)
    def check(value: Any) -> None:
        nonlocal accepted
        base = REFERRING if path[0] == "backendsFrom" else FARM
        for change in ({}, {"mode": "dnat"}, {"scheduler": "hash"}, {"protocol": "UDP"}):
            farm = parse(raw_farm(replaced({**base, **change}, path, value)))
            if isinstance(farm, Farm):
                accepted += 1
                check_farm(farm)

    check()
    assert accepted, f"no value of {path} was accepted"


@trying(200)
@given(st.one_of(junk, st.fixed_dictionaries({"type": st.sampled_from(("allow", "deny")), "cidrs": junk})))
@example({"type": "deny", "cidrs": TEXTS})
@example({"type": "deny", "cidrs": ["10.0.0.0/8", "fd00::/8"]})
def test_of_a_policy_only_ranges_reach_nft(spec: Any) -> None:
    raw = {"metadata": {"namespace": "default", "name": "list"}, "spec": spec}
    check_commands(creation(layout_.TABLE, combined([policy_sets.policy(raw).contents])))


@pytest.mark.parametrize("text", TEXTS)
def test_no_text_gets_through_a_policy_s_name(text: str) -> None:
    for namespace, name in (("default", text), (text, "list")):
        found = policy_sets.policy({"metadata": {"namespace": namespace, "name": name}, "spec": {"type": "deny"}})
        check_commands(creation(layout_.TABLE, combined([found.contents])))


def test_what_all_farms_share_is_plain() -> None:
    check_commands(creation(layout_.TABLE, combined([base_.base(base_.SET_NAMES | POOL_SETS)])))


@pytest.mark.parametrize("text", TEXTS)
def test_no_text_gets_through_a_farm_s_name(text: str) -> None:
    for name, namespace in ((text, "default"), ("web", text)):
        farm = parse(raw_farm(FARM, name, namespace))
        if isinstance(farm, Farm):
            check_farm(farm)


def test_no_farm_has_the_name_of_another_namespace_s_farm_in_nftlb() -> None:
    """Even without the API server's rule against dots in the names of farms."""
    pairs = [
        ("default", "shop.web"),
        ("shop", "web"),
        ("shop", "web.x"),
        ("default", "web"),
        ("default", "default.web"),
    ]
    assert len({names.node_farm_name(*pair) for pair in pairs}) == len(pairs)
    assert isinstance(parse(raw_farm(FARM, "shop.web")), Problem)


def test_the_examples_of_the_functional_test_are_plain_or_refused() -> None:
    farms = [parse(raw_farm(spec)) for spec in examples(500)]
    accepted = [farm for farm in farms if isinstance(farm, Farm)]
    assert 10 < len(accepted) < 400
    for farm in accepted:
        check_farm(farm)


@trying(100)
@given(junk)
def test_a_node_s_status_is_read_or_refused_whatever_it_is(status: Any) -> None:
    raw = {"metadata": {"name": "n1", "resourceVersion": "1"}, "status": status}
    parse_node(raw)
    with contextlib.suppress(ValidationError):
        NodeStatus.model_validate(status)


@trying(100)
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(("watermark", "failedFarms", "conditions", "versions"), junk)))
def test_the_fields_of_a_node_s_status_are_read_whatever_they_are(status: Any) -> None:
    record = parse_node({"metadata": {"name": "n1", "resourceVersion": "1"}, "status": status})
    assert record.watermark >= 0


@trying(100)
@given(st.one_of(farm_specs(), junk), junk)
def test_the_operator_reads_any_farm(spec: Any, status: Any) -> None:
    record, farm = parse_farm({**raw_farm(spec), "status": status}, None)
    assert record.invalid or farm is not None


ANNOTATIONS = sorted({row.short_annotation for row in rows() if row.annotation})


@trying(100)
@given(
    st.dictionaries(st.one_of(st.sampled_from(ANNOTATIONS), texts), texts, max_size=6),
    st.sampled_from(("TCP", "UDP", "SCTP")),
    st.sampled_from((["10.96.0.10"], ["10.96.0.10", "fd00::10"], ["fd00::10"])),
)
def test_no_annotation_takes_a_service_down(annotations: dict[str, str], protocol: str, ips: list[str]) -> None:
    ports = [{"name": "http", "port": 80, "protocol": protocol}]
    asked = service(annotations=annotations, clusterIP=ips[0], clusterIPs=ips, ports=ports)
    pod = slim({"metadata": {**raw_metadata("web-1"), "annotations": annotations}})
    options = parse_pod(pod).given if pod is not None else ()
    built = build(asked, ["web-1"], lambda _: options)
    assert len(built.farms) == len(ips)
    for wanted in built.farms:
        farm = parse(raw_farm(json.loads(json.dumps(wanted.spec))))
        assert isinstance(farm, Farm), farm
        check_farm(farm)
    for problem in built.problems:
        assert problem.message.isprintable() or len(problem.message) < 2000


@trying(100)
@given(st.sampled_from([*ANNOTATIONS]), st.sampled_from(TEXTS))
def test_an_invalid_annotation_is_reported(key: str, text: str) -> None:
    built = build(service(annotations={key: text}))
    assert built.farms
    (with_it,) = built.farms
    (without,) = build(service()).farms
    assert built.problems or with_it.spec != without.spec or text.strip() in ("", "0", "0x0", "-1"), (key, text)


@trying(100)
@given(
    st.sampled_from(PERSISTENCE_SETS),
    st.sampled_from(layout.FAMILIES),
    st.binary(min_size=4, max_size=32),
    st.sampled_from(("web--http", "x" * 253)),
)
def test_the_text_with_which_sessions_are_purged_is_plain(
    persistence: str, table: layout.TableFamily, key: bytes, name: str
) -> None:
    try:
        text = encoding.session_text(persistence, table, key)
    except ValueError:
        return
    assert set(text) <= set(string.hexdigits + ".: ")
    assert len(layout.sessions_map(names.node_farm_name("n" * 63, name))) <= 127
