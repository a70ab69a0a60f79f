"""A chain's name tells all that its rules depend on."""

import itertools

import pytest

from kube_nftlb.agent.engine.nftables.scheduling import Affinity, Choice, Remember, Rules, Schedule, parse

CHOICES = [
    Choice("random", 1),
    Choice("rr", 30, counter=7),
    Choice("hash", 3, "srcip srcport", inside=True),
    Choice("symhash", 4094, inside=True),
]
CHAINS: list[Rules] = [
    chain
    for choice, family, all_ports in itertools.product(CHOICES, ("ip", "ip6"), (False, True))
    for chain in (
        Schedule(family, all_ports, choice),  # type: ignore[arg-type] # one of the two
        Affinity(family, all_ports, choice, 10800, has_sessions=True),  # type: ignore[arg-type] # the same
        Affinity(family, all_ports, choice, 1, has_sessions=False),  # type: ignore[arg-type] # the same
        Remember(family, all_ports, 60, choice.modulus),  # type: ignore[arg-type] # the same
    )
]


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: chain.name)
def test_a_chain_is_found_by_its_name(chain: Rules) -> None:
    assert parse(chain.name) == chain
    assert list(parse(chain.name).rules()) == list(chain.rules())


def test_different_chains_have_different_names_and_rules() -> None:
    unique = {chain.name: b"|".join(chain.rules()) for chain in CHAINS}
    assert len(set(unique.values())) == len(unique) == len(set(CHAINS))


@pytest.mark.parametrize("name", ["refuse", "by-client-ip", "random-ip", "rr-3-ip", "random-3-ip4", "layout-0f"])
def test_other_chains_are_not_parsed(name: str) -> None:
    with pytest.raises(ValueError, match="is not the name of a chain"):
        parse(name)
