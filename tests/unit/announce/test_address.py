"""What a node does about one address, for each situation."""

from typing import Any

import pytest

from kube_nftlb.announce.ownership.address import Act, View, Wire, Write, decide
from kube_nftlb.announce.ownership.gate import Blocker, Reason
from kube_nftlb.announce.ownership.records import NOBODY, Record

ME, HOLDER = "me", "holder"
MAC, FOREIGN = "02:00:00:00:00:01", "02:00:00:00:00:ee"
MINE, THEIRS = Record("1", ME, "02:00:00:00:00:02"), Record("1", HOLDER, MAC)
EXCLUDED = Blocker(Reason.NODE_EXCLUDED, "")
MUTE = Blocker(Reason.NO_RESPONDER, "")
LATE, GONE = Blocker(Reason.NOT_PROGRAMMED, ""), Blocker(Reason.NO_FARM, "")
NOW = 100.0
FREE = Wire(free=True, free_at=NOW - 1)
LONG_AGO = Wire(free=True, free_at=NOW - 20)
SILENT = Wire(silent_at=NOW)
CUT_OFF = Wire(silent_at=NOW, silent_alone=True)
ASIDE = Wire(other=MAC, other_at=NOW - 1)
STOLEN = Wire(other=FOREIGN, other_at=NOW - 1)

ALONE = Act(answer=True, alone=True)
LATER = (HOLDER, "b", "c", ME)
MANY = tuple(f"n{number}" for number in range(1000))


def view(**differs: Any) -> View:
    """A node that has programmed the farms of an address that nobody holds."""
    other = differs.get("wire", Wire()).other
    asked = View(ME, NOW, NOBODY, (ME, HOLDER), None, None, Wire(), NOW, open_at=NOW, other_is_node=other == MAC)
    if differs.get("record", NOBODY).holder == HOLDER:
        asked = asked._replace(open_at=None)
    return asked._replace(**differs)


@pytest.mark.parametrize(
    ("differs", "expected"),
    [
        ({}, Act(probe=True)),
        ({"wire": FREE}, Act(write=Write.CLAIM)),
        ({"wire": FREE, "why_not_announce": LATE}, Act(why_not=LATE)),
        ({"wire": LONG_AGO}, Act(probe=True)),
        ({"wire": LONG_AGO, "why_not_announce": LATE}, Act(why_not=LATE)),
        ({"why_not_announce": LATE}, Act(probe=True, why_not=LATE)),
        ({"why_not_announce": LATE, "candidates": (HOLDER, ME)}, Act(why_not=LATE)),
        ({"why_not_announce": EXCLUDED}, Act(why_not=EXCLUDED)),
        ({"wire": FREE, "candidates": (HOLDER,)}, Act()),
        ({"wire": FREE, "candidates": (HOLDER, ME)}, Act(again=NOW + 0.5)),
        ({"wire": FREE, "candidates": (HOLDER, ME), "open_at": NOW - 0.5}, Act(write=Write.CLAIM)),
        ({"wire": FREE, "candidates": (*MANY, ME), "open_at": NOW - 10}, Act(write=Write.CLAIM)),
        ({"wire": FREE, "api_away_at": NOW - 9}, Act()),
        ({"wire": STOLEN}, Act(used_by=FOREIGN, again=NOW + 9)),
        ({"wire": STOLEN, "now": NOW + 9}, Act(used_by=FOREIGN, probe=True)),
    ],
)
def test_an_address_that_nobody_holds(differs: dict[str, Any], expected: Act) -> None:
    assert decide(view(**differs)) == expected


@pytest.mark.parametrize(
    ("differs", "expected"),
    [
        ({}, Act(watch=MAC)),
        ({"why_not_announce": LATE}, Act(watch=MAC, why_not=LATE)),
        ({"why_not_announce": LATE, "wire": SILENT}, Act(watch=MAC, why_not=LATE)),
        ({"why_not_announce": EXCLUDED}, Act(why_not=EXCLUDED)),
        ({"candidates": (HOLDER, "b", ME)}, Act(watch=MAC)),
        ({"candidates": LATER}, Act(again=120.0)),
        ({"candidates": LATER, "now": 121.0}, Act(watch=MAC, again=123.0)),
        ({"candidates": LATER, "now": 124.0}, Act(again=150.0)),
        ({"candidates": LATER, "wire": SILENT, "now": 124.0}, Act(watch=MAC, write=Write.CLAIM)),
        ({"candidates": LATER, "wire": CUT_OFF, "now": 124.0}, Act(again=150.0)),
        ({"wire": SILENT}, Act(watch=MAC, write=Write.CLAIM)),
        ({"wire": SILENT, "candidates": (HOLDER, "b", ME)}, Act(watch=MAC, again=NOW + 0.2)),
        ({"wire": SILENT, "api_away_at": NOW - 9}, Act(watch=MAC, again=NOW + 4.5)),
        ({"wire": SILENT, "api_away_at": NOW - 9, "now": NOW + 4.5}, Act(answer=True, alone=True)),
        ({"wire": SILENT, "superseded_until": NOW + 9}, Act(watch=MAC, again=NOW + 9)),
        ({"wire": CUT_OFF}, Act(watch=MAC, write=Write.CLAIM)),
        ({"wire": CUT_OFF, "superseded_until": NOW + 9}, Act(watch=MAC, again=NOW + 9)),
        ({"outdated_at": NOW}, Act(watch=MAC, write=Write.CLAIM)),
        ({"outdated_at": NOW, "api_back_at": NOW - 4}, Act(watch=MAC, again=NOW + 11)),
        ({"outdated_at": NOW - 9, "api_away_at": NOW - 9}, Act(watch=MAC)),
        ({"outdated_at": NOW, "candidates": (HOLDER, "b", ME)}, Act(watch=MAC, again=NOW + 0.5)),
        ({"outdated_at": NOW, "candidates": LATER}, Act(again=120.0)),
        ({"outdated_at": 120.0, "now": 122.0, "candidates": LATER}, Act(watch=MAC, write=Write.CLAIM)),
        ({"outdated_at": NOW, "why_not_announce": LATE}, Act(watch=MAC, why_not=LATE)),
        ({"alone": True, "api_away_at": NOW - 9}, Act(answer=True, alone=True)),
        ({"alone": True}, Act(answer=True, alone=True, write=Write.CLAIM)),
        ({"open_at": NOW}, Act(write=Write.CLAIM)),
        ({"open_at": NOW, "api_away_at": NOW - 9}, Act(watch=MAC)),
        ({"open_at": NOW, "unwritable": True}, Act(watch=MAC, write=Write.CLAIM)),
        ({"open_at": NOW, "unwritable": True, "wire": SILENT, "now": NOW + 4.5}, ALONE._replace(write=Write.CLAIM)),
        ({"wire": SILENT, "unwritable": True}, Act(watch=MAC, write=Write.CLAIM, again=NOW + 4.5)),
        ({"wire": SILENT, "unwritable": True, "now": NOW + 4.5}, ALONE._replace(write=Write.CLAIM)),
        ({"alone": True, "why_not_keep": EXCLUDED}, Act(why_not=EXCLUDED)),
        ({"open_at": NOW, "unwritable": True, "candidates": ("b", ME)}, Act(watch=MAC, again=NOW + 0.5)),
        ({"alone": True, "cut_off": True, "api_away_at": NOW - 9}, ALONE._replace(watch=MAC)),
        ({"alone": True, "cut_off": True, "api_back_at": NOW}, ALONE._replace(watch=MAC, again=NOW + 3)),
        ({"alone": True, "cut_off": True, "api_back_at": NOW - 3}, ALONE._replace(watch=MAC, write=Write.CLAIM)),
        ({"wire": Wire(holder_mac=FOREIGN)}, Act(watch=FOREIGN)),
    ],
)
def test_an_address_that_another_node_holds(differs: dict[str, Any], expected: Act) -> None:
    assert decide(view(record=THEIRS, **differs)) == expected


@pytest.mark.parametrize(
    ("differs", "expected"),
    [
        ({}, Act(probe=True)),
        ({"wire": FREE}, Act(answer=True)),
        ({"wire": FREE, "why_not_announce": LATE}, Act(answer=True)),
        ({"wire": FREE, "candidates": (HOLDER,)}, Act(answer=True)),
        ({"wire": FREE, "api_away_at": NOW - 900}, Act(answer=True)),
        ({"wire": FREE, "why_not_keep": LATE}, Act(write=Write.GIVE_UP, why_not=LATE)),
        ({"wire": FREE, "why_not_keep": GONE}, Act(write=Write.GIVE_UP, why_not=GONE)),
        ({"wire": FREE, "leaving": True}, Act(answer=True, write=Write.LEAVE)),
        ({"wire": FREE, "leaving": True, "candidates": (ME,)}, Act(answer=True)),
        ({"wire": FREE, "record": MINE._replace(leaving=True), "leaving": True}, Act(answer=True)),
        ({"wire": FREE, "record": MINE._replace(leaving=True)}, Act(answer=True, write=Write.CLAIM)),
        ({"wire": FREE, "record": MINE._replace(unwatched=True)}, Act(answer=True, write=Write.CLAIM)),
        ({"wire": FREE, "record": MINE._replace(unwatched=True), "leaving": True}, Act(answer=True, write=Write.LEAVE)),
        ({"wire": ASIDE, "read_at": NOW - 2}, Act(used_by=MAC, read=True, again=NOW + 9)),
        ({"wire": ASIDE, "read_at": NOW - 2, "api_away_at": NOW}, Act(used_by=MAC, again=NOW + 9)),
        ({"wire": ASIDE}, Act(answer=True)),
        ({"wire": STOLEN}, Act(used_by=FOREIGN, again=NOW + 9)),
        ({"wire": STOLEN, "now": NOW + 9}, Act(used_by=FOREIGN, probe=True)),
    ],
)
def test_an_address_that_this_node_holds(differs: dict[str, Any], expected: Act) -> None:
    assert decide(view(**{"record": MINE, **differs})) == expected


@pytest.mark.parametrize(
    ("differs", "expected"),
    [
        ({"record": MINE, "wire": FREE}, Act(probe=True, why_not=MUTE)),
        ({"record": MINE}, Act(probe=True, why_not=MUTE)),
        ({"record": MINE, "wire": FREE, "leaving": True}, Act(probe=True, write=Write.LEAVE, why_not=MUTE)),
        ({"record": MINE, "wire": FREE, "why_not_keep": GONE}, Act(write=Write.GIVE_UP, why_not=GONE)),
        ({"record": THEIRS}, Act(watch=MAC, why_not=MUTE)),
        ({"record": THEIRS, "wire": SILENT}, Act(probe=True, watch=MAC, why_not=MUTE)),
        ({"record": THEIRS, "open_at": NOW}, Act(probe=True, why_not=MUTE)),
        ({"record": THEIRS, "alone": True, "api_away_at": NOW - 9}, Act(probe=True, why_not=MUTE)),
        ({"wire": FREE}, Act(probe=True, why_not=MUTE)),
        ({"why_not_announce": EXCLUDED}, Act(why_not=EXCLUDED)),
    ],
)
def test_a_node_that_can_say_nothing_on_the_segment_keeps_its_lease_and_takes_none(
    differs: dict[str, Any], expected: Act
) -> None:
    assert decide(view(mute=MUTE, **differs)) == expected


@pytest.mark.parametrize("record", [NOBODY, THEIRS, THEIRS._replace(leaving=True)])
def test_a_node_whose_agent_ends_takes_nothing(record: Record) -> None:
    found = decide(view(record=record, leaving=True, open_at=NOW, wire=FREE))
    assert found.write is None
    assert found.why_not is not None
    assert found.why_not.reason is Reason.NODE_LEAVES


def test_the_first_of_the_others_takes_an_address_whose_holder_leaves_at_once() -> None:
    leaving = THEIRS._replace(leaving=True)
    assert decide(view(record=leaving, candidates=(HOLDER, ME), open_at=NOW)).write is Write.CLAIM
