"""Deciding again about what changed gives the same as deciding about all."""

from collections import Counter, deque
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_nftlb.api.farm import FarmSpec
from kube_nftlb.api.values import expand_ports
from kube_nftlb.operator.gateway import attached
from kube_nftlb.operator.gateway import listeners as listeners_
from kube_nftlb.operator.gateway import plan as plan_
from kube_nftlb.operator.gateway import sets as sets_
from kube_nftlb.operator.gateway.changes import Changes, everything
from kube_nftlb.operator.gateway.objects import AddressState, FarmState, GatewayObjects, ObjectKey, RouteKey
from kube_nftlb.operator.gateway.plan import Planner
from kube_nftlb.operator.gateway.wanted import GatewayPlan
from tests.processor_time import processor_time
from tests.unit.operator.gateway.objects import (
    GATEWAY,
    admitting,
    backend,
    gateway,
    gateway_class,
    grant,
    listener,
    listener_set,
    parent,
    permits,
    plan,
    route,
    service,
    update,
    world,
)

ADDRESSES = (
    AddressState(("192.0.2.9",)),
    AddressState((), "AddressNotAssigned", "none"),
    AddressState(("192.0.2.9", "10.96.0.9"), routability=(("10.96.0.9", "Cluster"),)),
    AddressState(("192.0.2.9", "10.96.0.9")),
)
LIMITS: Any = (
    (listeners_, "LISTENERS_MAX", 2),
    (attached, "ROUTES_MAX", 1),
    (sets_, "SETS_MAX", 1),
    (plan_, "GATEWAYS_MAX", 1),
)
NAMESPACES = ("infra", "tenant")
GATEWAYS = (GATEWAY, ObjectKey("infra", "own"))
SETS = (ObjectKey("infra", "more"), ObjectKey("infra", "even"), ObjectKey("tenant", "more"))
SELECTED = {"team": "a"}


@st.composite
def gateways(draw: st.DrawFn, key: ObjectKey) -> Any:
    names = draw(st.lists(st.sampled_from(("a", "b", "c")), min_size=1, unique=True))
    listeners = [
        listener(
            name,
            draw(st.sampled_from((80, 81))),
            draw(st.sampled_from(("TCP", "UDP", "HTTP"))),
            allowedRoutes=draw(
                st.sampled_from(
                    (
                        admitting("Same"),
                        admitting("All"),
                        admitting("Selector", matchLabels=SELECTED),
                        admitting("All", "X"),
                    )
                )
            ),
        )
        for name in names
    ]
    allowed = draw(st.sampled_from(("None", "All", "Same", "Selector")))
    return gateway(
        *listeners,
        key=key,
        allowedListeners={"namespaces": {"from": allowed, "selector": {"matchLabels": SELECTED}}},
        addresses=draw(st.sampled_from(([], [{"type": "Hostname", "value": "a.example"}], [{"value": "192.0.2.9"}]))),
        gatewayClassName=draw(st.sampled_from(("nftlb", "other"))),
        annotations=draw(st.sampled_from(({}, {"kube-nftlb.io/port-range.a": "80-81"}))),
    )


@st.composite
def routes(draw: st.DrawFn, key: RouteKey) -> Any:
    targets = [{**GATEWAYS[0]._asdict()}, {**GATEWAYS[1]._asdict()}]
    targets += [{"kind": "ListenerSet", **each._asdict()} for each in SETS]
    chosen = draw(st.lists(st.sampled_from(targets), max_size=3))
    sections: list[dict[str, Any]] = [draw(st.sampled_from(({}, {"sectionName": "a"}, {"port": 80}))) for _ in chosen]
    references = [
        backend(draw(st.sampled_from(("web", "gone"))), namespace=draw(st.sampled_from(("infra", "tenant", None))))
        for _ in range(draw(st.integers(1, 2)))
    ]
    return route(
        *references,
        parents=[{**one, **other} for one, other in zip(chosen, sections, strict=True)],
        name=key.name,
        namespace=key.namespace,
        age=draw(st.integers(0, 3)),
    )


@st.composite
def sets(draw: st.DrawFn, key: ObjectKey) -> Any:
    return listener_set(
        key.name,
        listener("a", draw(st.sampled_from((80, 90))), allowedRoutes=admitting("All")),
        namespace=key.namespace,
        age=draw(st.integers(0, 2)),
        parent=draw(st.sampled_from(GATEWAYS)),
    )


ROUTES = tuple(RouteKey("TCPRoute", namespace, name) for namespace in NAMESPACES for name in ("one", "two"))


@st.composite
def steps(draw: st.DrawFn) -> tuple[str, Any, Any]:
    """Return the name of a mapping, a key, and its new value or None."""
    what = draw(
        st.sampled_from(
            ("classes", "gateways", "listener_sets", "routes", "grants", "namespaces", "services", "addresses", "farms")
        )
    )
    key: Any
    value: Any
    if what == "gateways":
        key = draw(st.sampled_from(GATEWAYS))
        value = draw(gateways(key))
    elif what == "listener_sets":
        key = draw(st.sampled_from(SETS))
        value = draw(sets(key))
    elif what == "routes":
        key = draw(st.sampled_from(ROUTES))
        value = draw(routes(key))
    elif what == "grants":
        key = ObjectKey(draw(st.sampled_from(NAMESPACES)), "grant")
        value = grant(key.namespace, "tenant" if key.namespace == "infra" else "infra")
    elif what == "namespaces":
        key = draw(st.sampled_from(NAMESPACES))
        value = draw(st.sampled_from((SELECTED, {})))
    elif what == "services":
        key = (draw(st.sampled_from(NAMESPACES)), "web")
        value = service("web", key[0], draw(st.sampled_from((("http", 80, "TCP"), ("http", 80, "UDP")))))
    elif what == "addresses":
        key = draw(st.sampled_from(GATEWAYS))
        value = draw(st.sampled_from(ADDRESSES))
    elif what == "classes":
        key = "nftlb"
        value = gateway_class(parametersRef=draw(st.sampled_from((None, {"name": "x"}))))
    else:
        key = None
        value = draw(st.sampled_from((FarmState(1, 2), FarmState(2, 2))))
    return what, key, draw(st.sampled_from((value, value, value, None)))


@settings(max_examples=150)
@given(
    st.lists(steps(), max_size=40),
    st.lists(st.integers(1, 4), min_size=10, max_size=10),
    st.lists(st.integers(0, 3), min_size=7, max_size=7),
    st.booleans(),
)
def test_any_changes_lead_to_the_plan_for_what_there_is(
    changes: list[tuple[str, Any, Any]], batches: list[int], turns: list[int], many: bool
) -> None:
    """With ``many``, few objects are too many. ``turns`` are the Gateways decided about between batches; 0: all."""
    with ExitStack() as stack:
        for module, name, most in LIMITS if many else ():
            stack.enter_context(mock.patch.object(module, name, most))
        _check(changes, batches, turns)


def _check(changes: list[tuple[str, Any, Any]], batches: list[int], turns: list[int]) -> None:
    objects = world(
        [
            gateway(
                listener("a", allowedRoutes=admitting("Selector", matchLabels=SELECTED)),
                key=key,
                allowedListeners={"namespaces": {"from": "Selector", "selector": {"matchLabels": SELECTED}}},
            )
            for key in GATEWAYS
        ],
        [
            route(
                backend(namespace="tenant" if key.namespace == "infra" else "infra"),
                parents=[each._asdict() for each in GATEWAYS] + [{"kind": "ListenerSet", **SETS[0]._asdict()}],
                name=key.name,
                namespace=key.namespace,
            )
            for key in ROUTES
        ],
        [service("web", namespace) for namespace in NAMESPACES],
        sets=[listener_set(key.name, listener("a", 90), namespace=key.namespace) for key in SETS[:2]],
        grants=[grant("infra", "tenant")],
        namespaces={"infra": SELECTED},
    )
    planner = Planner(objects)
    known: dict[str, dict[Any, Any]] = {}
    _apply(planner, objects, known, [], 0)
    while changes:
        size, most = batches[len(changes) % len(batches)], turns[len(changes) % len(turns)]
        batch, changes = changes[:size], changes[size:]
        if not _apply(planner, objects, known, batch, most if changes else 0):
            continue
        _check_farms(objects, _check_told(known, objects))


def _check_told(known: dict[str, dict[Any, Any]], objects: GatewayObjects) -> GatewayPlan:
    """What was told is what is decided about all objects, which is returned."""
    full = plan(objects)
    for what in ("farms", "requests", "gateways", "routes", "listener_sets", "classes"):
        told = {key: value for key, value in known[what].items() if value not in (None, ())}
        wanted = {key: value for key, value in getattr(full, what).items() if value not in (None, ())}
        assert told == wanted, what
    return full


def _check_farms(objects: GatewayObjects, found: GatewayPlan) -> None:
    """No two farms of a Gateway share a listener, and all that go to other namespaces are permitted to."""
    listeners: Counter[tuple[Any, ...]] = Counter()
    for key, farm in found.farms.items():
        assert farm is not None
        spec = FarmSpec.model_validate(farm.spec)
        owner = farm.metadata["ownerReferences"][0]
        listeners.update(
            (farm.gateway, address.ip, spec.protocol, port)
            for address in spec.addresses
            for port in expand_ports(address.ports)
        )
        for group in spec.backends_from:
            assert not group.namespace or any(
                permits(grant, owner["kind"], key.namespace, group.service)
                for of, grant in objects.grants.items()
                if of.namespace == group.namespace
            )
            assert group.refuse or (group.namespace or key.namespace, group.service) in objects.services
    assert set(listeners.values()) <= {1}


def _apply(
    planner: Planner,
    objects: GatewayObjects,
    known: dict[str, dict[Any, Any]],
    batch: list[tuple[str, Any, Any]],
    most: int,
) -> bool:
    """Make changes, and keep what the planner says of them, as who writes it would. Return True if that is all."""
    fields: dict[str, set[Any]] = {}
    if not batch:
        for what in ("classes", "gateways", "listener_sets", "routes", "grants"):
            fields[what] = set(getattr(objects, what))
    for what, key, value in batch:
        changed = fields.setdefault(what, set())
        for each in [key] if what != "farms" else list(known.get("farms", {})):
            mapping = getattr(objects, what)
            changed.add(each)
            if value is None:
                mapping.pop(each, None)
            elif what == "farms":
                farm = known["farms"][each]
                mapping[each] = replace(value, digest=farm.digest if farm is not None else b"")
            else:
                mapping[each] = value
    found = GatewayPlan()
    deque(planner.follow(Changes(**{what: frozenset(keys) for what, keys in fields.items()}), found), maxlen=0)
    turn = 0
    while (turn < most or not most) and (gateway := planner.next()) is not None:
        _keep(known, found)
        found = GatewayPlan()
        deque(planner.decide(gateway, found), maxlen=0)
        turn += 1
    _keep(known, found)
    return not most


def _keep(known: dict[str, dict[Any, Any]], found: GatewayPlan) -> None:
    for what in ("farms", "requests", "gateways", "routes", "listener_sets", "classes"):
        known.setdefault(what, {}).update(getattr(found, what))


def test_a_change_of_one_route_says_nothing_of_a_thousand_others() -> None:
    others = [route(name=f"other-{number}", age=number) for number in range(1000)]
    gateways = [gateway(key=ObjectKey("infra", f"gateway-{number}")) for number in range(50)]
    ours = route(name="ours")
    objects = world([gateway(), *gateways], [ours, *others])
    planner = Planner(objects)
    update(planner, everything(objects))
    found = update(planner, Changes(routes=frozenset({RouteKey("TCPRoute", "infra", "ours")})))
    assert (len(found.routes), len(found.gateways), len(found.farms)) == (1, 1, 0)


def changed_gateway(planner: Planner, objects: GatewayObjects, *listeners: dict[str, Any]) -> GatewayPlan:
    """Replace the listeners of the Gateway."""
    objects.gateways[GATEWAY] = gateway(*listeners)  # type: ignore[index]
    return update(planner, Changes(gateways=frozenset({GATEWAY})))


def test_only_routes_are_judged_again_that_name_a_listener_that_has_changed() -> None:
    names: dict[str, list[dict[str, Any]]] = {
        "by-name": [{"sectionName": "a"}],
        "by-port": [{"port": 80}],
        "by-both": [{"sectionName": "a", "port": 80}],
        "all": [{}],
        "others": [{"sectionName": "b"}, {"port": 81}, {"sectionName": "b", "port": 80}],
    }
    routes = [route(name=name, parents=[parent(**each) for each in given]) for name, given in names.items()]
    objects = world([gateway(listener("a", 80), listener("b", 81))], routes)
    planner = Planner(objects)
    update(planner, everything(objects))
    b = listener("b", 81)
    found = changed_gateway(planner, objects, listener("a", 82), b)
    assert {key.name for key in found.routes} == {"by-port", "by-both"}
    found = changed_gateway(planner, objects, listener("a", 82), listener("b", 83, allowedRoutes=admitting("All")))
    assert {key.name for key in found.routes} == {"others"}, "by its port; who is attached anyway reads nothing new"
    found = changed_gateway(planner, objects, listener("c", 82), b)
    assert {key.name for key in found.routes} == {"by-name", "all", "others"}
    found = changed_gateway(planner, objects, listener("c", 82), b, listener("d", 82))
    assert {key.name for key in found.routes} == {"all"}, "c serves nothing any more"


def test_what_a_listeners_new_port_costs_does_not_depend_on_the_routes() -> None:
    parents = [parent(sectionName=f"l{number}") for number in range(32)]
    routes = [route(name=f"r{number}", parents=parents) for number in range(300)]
    listeners = [listener(f"l{number}", 100 + number) for number in range(64)]
    objects = world([gateway(*listeners)], routes)
    planner = Planner(objects)
    update(planner, everything(objects))
    with processor_time() as taken:
        for port in range(1, 6):
            found = changed_gateway(planner, objects, listener("l0", port), *listeners[1:])
            assert (len(found.routes), len(found.farms)) == (0, 1)
    assert taken.seconds < 0.5, "ten times as long before only routes were judged that it concerns"


def test_of_routes_beyond_the_budget_nothing_else_is_judged_until_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attached, "ROUTES_MAX", 1)
    sections = {"old": "a", "middle": "x", "young": "a"}
    routes = [
        route(name=name, age=9 - age, parents=[parent(sectionName=section), parent(sectionName="b")][: 2 - (age == 1)])
        for age, (name, section) in enumerate(sections.items())
    ]
    objects = world([gateway(listener("a"), listener("b", 81))], routes)
    planner = Planner(objects)

    def reasons(found: GatewayPlan) -> dict[str, list[str]]:
        return {key.name: [each.conditions[0].reason for each in told] for key, told in found.routes.items()}

    assert reasons(update(planner, everything(objects))) == {
        "old": ["Accepted", "Accepted"],
        "middle": ["NoMatchingParent"],
        "young": ["TooManyRoutes", "TooManyRoutes"],
    }
    found = changed_gateway(planner, objects, listener("c"), listener("b", 81))
    assert reasons(found) == {"old": ["NoMatchingParent", "Accepted"]}
    key = RouteKey("TCPRoute", "infra", "old")
    del objects.routes[key]  # type: ignore[attr-defined]
    found = update(planner, Changes(routes=frozenset({key})))
    assert reasons(found) == {"old": [], "young": ["NoMatchingParent", "Accepted"]}


def test_namespaces_take_turns_and_a_gateway_with_many_routes_is_decided_about_in_steps() -> None:
    crowd = [ObjectKey("crowd", f"gateway-{number}") for number in range(100)]
    own = ObjectKey("tenant", "own")
    routes = [route(parents=[own._asdict()], name=f"r{number}", namespace="tenant") for number in range(50)]
    objects = world([gateway(key=key) for key in (*crowd, own)], routes)
    planner, found = Planner(objects), GatewayPlan()
    for key in (*crowd[:50], own, *crowd[50:]):
        assert len(list(planner.follow(Changes(gateways=frozenset({key})), found))) < 10
    assert own in [planner.next() for _ in range(3)]
    assert len(list(planner.follow(Changes(routes=frozenset(objects.routes)), found))) >= 50
    assert own in [planner.next() for _ in range(3)]
    assert len(list(planner.decide(own, found))) >= 50
    assert (set(found.gateways), len(found.routes)) == ({own}, 50)


@pytest.mark.parametrize("gone", [False, True])
def test_a_listener_set_that_moves_is_its_new_gateways_whichever_is_decided_about_first(*, gone: bool) -> None:
    key, other = SETS[0], GATEWAYS[1]
    allowed: Any = {"allowedListeners": {"namespaces": {"from": "All"}}}
    objects = world(
        [gateway(key=each, **allowed) for each in GATEWAYS],
        [route(parents=[{"kind": "ListenerSet", **key._asdict()}])],
        sets=[listener_set(key.name, listener("a", 90))],
    )
    planner, found = Planner(objects), GatewayPlan()
    update(planner, everything(objects))
    objects.listener_sets[key] = listener_set(key.name, listener("a", 90), parent=other)  # type: ignore[index]
    if gone:
        del objects.gateways[GATEWAY]  # type: ignore[attr-defined]
    for changes in (Changes(gateways=frozenset({other})), Changes(frozenset(), frozenset({GATEWAY}), frozenset({key}))):
        deque(planner.follow(changes, found), maxlen=0)
    for each in (other, GATEWAY):
        assert planner.next() == each
        deque(planner.decide(each, found), maxlen=0)
    full = plan(objects)
    assert found.listener_sets == full.listener_sets
    assert found.routes == full.routes


def test_a_listener_set_that_is_not_admitted_has_nobody_else_decided_about() -> None:
    sets = {
        ObjectKey("tenant", f"set-{number}"): listener_set(f"set-{number}", namespace="tenant") for number in range(9)
    }
    objects = world([gateway()], [route()], sets=sets.values())
    planner = Planner(objects)
    update(planner, everything(objects))
    found = update(planner, Changes(listener_sets=frozenset({ObjectKey("tenant", "set-5")})))
    assert found.listener_sets.keys() == {ObjectKey("tenant", "set-5")}
    assert (len(found.routes), len(found.farms)) == (0, 0)


def test_a_farm_that_nobody_wants_is_to_be_deleted() -> None:
    objects = world([gateway()], [route()])
    planner = Planner(objects)
    (wanted,) = update(planner, everything(objects)).farms
    found = update(planner, Changes(farms=frozenset({wanted, ObjectKey("infra", "leftover")})))
    assert {key: farm is not None for key, farm in found.farms.items()} == {
        wanted: True,
        ObjectKey("infra", "leftover"): False,
    }


def test_a_service_whose_ports_stay_has_nothing_decided_again() -> None:
    objects = world([gateway()], [route()])
    planner = Planner(objects)
    update(planner, everything(objects))
    found = update(planner, Changes(services=frozenset({("infra", "web")})))
    assert (found.gateways, found.routes, found.farms) == ({}, {}, {})


def test_listener_sets_that_go_many_at_once_are_followed_one_after_the_other() -> None:
    keys = [ObjectKey("tenant", f"set-{number}") for number in range(3)]
    sets = [listener_set(key.name, listener(port=90 + number), namespace="tenant") for number, key in enumerate(keys)]
    objects = world([gateway(allowedListeners={"namespaces": {"from": "All"}})], [route()], sets=sets)
    planner = Planner(objects)
    known: dict[str, dict[Any, Any]] = {}
    _keep(known, update(planner, everything(objects)))
    for key in keys:
        del objects.listener_sets[key]  # type: ignore[attr-defined]
    for key in keys:
        _keep(known, update(planner, Changes(listener_sets=frozenset({key}))))
    _check_told(known, objects)


def test_gateways_that_want_the_same_farm_do_not_stop_the_others() -> None:
    """A hash can be searched for; here all are the same."""
    long = "a" * 100
    keys = [ObjectKey("infra", f"{long}-{number}") for number in range(2)]
    routes = [route(parents=[key._asdict()], name=f"{long}-{number}") for number, key in enumerate(keys)]
    with mock.patch("kube_nftlb.names.digest", return_value="0123456789"):
        objects = world([gateway(key=key) for key in keys], routes)
        planner = Planner(objects)
        (farm,) = update(planner, everything(objects)).farms
        told = []
        for key in keys:
            del objects.gateways[key]  # type: ignore[attr-defined]
            told.append(update(planner, Changes(gateways=frozenset({key}))).farms)
    assert told in ([{}, {farm: None}], [{farm: None}, {}])


def test_the_hash_of_a_farms_name_is_too_long_to_be_searched_for() -> None:
    (farm,) = plan(world([gateway()], [route()])).farms
    assert len(farm.name.rpartition("-")[2]) >= 16
