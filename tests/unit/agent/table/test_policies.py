"""Policies and what farms refer to -> sets and guards."""

from typing import Any

import pytest

from kube_nftlb.agent.table import policy_sets
from kube_nftlb.agent.table.policies import Policies
from kube_nftlb.agent.table.policy_references import References, raw_references, references
from kube_nftlb.agent.table.policy_sets import EnforcedPolicy, policy
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm
from kube_nftlb.api.listeners import Listener, listeners_of
from kube_nftlb.api.policy import PolicyKey
from kube_nftlb.netfilter.table_text import Contents
from tests.builders import farm, raw_farm
from tests.fakes.nft import rules_met

KEY = FarmKey("default", "web--http")


def raw(name: str = "list", kind: str = "deny", cidrs: tuple[str, ...] = (), **metadata: Any) -> dict[str, Any]:
    metadata = {"generation": 1, "version": 10, **metadata}
    return {
        "metadata": {
            "namespace": "default",
            "name": name,
            "uid": "u",
            "generation": metadata["generation"],
            "resourceVersion": str(metadata["version"]),
        },
        "spec": {"type": kind, "cidrs": list(cidrs)},
    }


def known(**kinds: str) -> Policies:
    policies = Policies()
    cidrs = ("10.0.0.0/8", "fd00::/8")
    policies.put_all({PolicyKey("default", name): policy(raw(name, kind, cidrs)) for name, kind in kinds.items()})
    return policies


def met(policies: Policies, contents: Contents) -> dict[str, tuple[str, ...]]:
    """The rules that a new connection to each listener meets, by the element's key."""
    both = [contents, *policies.contents().values()]
    chains = {chain.name: chain.rules for each in both for chain in each.chains}
    sets = {named.name: named.elements for each in both for named in each.sets}
    jumps = {entry.key: entry.value.removeprefix("jump ") for entry in contents.elements}
    return {key: tuple(rules_met(chain, chains, sets)) for key, chain in jumps.items()}


def rules(policies: Policies, /, **spec: Any) -> dict[str, tuple[str, ...]]:
    """The rules that a new connection to each listener meets, by address and port."""
    wanted = farm(**spec)
    policies.refer(KEY, references(wanted))
    contents = policies.rules(KEY, "web--http", [each for _, each in listeners_of(wanted)])
    return {" ".join(key.split(" . ")[1:]): rules for key, rules in met(policies, contents).items()}


def elements(*cidrs: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    sets = {each.name: each.elements for each in policy(raw(cidrs=cidrs)).contents.sets}
    return sets["denied-default.list-ip"], sets["denied-default.list-ip6"]


@pytest.mark.parametrize(
    ("cidrs", "four", "six"),
    [
        ([], (), ()),
        (["10.0.0.1/8"], ("10.0.0.0-10.255.255.255",), ()),
        (["0.0.0.0/0", "::/0"], ("0.0.0.0-255.255.255.255",), ("::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",)),
        (["10.0.0.1/32", "10.0.0.1/32"], ("10.0.0.1",), ()),
        (["10.0.0.2/32", "10.0.0.1/32"], ("10.0.0.1-10.0.0.2",), ()),
        (["10.0.0.1/32", "10.0.0.3/32"], ("10.0.0.1", "10.0.0.3"), ()),
        (["10.1.0.0/16", "10.0.0.0/8", "10.2.0.0/24"], ("10.0.0.0-10.255.255.255",), ()),
        (["fd00::1/128", "fd00::/127", "10.0.0.0/31"], ("10.0.0.0-10.0.0.1",), ("fd00::-fd00::1",)),
    ],
)
def test_ranges_that_overlap_or_touch_are_one(cidrs: list[str], four: tuple[str, ...], six: tuple[str, ...]) -> None:
    assert elements(*cidrs) == (four, six)


@pytest.mark.parametrize(
    "cidr",
    ["10.0.0.0", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/255.0.0.0", "::ffff:10.0.0.0/104", "fe80::1%a/64", "x/8"],
)
def test_what_is_no_range_makes_a_policy_that_lets_nobody_in(cidr: str) -> None:
    broken = policy(raw(cidrs=("10.0.0.0/8", cidr)))
    assert broken.invalid
    assert broken.contents == Contents()
    policies = Policies()
    policies.put_all({PolicyKey("default", "list"): broken})
    assert rules(policies, policies=["list"]) == {"10.96.0.10 80": ("drop",)}
    reason, sentence = policies.problem(KEY) or ("", "")
    assert reason == "PolicyInvalid"
    assert "'list' is invalid" in sentence


@pytest.mark.parametrize(
    ("kinds", "named", "expected"),
    [
        ({"a": "deny"}, ["a"], ("ip saddr @denied-default.a-ip drop",)),
        ({"a": "allow"}, ["a"], ("ip saddr @allowed-default.a-ip return", "drop")),
        (
            {"a": "allow", "b": "deny", "c": "allow"},
            ["c", "b", "a"],
            (
                "ip saddr @denied-default.b-ip drop",
                "ip saddr @allowed-default.a-ip return",
                "ip saddr @allowed-default.c-ip return",
                "drop",
            ),
        ),
        ({"a": "deny"}, ["a", "missing"], ("drop",)),
        ({"a": "deny"}, [], None),
    ],
)
def test_denied_then_allowed_and_nobody_if_a_policy_is_missing(
    kinds: dict[str, str], named: list[str], expected: tuple[str, ...] | None
) -> None:
    assert rules(known(**kinds), policies=named) == ({"10.96.0.10 80": expected} if expected else {})


def test_an_ipv6_farm_asks_the_ipv6_sets() -> None:
    found = rules(
        known(a="deny"), family="ipv6", addresses=[{"ip": "fd00::1", "ports": "80"}], policies=["a"], backends=[]
    )
    assert found == {"fd00::1 80": ("ip6 saddr @denied-default.a-ip6 drop",)}


def test_an_address_has_the_farms_policies_and_its_own() -> None:
    addresses = [{"ip": "10.96.0.10", "ports": "80"}, {"ip": "10.0.0.1", "ports": "80,81", "policies": ["b"]}]
    found = rules(known(a="deny", b="allow"), addresses=addresses, policies=["a"])
    denied = "ip saddr @denied-default.a-ip drop"
    both = (denied, "ip saddr @allowed-default.b-ip return", "drop")
    assert found == {"10.96.0.10 80": (denied,), "10.0.0.1 80": both, "10.0.0.1 81": both}


def at_nodes(policies: Policies, wanted: Farm, *addresses: str) -> dict[str, tuple[str, ...]]:
    """The rules that a new connection to these addresses and ports of the node meets."""
    policies.refer(KEY, references(wanted))
    policies.node_ips = ["192.168.1.1"]
    found = {}
    for each in addresses:
        ip, port = each.split()
        contents = policies.rules(KEY, "web--http", [Listener(ip, "TCP", int(port))])
        found[each] = next(iter(met(policies, contents).values()), ())
    return found


def test_a_node_port_has_its_own_policies_on_each_address_of_the_node() -> None:
    addresses = [
        {"type": "NodePort", "ip": "", "ports": "30080", "policies": ["admins"]},
        {"type": "LoadBalancer", "ip": "203.0.113.5", "ports": "80", "policies": ["public"]},
    ]
    found = at_nodes(
        known(admins="allow", public="allow"), farm(addresses=addresses), "192.168.1.1 30080", "203.0.113.5 80"
    )
    assert found == {
        "192.168.1.1 30080": ("ip saddr @allowed-default.admins-ip return", "drop"),
        "203.0.113.5 80": ("ip saddr @allowed-default.public-ip return", "drop"),
    }


def test_a_node_port_without_policies_admits_whom_the_list_of_another_address_keeps_out() -> None:
    addresses = [
        {"type": "NodePort", "ip": "", "ports": "30080"},
        {"type": "LoadBalancer", "ip": "203.0.113.5", "ports": "80", "policies": ["admins"]},
    ]
    assert at_nodes(known(admins="allow"), farm(addresses=addresses), "192.168.1.1 30080") == {"192.168.1.1 30080": ()}


def test_an_address_that_an_engine_still_has_does_not_get_the_policies_of_a_node_port_with_its_number() -> None:
    """The kernel may refuse to remove it."""
    addresses = [
        {"type": "NodePort", "ip": "", "ports": "30080"},
        {"type": "LoadBalancer", "ip": "203.0.113.6", "ports": "80", "policies": ["admins"]},
    ]
    found = at_nodes(known(admins="allow"), farm(addresses=addresses), "203.0.113.5 30080", "192.168.1.1 30080")
    assert found == {"203.0.113.5 30080": ("drop",), "192.168.1.1 30080": ()}


@pytest.mark.parametrize(
    ("of_addresses", "expected"),
    [
        ((["admins"], ["public"]), ("drop",)),
        ((["admins"], []), ("drop",)),
        ((["admins"], ["admins"]), ("ip saddr @allowed-default.admins-ip return", "drop")),
        ((["denied"], ["admins"]), ("ip saddr @denied-default.denied-ip drop", "drop")),
        ((["denied"], []), ("ip saddr @denied-default.denied-ip drop",)),
    ],
)
@pytest.mark.parametrize("parsed", [True, False])
def test_no_list_of_one_address_admits_anybody_where_it_is_not_known_which_applies(
    of_addresses: tuple[list[str], ...], expected: tuple[str, ...], parsed: bool
) -> None:
    """A listener that only an engine still has, or a farm that cannot be parsed."""
    policies = known(admins="allow", public="allow", denied="deny")
    addresses = [
        {"ip": f"10.0.0.{number}", "ports": "80", "policies": each} for number, each in enumerate(of_addresses)
    ]
    raw = raw_farm(addresses=addresses)
    policies.refer(KEY, references(Farm.model_validate(raw)) if parsed else raw_references(raw))
    (found,) = met(policies, policies.rules(KEY, "web--http", [Listener("10.0.0.9", "TCP", 80)])).values()
    assert found == expected


def test_all_policies_apply_where_only_nftlb_still_listens() -> None:
    policies = known(a="deny", b="deny")
    before = [each for _, each in listeners_of(farm(addresses=[{"ip": "10.0.0.9", "ports": "80"}]))]
    after = farm(addresses=[{"ip": "10.0.0.1", "ports": "80", "policies": ["b"]}], policies=["a"])
    policies.refer(KEY, references(after))
    (found,) = met(policies, policies.rules(KEY, "web--http", before)).values()
    assert found == tuple(f"ip saddr @denied-default.{name}-ip drop" for name in "ab")


def test_a_farm_that_is_not_understood_refers_to_all_that_its_spec_names() -> None:
    spec = raw_farm(policies=["a"], addresses=[{"ip": "x", "policies": ["b"]}, "what"])
    assert raw_references(spec).all() == {"a", "b"}
    assert raw_references(raw_farm(policies=None, addresses=None)).all() == frozenset()


def test_farms_change_only_with_what_their_policy_rules_depend_on() -> None:
    policies, key = Policies(), PolicyKey("default", "list")
    policies.refer(KEY, references(farm(policies=["list"])))
    policies.refer(FarmKey("default", "other"), references(farm("other")))
    policies.refer(FarmKey("shop", "web--http"), references(farm(namespace="shop", policies=["list"])))
    changes: list[tuple[EnforcedPolicy | None, set[FarmKey]]] = [
        (policy(raw(cidrs=("10.0.0.0/8",))), {KEY}),
        (policy(raw(cidrs=("10.1.0.0/16",))), set()),
        (policy(raw(kind="allow")), set()),
        (policy(raw(kind="what")), {KEY}),
        (None, {KEY}),
    ]
    for new, turned in changes:
        assert policies.put_all({key: new}) == turned


def test_a_table_that_is_made_anew_has_a_policy_that_is_gone_as_long_as_rules_refer_to_it() -> None:
    policies, key = Policies(), PolicyKey("default", "list")
    policies.refer(KEY, references(farm(policies=["list"])))
    policies.put_all({key: policy(raw())})
    policies.put_all({key: None})
    assert [each.chains for each in policies.contents().values()] == [policy_sets.admitting_nobody(key).chains]
    assert policies.gone(lambda _: True) == set()
    assert policies.gone(lambda _: False) == {key}
    assert policies.contents() == {}


def test_a_listener_that_a_farm_has_left_needs_no_policies_any_more() -> None:
    own = {"ip": "10.96.0.10", "ports": "80", "policies": ["list"]}
    other = {"ip": "10.96.0.11", "ports": "80"}
    policies, key, old = Policies(), PolicyKey("default", "list"), Listener("10.96.0.10", "TCP", 80)
    policies.put_all({key: policy(raw())})
    for addresses in ([own, other], [other], [other]):
        policies.refer(KEY, references(farm(addresses=addresses)))
        assert policies.rules(KEY, "web--http", [old]).elements
        assert policies.referring(key) == 1
    assert policies.problem(KEY) is None
    assert not policies.rules(KEY, "web--http", [Listener("10.96.0.11", "TCP", 80)]).elements
    policies.settle(KEY, [old])
    assert policies.rules(KEY, "web--http", [old]).elements, "an engine still has it"
    policies.settle(KEY, [Listener("10.96.0.11", "TCP", 80)])
    assert policies.referring(key) == 0
    policies.refer(KEY, references(farm(addresses=[own])))
    assert policies.rules(KEY, "web--http", [old]).elements, "it has come back"


def test_a_listener_of_which_no_engine_was_told_is_not_remembered() -> None:
    policies = Policies()
    for number in range(5):
        address = {"ip": f"10.96.0.{number}", "ports": "80", "policies": [f"p{number}"]}
        policies.refer(KEY, references(farm(addresses=[address])))
        if number == 2:
            policies.sending([KEY])
    referred = [policies.referring(PolicyKey("default", f"p{number}")) for number in range(5)]
    assert referred == [1, 0, 1, 0, 1], "the first may be that of an earlier agent"


def test_a_policy_is_changed_without_a_look_at_the_farms_that_do_not_refer_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policies, key = Policies(), PolicyKey("default", "list")
    for number in range(100):
        policies.refer(FarmKey("default", f"other-{number}"), references(farm(policies=["other"])))
    policies.refer(KEY, references(farm(policies=["list"])))
    monkeypatch.setattr(References, "all", lambda _: pytest.fail("every farm is looked at"))
    assert policies.put_all({key: policy(raw())}) == {KEY}
    assert policies.referring(key) == 1


def test_the_watermark_stays_behind_what_is_not_done() -> None:
    policies, key = Policies(), PolicyKey("default", "list")
    policies.replace_all([raw(version=10)], 20)
    assert list(policies.take()) == [key]
    policies.put(raw(generation=2, version=25))
    policies.seen(25)
    assert policies.watermark < 20
    policies.done()
    assert policies.watermark == 24
    policies.take()
    assert list(policies.take()) == [key], "what was not done is taken again"
    policies.done()
    assert policies.watermark == 25
    policies.put(raw(generation=2, version=30))
    assert not policies.pending, "only its status changed"
    policies.replace_all([], 40)
    assert policies.take() == {key: None}
    policies.done()
    assert policies.watermark == 40


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        (None, set()),
        ("junk", set()),
        ({"policies": None, "addresses": True}, set()),
        ({"policies": True}, {"True"}),
        ({"policies": ["a", 1], "addresses": [{"policies": {"b": 1}}, "junk"]}, {"a", "1", "{'b': 1}"}),
    ],
)
def test_junk_for_a_spec_names_policies_that_there_are_not(spec: object, named: set[str]) -> None:
    raw = {"metadata": {"namespace": "default", "name": "web"}, "spec": spec}
    assert raw_references(raw).all() == named


def test_a_policy_with_a_field_that_the_agent_does_not_know_lets_nobody_in() -> None:
    newer = raw(kind="allow", cidrs=("10.0.0.0/8",))
    newer["spec"]["except"] = ["10.1.0.0/16"]
    enforced = policy(newer)
    assert enforced.invalid is not None
    assert enforced.invalid.startswith("spec.except: this agent")


def test_namespaces_take_turns() -> None:
    policies = Policies()
    crowd = [raw(f"p{number}", cidrs=("10.0.0.0/8",) * 100, version=10 + number) for number in range(50)]
    for each in crowd:
        each["metadata"]["namespace"] = "crowd"
    for each in (*crowd, raw("one", version=70)):
        policies.put(each)
    first = policies.take(150)
    assert len(first) == 3, "until they have as many ranges"
    assert PolicyKey("default", "one") in first
    assert policies.watermark < 70
    policies.done()
    assert policies.take(150).keys().isdisjoint(first)
    policies.take()
    policies.done()
    policies.seen(70)
    assert (policies.pending, policies.watermark) == (False, 70)
