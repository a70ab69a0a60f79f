"""A chain's name tells all that its rules depend on."""

import pytest

from kube_nftlb.agent.engine.nftables import layout
from kube_nftlb.agent.engine.nftables.affinity import Known, Memory, Pick
from kube_nftlb.agent.engine.nftables.choice import Choice, Rules
from kube_nftlb.agent.engine.nftables.scheduling import Schedule, parse

CHOICES = [
    Choice("random", 1),
    Choice("rr", 30, counter=7),
    Choice("hash", 3, "srcip srcport", inside=True),
    Choice("symhash", 4094, inside=True),
]
PLACES = [(family, all_ports) for family in layout.FAMILIES for all_ports in (False, True)]
CHAINS: list[Rules] = [
    *(kind(*place, choice) for choice in CHOICES for place in PLACES for kind in (Schedule, Pick)),
    *(
        kind(*place, ttl_s, namespace)
        for place in PLACES
        for ttl_s in (1, 10800)
        for namespace in ("default", "team-1-ip6")
        for kind in (Known, Memory)
    ),
    *(Known(*place, 60, "default", has_sessions=True) for place in PLACES),
]


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: chain.name)
def test_a_chain_is_found_by_its_name(chain: Rules) -> None:
    assert parse(chain.name) == chain
    assert list(parse(chain.name).rules()) == list(chain.rules())


def test_different_chains_have_different_names_and_rules() -> None:
    unique = {chain.name: b"|".join(chain.rules()) for chain in CHAINS}
    assert len(set(unique.values())) == len(unique) == len(CHAINS)


@pytest.mark.parametrize("name", ["refuse", "by-client-ip", "random-ip", "rr-3-ip", "random-3-ip4", "layout-0f"])
def test_other_chains_are_not_parsed(name: str) -> None:
    with pytest.raises(ValueError, match="is not the name of a chain"):
        parse(name)
