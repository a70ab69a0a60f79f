import re
from pathlib import Path
from typing import Any

import pytest

from kube_nftlb import names
from kube_nftlb.api.schema import crd, reference
from kube_nftlb.operator.farms import annotations
from kube_nftlb.operator.model import pods
from tools import reference_page

PAGE = Path(__file__).parents[4] / "docs" / "reference.md"
ROWS = reference.rows()
BY_PATH = {row.full_path: row for row in ROWS}


def test_the_checked_in_page_is_what_the_models_say() -> None:
    assert PAGE.read_text() == reference_page.page(), "run `make reference`"


def test_the_page_has_each_annotation_and_the_texts_that_it_can_have() -> None:
    _, *tables = reference_page.page().split("## Annotations of a ")
    service, pod, gateway = (dict(re.findall(r"\n\| `([^`]+)` \| [^|]* \| ([^|]+) \|", each)) for each in tables)
    assert (set(service), set(pod)) == (set(annotations.KEYS), set(pods.KEYS))
    assert {key.removesuffix("LISTENER") for key in gateway} == {
        value for name, value in vars(names).items() if name.startswith(("ANNOTATION_GATEWAY_", "ANNOTATION_PORT_"))
    }
    assert service["protocol"].startswith("all;")
    assert service["new-rtlimit"].startswith("a rate such as 100, which is 100/second")


def test_every_field_that_the_api_server_knows_has_a_row_and_no_other_has() -> None:
    known = set()
    for kind, definition in zip(("pool", "peer", "farm", "node", "policy"), sorted(crd.definitions()), strict=True):
        schema = crd.definitions()[definition]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for part in ("spec", "status"):
            if part in schema["properties"]:
                known |= {f"{kind}.{path}" for path in _paths(part, schema["properties"][part])}
    assert known == set(BY_PATH)


def _paths(path: str, node: dict[str, Any]) -> set[str]:
    inside = node.get("items", node).get("properties", {})
    return {path}.union(*(_paths(f"{path}.{name}", child) for name, child in inside.items()))


def test_a_row_tells_all_of_a_field() -> None:
    row = BY_PATH["farm.spec.persistTTL"]
    assert (row.type, row.values, row.default, row.nftlb, row.annotated) == (
        "integer",
        "1 to 86400",
        "60",
        "persist-ttl",
        "Service",
    )
    assert row.annotation == f"{names.ANNOTATION_PREFIX}persist-ttl"
    assert "after its last new connection" in row.meaning
    assert BY_PATH["farm.spec.backendsFrom.overrides.weight"].annotated == "Pod"
    assert BY_PATH["farm.spec.backends.weight"].annotated == BY_PATH["farm.spec.backends.weight"].annotation == ""
    port = BY_PATH["farm.spec.backendsFrom.port"]
    assert (port.type, port.values, port.required) == ("integer or string", "at most 63 characters", False)
    assert BY_PATH["farm.spec.backendsFrom.weight"].default == "1"
    assert BY_PATH["farm.spec.scheduler"].values.startswith("one of rr, weight, ")
    assert BY_PATH["farm.spec.addresses"].required
    assert "separated by spaces" in BY_PATH["farm.spec.persistence"].values, "64 choices are told in words"
    assert any("ipv6" in rule for rule in BY_PATH["farm.spec"].rules)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("farm.spec.limits.new", ["farm.spec.limits.new"]),
        ("nftlbfarms.spec.limits.new", ["farm.spec.limits.new"]),
        ("spec.limits.new", ["farm.spec.limits.new"]),
        ("limits.new", ["farm.spec.limits.new"]),
        ("NEW-RTLIMIT", ["farm.spec.limits.new"]),
        ("schedparam", ["farm.spec.schedParam"]),
        ("spec.backends[].weight", ["farm.spec.backends.weight"]),
        ("policy.spec.cidrs", ["policy.spec.cidrs"]),
        ("policies", ["farm.spec.addresses.policies", "farm.spec.policies"]),
        ("nftlbpolicies", ["policy.spec", "policy.status"]),
        ("farmpool", ["pool.spec", "pool.status"]),
        ("farmpeer", ["peer.spec", "node.status.bgp.sessions.peer"]),
        ("farm", ["farm.spec", "farm.status"]),
        ("est-connlimit", ["farm.spec.limits.established", "farm.spec.backendsFrom.overrides.established"]),
        (f"{names.ANNOTATION_PREFIX}state", ["farm.spec.state", "farm.spec.backendsFrom.overrides.state"]),
        ("farm.status.backends", ["farm.status.backends"]),
        ("ew", []),
        ("", []),
    ],
)
def test_a_field_is_found_by_what_people_call_it(asked: str, found: list[str]) -> None:
    assert [row.full_path for row in reference.find(asked, ROWS)] == found


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("shceduler", "scheduler"),
        ("farm.spec.limits.neww", "spec.limits.new"),
        (f"{names.ANNOTATION_PREFIX}persist-tll", "persist-ttl"),
    ],
)
def test_a_slip_of_the_pen_is_answered_with_what_is_alike(asked: str, meant: str) -> None:
    assert reference.find(asked, ROWS) == []
    assert meant in reference.suggestions(asked, ROWS)
