"""Every rule has the same verdict in CEL, as the API server evaluates it, and in Python."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_nftlb.api import rules
from kube_nftlb.api.base import FAMILIES
from kube_nftlb.api.farm.fields import FarmFields
from kube_nftlb.api.farm.rules import FARM_RULES
from kube_nftlb.api.limits import LIMITS_RULES, Limits
from kube_nftlb.api.rules import Rule
from kube_nftlb.api.values import RATE_SECONDS, expand_ports, join_ports
from tests.unit.api import cel

M = TypeVar("M")

MORE = settings(max_examples=120)

_RULES: tuple[Rule[Any], ...] = (
    *FARM_RULES,
    *LIMITS_RULES,
    *rules.VALUE_RULES,
    rules.PORT_REFERENCE,
    rules.FARM_NAME,
    rules.POLICY_NAME,
)
_PROGRAMS = {rule.name: cel.program(rule.cel) for rule in _RULES}


def agreed(table: Iterable[Rule[M]], value: M, stored: cel.Json) -> set[str]:
    """Compare CEL and Python, and return the names of the violated rules."""
    self = cel.value(stored)
    violated = [rule for rule in table if not _PROGRAMS[rule.name](self)]
    assert rules.violations(table, value) == [rule.message for rule in violated]
    return {rule.name for rule in violated}


IPS = st.sampled_from(["10.0.0.1", "10.0.0.2", "fd00::1"])
NODE_PORT = st.just({"type": "NodePort", "ip": "", "ports": "30080"})
RATES = st.builds(lambda number, unit: f"{number}/{unit}", st.integers(1, 9), st.sampled_from(list(RATE_SECONDS)))


def rarely(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Make a value mostly absent, so that valid specs are generated too."""
    return st.one_of(st.none(), st.none(), values)


ADDRESSES = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["ClusterIP", "ClusterIP", "NodePort", "LoadBalancer"]),
        "ip": st.one_of(IPS, IPS, st.just("")),
        "ports": st.sampled_from(["80", "80", "80,443", ""]),
        "sourceRanges": st.lists(st.sampled_from(["10.0.0.0/8", "fd00::/8"]), max_size=1),
        "policies": st.lists(st.just("list"), max_size=1),
    }
)
BACKENDS = st.fixed_dictionaries(
    {"name": st.just("a"), "ip": IPS, "port": st.sampled_from([80, 80, None]), "sourceAddress": rarely(IPS)}
)
OVERRIDES = st.fixed_dictionaries({"pod": st.just("a"), "weight": st.just(3), "sourceAddress": rarely(IPS)})
REFERENCES = st.fixed_dictionaries(
    {"service": st.just("web"), "overrides": st.lists(OVERRIDES, max_size=2)},
    optional={"port": st.sampled_from(["http", 8080]), "keepPort": st.booleans(), "weight": st.sampled_from([0, 7])},
)
FARMS = st.fixed_dictionaries(
    {
        "family": st.sampled_from(FAMILIES),
        "addresses": st.lists(st.one_of(ADDRESSES, NODE_PORT), min_size=1, max_size=2),
        "backends": st.lists(BACKENDS, max_size=2),
    },
    optional={
        "backendsFrom": st.lists(REFERENCES, max_size=2, unique_by=lambda each: each.get("port")),
        "protocol": st.sampled_from(["UDP", "SCTP", "SCTP", "All"]),
        "mode": st.sampled_from(["dnat", "dsr", "local"]),
        "scheduler": st.just("hash"),
        "schedParam": st.sampled_from(["srcip", "srcip dstip srcport srcmac dstmac", "srcip dstip srcmac dstmac"]),
        "persistence": st.sampled_from(["srcip", "srcport", "srcip srcport", "srcmac", "srcport srcmac"]),
        "sessions": st.just([{"client": "10.0.0.1", "backend": "a"}]),
        "helper": st.sampled_from(["amanda", "ftp", "h323", "irc", "netbios-ns", "sip", "tftp"]),
        "log": st.just("input"),
        "sourceAddress": IPS,
        "mark": st.just("0x1000"),
        "limits": st.sampled_from(
            [{"new": "5/second"}, {"reset": "5/second"}, {"established": 1}, {"tcpStrict": True}]
        ),
        "policies": st.just(["list"]),
    },
)


IPV6: dict[str, Any] = {"family": "ipv6", "addresses": [{"ip": "fd00::1", "ports": "80"}]}
EVERY_PORT: dict[str, Any] = {"protocol": "All", "addresses": [{"ip": "10.0.0.1", "ports": ""}]}
REFERENCE: dict[str, Any] = {"service": "web", "port": 8080}
BREAKS: dict[str, dict[str, Any]] = {
    "address-ip": {"family": "ipv4", "addresses": [{"ip": "", "ports": "80"}]},
    "address-family": {**IPV6, "family": "ipv4"},
    "source-range-family": {**IPV6, "addresses": [{**IPV6["addresses"][0], "sourceRanges": ["10.0.0.0/8"]}]},
    "backend-family": {**IPV6, "backends": [{"name": "a", "ip": "10.0.0.1", "port": 80}]},
    "backends-from": {**IPV6, "backendsFrom": [REFERENCE], "mode": "local"},
    "backends-from-port": {**EVERY_PORT, "backendsFrom": [REFERENCE]},
    "address-ports": {**EVERY_PORT, "addresses": [{"ip": "10.0.0.1", "ports": "80"}]},
    "backend-ports": {**EVERY_PORT, "backends": [{"name": "a", "ip": "10.0.0.1", "port": 80}]},
    "sched-param": {**IPV6, "schedParam": "srcip"},
    "ipv6-persistence": {**IPV6, "persistence": "srcip srcport"},
    "ipv6-sched-param": {**IPV6, "scheduler": "hash", "schedParam": "srcip dstip srcport srcmac dstmac"},
    "all-packet-fields": {**EVERY_PORT, "persistence": "srcport"},
    "source-address-mode": {**IPV6, "mode": "dnat", "sourceAddress": "fd00::2"},
    "backend-source-address": {
        **IPV6,
        "backends": [{"name": "a", "ip": "fd00::3", "port": 80, "sourceAddress": "10.0.0.1"}],
    },
    "override-source-address": {
        **IPV6,
        "backendsFrom": [{**REFERENCE, "overrides": [{"pod": "a", "sourceAddress": "10.0.0.1"}]}],
    },
    "source-address-family": {**IPV6, "sourceAddress": "10.0.0.1"},
    "all-options": {**EVERY_PORT, "log": "input"},
    "nat-options": {**IPV6, "mode": "dsr", "log": "input"},
    "dsr-family": {**IPV6, "mode": "dsr"},
    "limits-mode": {**IPV6, "mode": "dsr", "limits": {"tcpStrict": True}},
    "on-gone-mode": {**IPV6, "onGone": "cut", "mode": "local"},
    "udp-helpers": {**IPV6, "helper": "tftp"},
    "tcp-helpers": {**IPV6, "helper": "ftp", "protocol": "UDP"},
    "tcp-udp-helpers": {**IPV6, "helper": "sip", "protocol": "SCTP"},
    "ipv4-helpers": {**IPV6, "helper": "irc"},
    "sessions": {**IPV6, "sessions": [{"client": "fd00::9", "backend": "a"}]},
    "policies-mode": {**IPV6, "mode": "dsr", "policies": ["office"]},
}
"""A farm that breaks it, for each rule."""
KEEPS: list[dict[str, Any]] = [
    {**IPV6, "onGone": "cut", "mode": "dnat"},
    {**IPV6, "backendsFrom": [{**REFERENCE, "overrides": [{"pod": "a", "sourceAddress": "fd00::2"}]}]},
    {**EVERY_PORT, "backendsFrom": [{**REFERENCE, "keepPort": True}, {"refuse": True, "weight": 3}]},
]
"""Farms that are valid, but rare by chance."""


def _farm_rules_that_break(spec: dict[str, Any]) -> set[str]:
    farm = FarmFields.model_validate(spec)
    return agreed(FARM_RULES, farm, farm.model_dump(mode="json", by_alias=True, exclude_none=True))


@MORE
@given(FARMS)
def test_farm_rules_agree_with_cel(spec: dict[str, Any]) -> None:
    _farm_rules_that_break(spec)


@pytest.mark.parametrize("rule", [rule.name for rule in FARM_RULES])
def test_each_farm_rule_can_be_broken(rule: str) -> None:
    assert rule in _farm_rules_that_break(BREAKS[rule])


@pytest.mark.parametrize("spec", KEEPS)
def test_valid_farms_break_no_rule(spec: dict[str, Any]) -> None:
    assert not _farm_rules_that_break(spec)


def test_limits_rules_agree_with_cel() -> None:
    violated: set[str] = set()
    bursts = st.one_of(st.integers(1, 10), st.integers(900_000, 1_000_000))

    @MORE
    @given(rarely(RATES), bursts, rarely(RATES), bursts)
    def compare(new: str | None, new_burst: int, reset: str | None, reset_burst: int) -> None:
        limits = Limits.model_construct(new=new, new_burst=new_burst, reset=reset, reset_burst=reset_burst)
        violated.update(agreed(LIMITS_RULES, limits, limits.model_dump(mode="json", by_alias=True, exclude_none=True)))

    compare()
    assert violated == {rule.name for rule in LIMITS_RULES}


ADDRESS_TEXTS = [
    *("10.0.0.1", "10.0.0.01", "010.0.0.1", "10.0.0.300", "10.0.0", "127.0.0.1", "0.0.0.0", "255.255.255.255"),
    *("169.254.0.1", "224.0.0.1", "fd00::1", "FD00::1", "fd00:0::1", "::1", "::", "fe80::1", "fe80::1%eth0", "ff02::1"),
    *("::ffff:10.0.0.1", "::ffff:a00:1", "x", "", "10.0.0.1/32", " 10.0.0.1"),
]
RANGE_TEXTS = [
    *(
        "10.0.0.0/8",
        "10.0.0.1/8",
        "10.0.0.0/08",
        "10.0.0.0",
        "10.0.0.0/",
        "10.0.0.0/33",
        "10.0.0.0/255.0.0.0",
        "0.0.0.0/0",
    ),
    *(
        "fd00::/64",
        "FD00::/64",
        "fd00::1/64",
        "fd00::/129",
        "::/0",
        "fe80::%eth0/64",
        "::ffff:10.0.0.0/104",
        "/8",
        "",
        "None",
        "x/8",
    ),
]


POOL_RANGE_TEXTS = [
    *("10.0.0.1-10.0.0.9", "10.0.0.1 - 10.0.0.9", "10.0.0.01-10.0.0.9", "10.0.0.1-9", "10.0.0.1-10.0.0.9-10.0.0.10"),
    *("10.0.0.9-10.0.0.1", "10.0.0.0/24-10.0.1.0/24", "10.0.0.1-", "-", "fd00::1-fd00::9", "10.0.0.1-fd00::9"),
    *("fd00::01-fd00::9", "fe80::1%eth0-fe80::2", "::ffff:10.0.0.1-::ffff:10.0.0.9"),
]


@pytest.mark.parametrize(
    ("table", "texts"),
    [
        ([rules.IP, rules.IP_OR_EMPTY], ADDRESS_TEXTS),
        ([rules.CIDR, rules.SOURCE_RANGE], RANGE_TEXTS),
        ([rules.ADDRESS_RANGE], [*RANGE_TEXTS, *POOL_RANGE_TEXTS]),
        ([rules.PORTS], ["80", "80,443", "8000-8003", "8003-8000", "80,90-80,100", "80-80"]),
        ([rules.PORT_REFERENCE], [-1, 0, 1, 65535, 65536, "", "http", "80"]),
    ],
    ids=["addresses", "ranges", "pool ranges", "ports", "references"],
)
def test_value_rules_agree_with_cel(table: Sequence[Rule[Any]], texts: list[Any]) -> None:
    assert set().union(*(agreed(table, text, text) for text in texts)) == {rule.name for rule in table}


@pytest.mark.parametrize("name", ["a", "a.b", "a" * 63, "a" * 64])
def test_name_rules_agree_with_cel(name: str) -> None:
    agreed([rules.FARM_NAME, rules.POLICY_NAME], name, {"metadata": {"name": name}})


@given(st.integers(1, 99), st.integers(1, 99))
def test_expand_ports_refuses_what_the_rule_refuses(low: int, high: int) -> None:
    ports = f"{low}-{high}"
    if rules.PORTS.holds(ports):
        assert expand_ports(ports) == list(range(low, high + 1))
    else:
        with pytest.raises(ValueError, match=rules.PORTS.message):
            expand_ports(ports)


@pytest.mark.parametrize("ports", ["80", "80,443", "8000-8003", "1,3-5,7"])
def test_ports_are_joined_as_they_were(ports: str) -> None:
    assert join_ports(expand_ports(ports)) == ports
