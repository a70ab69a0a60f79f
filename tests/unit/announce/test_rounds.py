"""A node that is gone is noticed within two seconds, and told from one that lost an address."""

import pytest

from kube_nftlb.announce.wire.messages import Peer
from kube_nftlb.announce.wire.rounds import Rounds

MAC, OTHER = "02:00:00:00:00:01", "02:00:00:00:00:02"


def everybody(_: Peer) -> bool:
    return True


def nobody(_: Peer) -> bool:
    return False


def peers(number: int, mac: str = MAC) -> list[Peer]:
    return [Peer(f"192.0.2.{each}", "eth0", mac) for each in range(number)]


def watched(rounds: Rounds, lost: set[Peer], *, since: float, until: float) -> dict[Peer, float]:
    """Ask until then; all answer at once but those that are lost. Who was found silent, and when."""
    silent: dict[Peer, float] = {}
    for now in [number / 100 for number in range(int(since * 100), int(until * 100))]:
        asked, found = rounds.due(now, everybody, nobody)
        silent |= dict.fromkeys(found, now)
        for peer in asked:
            if peer not in lost:
                rounds.heard(peer)
    return silent


@pytest.mark.parametrize("number", [1, 2, 3, 500])
def test_all_addresses_of_a_node_that_is_gone_are_silent_within_two_seconds(number: int) -> None:
    rounds, here = Rounds(), peers(number)
    rounds.keep([*here, *peers(3, OTHER)], 0.0)
    assert watched(rounds, set(), since=0.0, until=5.2) == {}
    silent = watched(rounds, set(here), since=5.2, until=9.0)
    assert silent.keys() == set(here)
    assert 6.4 <= min(silent.values()) <= max(silent.values()) <= 7.2


def test_an_address_that_its_node_lost_is_silent_and_the_others_are_not() -> None:
    rounds, here = Rounds(), peers(4)
    rounds.keep(here, 0.0)
    assert watched(rounds, {here[2]}, since=0.0, until=6.0).keys() == {here[2]}


def test_it_says_when_a_silent_address_answers_again() -> None:
    rounds, here = Rounds(), peers(1)
    rounds.keep(here, 0.0)
    assert watched(rounds, set(here), since=0.0, until=3.0).keys() == set(here)
    assert rounds.silent(everybody) == here
    assert rounds.heard(here[0]), "it was silent"
    assert not rounds.heard(here[0]), "it is no longer"
    assert rounds.silent(everybody) == []


def test_a_node_is_asked_for_one_address_a_round_however_many_it_has() -> None:
    rounds = Rounds()
    rounds.keep(peers(500), 0.0)
    asked = []
    for number in range(100):
        found, _ = rounds.due(number * 0.5, everybody, nobody)
        asked += found
        for peer in found:
            rounds.heard(peer)
    assert len(asked) == len(set(asked)) == 100


def test_nobody_is_silent_because_the_own_link_was_away() -> None:
    rounds, here = Rounds(), peers(2)
    rounds.keep(here, 0.0)
    watched(rounds, set(), since=0.0, until=2.0)
    for number in range(20, 60):
        assert rounds.due(number / 10, nobody, nobody) == ([], [])
    assert watched(rounds, set(), since=6.0, until=9.0) == {}
    assert watched(rounds, set(here), since=9.0, until=12.0).keys() == set(here)


def test_nobody_is_silent_because_the_questions_wait_to_be_sent() -> None:
    rounds, here = Rounds(), peers(2)
    rounds.keep(here, 0.0)
    asked, _ = rounds.due(0.0, everybody, nobody)
    for number in range(100):
        assert rounds.due(number / 10, everybody, lambda peer: peer in asked) == ([], [])
    assert watched(rounds, set(here), since=10.0, until=12.5).keys() == set(here), "once they leave"
