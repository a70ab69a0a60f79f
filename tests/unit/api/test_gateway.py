"""The objects of Gateway API, as we read them."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from kube_nftlb.api.gateway.gateway import Gateway, GatewayClass, ListenerSet
from kube_nftlb.api.gateway.route import ReferenceGrant, Route
from kube_nftlb.api.gateway.selectors import AdmittedNamespaces

MODELS = (Gateway, GatewayClass, ListenerSet, Route, ReferenceGrant)
METADATA = {"name": "a", "namespace": "b"}

json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.sampled_from(("name", "kind", "from", "port")), each),
    max_leaves=10,
)
FIELDS = (
    "gatewayClassName",
    "controllerName",
    "listeners",
    "addresses",
    "infrastructure",
    "allowedListeners",
    "parentRef",
    "parentRefs",
    "rules",
    "from",
    "to",
)


@pytest.mark.parametrize("model", MODELS)
@settings(max_examples=50)
@given(spec=st.dictionaries(st.sampled_from(FIELDS), json))
def test_an_object_of_another_form_is_a_validation_error(model: Any, spec: dict[str, Any]) -> None:
    try:
        model.model_validate({"metadata": METADATA, "spec": spec})
    except ValidationError:
        return


def test_fields_that_are_not_read_are_ignored() -> None:
    listener = {"name": "web", "port": 80, "protocol": "TCP", "hostname": "", "tls": {"mode": "Terminate"}, "new": 1}
    spec = {"gatewayClassName": "x", "listeners": [listener], "tls": {}, "defaultScope": "All"}
    found = Gateway.model_validate({"metadata": METADATA, "spec": spec, "status": {"x": 1}})
    assert [(each.name, each.port, each.protocol) for each in found.spec.listeners] == [("web", 80, "TCP")]


def test_defaults_are_those_of_the_definitions() -> None:
    spec = {"parentRefs": [{"name": "g"}], "rules": [{"backendRefs": [{"name": "s", "port": 1}]}]}
    route = Route.model_validate({"metadata": METADATA, "spec": spec})
    parent, backend = route.spec.parent_refs[0], route.spec.rules[0].backend_refs[0]
    assert (parent.group, parent.kind, parent.namespace) == ("gateway.networking.k8s.io", "Gateway", None)
    assert (backend.group, backend.kind, backend.namespace, backend.weight) == ("", "Service", None, 1)


def test_selectors_of_others_have_no_bounds_of_ours() -> None:
    labels = {f"key-{number}": "x" for number in range(100)}
    values = [str(number) for number in range(100)]
    expressions = [{"key": "team", "operator": "In", "values": values}] * 20
    selector = {"matchLabels": labels, "matchExpressions": expressions}
    found = AdmittedNamespaces.model_validate({"from": "Selector", "selector": selector})
    assert found.admits("a", "b", {**labels, "team": "99"}, "None")
    assert not found.admits("a", "b", {**labels, "team": "x"}, "None")


@pytest.mark.parametrize(
    ("source", "default", "same", "other"),
    [
        (None, "Same", True, False),
        (None, "None", False, False),
        ("Same", "None", True, False),
        ("All", "None", True, True),
        ("None", "Same", False, False),
        ("Unknown", "Same", False, False),
    ],
)
def test_namespaces_are_admitted_by_source(source: str | None, default: str, same: bool, other: bool) -> None:
    found = AdmittedNamespaces.model_validate({"from": source})
    assert (found.admits("a", "a", {}, default), found.admits("a", "b", {}, default)) == (same, other)
