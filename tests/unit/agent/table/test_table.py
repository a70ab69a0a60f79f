"""The contents of the agent's own table, whatever farms put into it."""

import re
from typing import Any

import pytest

from kube_nftlb.agent.table import table
from kube_nftlb.agent.table.base import SET_NAMES, base
from kube_nftlb.agent.table.table import AgentTable
from kube_nftlb.agent.table.unserved import POOL_SETS
from kube_nftlb.netfilter.table_text import Chain, Contents

LISTENERS = frozenset(f"listeners{scope}-{family}" for scope in ("", "-all") for family in ("ip", "ip6"))
"""The sets that are looked into with each new connection while one of them is used: while nftlb serves a farm."""
EXEMPT = frozenset(name for name in SET_NAMES if name.startswith(("answered-here", "not-from-node")))
"""Those that are looked into beside these."""

SERVED = frozenset(name for name in SET_NAMES if name.startswith("served-addresses"))
"""Those that are looked into while there are addresses of pools."""


def looked_into(used: frozenset[str]) -> set[str]:
    rules = [rule for chain in base(used).chains for rule in chain.rules]
    return {name for rule in rules for name in re.findall(r"@([a-z0-9-]+)", rule)} & SET_NAMES


@pytest.mark.parametrize("name", sorted(SET_NAMES))
def test_what_is_used_is_looked_into_and_nothing_else(name: str) -> None:
    assert looked_into(frozenset()) == set()
    assert looked_into(frozenset({name})) == ({name} - EXEMPT - SERVED)
    assert looked_into(LISTENERS | {name}) == LISTENERS | ({name} - SERVED)
    assert looked_into(POOL_SETS | {name}) == ({name} - EXEMPT) | SERVED


def test_every_chain_that_a_rule_leads_to_is_there() -> None:
    for used in (frozenset[str](), *(frozenset({name}) for name in SET_NAMES | POOL_SETS), SET_NAMES | POOL_SETS):
        chains = {chain.name: chain for chain in base(used).chains}
        led_to = {
            name
            for chain in chains.values()
            for rule in chain.rules
            for name in re.findall(r"(?:jump|goto) (\S+)", rule)
        }
        assert led_to <= chains.keys()
        assert all(chain.rules or chain.hook for chain in chains.values())


def test_the_chain_for_addresses_of_pools_is_there_with_such_addresses_and_costs_open_connections_one_rule() -> None:
    (chain,) = (each for each in base(frozenset({"pool-ranges-ip6"})).chains if each.name == "unserved-pools")
    assert chain.rules[0] == "ct state established,related,untracked return"
    assert [rule for rule in chain.rules if "@pool-ranges" in rule] == [
        "ct state invalid ip6 daddr @pool-ranges-ip6 goto no-connection",
        "ip6 daddr @pool-ranges-ip6 ip6 daddr != @served-addresses-ip6 meta nfproto vmap { ipv6 : drop }",
        "ip6 daddr @pool-ranges-ip6 meta nfproto vmap { ipv6 : goto refuse }",
    ]
    waiting = base(frozenset({"pool-ranges-ip6"}), lets_wait=True)
    assert "{ ipv6 : drop }" in next(each.rules[-1] for each in waiting.chains if each.name == "unserved-pools")
    assert not [each for each in base(SET_NAMES).chains if each.name in ("unserved-pools", "no-connection")]


def test_a_table_of_another_versions_rules_is_told_from_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def seals() -> set[str]:
        nft: Any = None
        return {name for name in AgentTable(nft).state.chains if name.startswith("state-")}

    ours = seals()
    assert seals() == ours
    monkeypatch.setattr(table, "base", lambda *_: Contents(chains=(Chain("refuse", ("drop",)),)))
    assert seals() != ours


def test_a_packet_of_an_open_connection_meets_no_chain_without_nftlb_s_farms_and_one_rule_with_them() -> None:
    assert not [chain for chain in base(frozenset()).chains if "type filter" in chain.hook]
    hooked = [chain for chain in base(LISTENERS).chains if "type filter" in chain.hook]
    assert {chain.name for chain in hooked} == {"unserved", "unserved-input", "unserved-output"}
    assert {chain.rules[0] for chain in hooked} == {"ct state != new return"}
