"""What the responder sends, to whom and when, and when it falls silent."""

import pytest

from kube_nftlb.announce.wire import arp, ndp
from kube_nftlb.announce.wire.messages import (
    Event,
    Heard,
    LinkChanged,
    Outdated,
    Peer,
    Place,
    Probed,
    Ready,
    Renewal,
    Silent,
    State,
    Yielded,
)
from kube_nftlb.announce.wire.responder import Responder
from kube_nftlb.announce.wire.sending import LinkAddresses
from tests.unit.announce.frames import ASKED4, ASKED6, CLIENT, CLIENT4, MAC, OTHER, VIP4, VIP6

LINK = "eth0"
FOUR, SIX = Place("192.0.2.10", LINK), Place("2001:db8::a:b:c", LINK)
SOURCE = bytes.fromhex("fe80" + "00" * 13 + "01")
OTHER_TEXT = "02:00:00:00:00:02"
ASK4 = arp.question(CLIENT, VIP4)[:28] + CLIENT4 + arp.question(CLIENT, VIP4)[32:]
ASK6 = ndp.question(CLIENT, VIP6, ASKED6.ip, MAC)
ASKS = pytest.mark.parametrize(
    ("place", "ask", "answer"),
    [(FOUR, ASK4, arp.answer(MAC, VIP4, ASKED4)), (SIX, ASK6, ndp.answer(MAC, VIP6, ASKED6))],
    ids=["ipv4", "ipv6"],
)


def frame(responder: Responder, data: bytes, now: float, *, late: bool = False) -> bytes | None:
    said = arp.read(data) or ndp.read(data)
    assert said is not None
    return responder.frame(LINK, said, now, late=late)


def serving(state: State, now: float = 0.0) -> Responder:
    responder = Responder()
    responder.order(state, now)
    responder.link(LINK, LinkAddresses(MAC, SOURCE), now)
    responder.events.clear()
    return responder


def until(responder: Responder, end: float, start: float = 0.0, every: float = 0.01) -> list[tuple[float, bytes]]:
    """Let time pass. What was sent, and when."""
    times = [start + every * number for number in range(int((end - start) / every) + 1)]
    return [(now, data) for now in times for _, data in responder.due(now)]


@ASKS
def test_it_answers_for_its_addresses_until_the_deadline(place: Place, ask: bytes, answer: bytes) -> None:
    responder = serving(State(3.0, (place,)))
    assert frame(responder, ask, 2.9) == answer
    responder.order(Renewal(6.0), 2.9)
    assert frame(responder, ask, 5.9) == answer
    assert frame(responder, ask, 6.0) is None, "a hung agent falls silent by itself"
    responder.due(6.0)
    assert responder.events == [Ready(holds=False)]
    responder.order(Renewal(9.0), 6.1)
    responder.order(State(9.0, (place,)), 6.1)
    assert frame(responder, ask, 6.2) is None, "who held it before does not know who holds it now"
    responder.order(State(9.0), 6.3)
    responder.order(State(9.0, (place,)), 6.4)
    assert frame(responder, ask, 6.5) == answer


def test_no_deadline_is_farther_away_than_five_seconds_and_one_that_has_passed_is_none() -> None:
    responder = serving(State(1000.0, (FOUR,)))
    assert frame(responder, ASK4, 4.9) is not None
    assert frame(responder, ASK4, 5.0) is None
    late = serving(State(9.0, (FOUR,)), now=10.0)
    assert frame(late, ASK4, 10.0) is None


@ASKS
def test_it_answers_nothing_else(place: Place, ask: bytes, answer: bytes) -> None:  # noqa: ARG001 - of the table
    assert frame(serving(State(5.0, (Place("192.0.2.11", LINK), Place("2001:db8::d", LINK)))), ask, 1.0) is None
    assert frame(serving(State(5.0, (Place(place.ip, "eth1"),))), ask, 1.0) is None
    assert frame(serving(State(5.0, (place,))), ask, 1.0, late=True) is None, "after it stood still"


@pytest.mark.parametrize(
    ("place", "frames"),
    [
        (FOUR, [arp.announcement(MAC, VIP4, reply=reply) for reply in (False, True, False)]),
        (SIX, [ndp.announcement(MAC, VIP6)] * 3),
    ],
)
def test_an_address_is_announced_three_times_and_then_never(place: Place, frames: list[bytes]) -> None:
    responder = serving(State(5.0, (place,)))
    sent = []
    for second in range(60):
        responder.order(Renewal(second + 5.0), second)
        if second % 7 == 0:
            responder.order(State(second + 5.0, (place,)), second)
        sent += until(responder, second + 0.99, second)
    assert [data for _, data in sent] == frames
    assert sent[0][0] == 0.0, "at once"


def test_an_address_that_is_taken_back_is_no_longer_announced() -> None:
    responder = serving(State(5.0, (FOUR,)))
    until(responder, 0.1)
    responder.order(State(5.0, ()), 0.1)
    assert until(responder, 3.0, 0.1) == []


@pytest.mark.parametrize(
    "told",
    [
        arp.announcement(OTHER, VIP4, reply=False),
        arp.announcement(OTHER, VIP4, reply=True),
        arp.answer(OTHER, VIP4, ASKED4),
        ndp.announcement(OTHER, VIP6),
    ],
)
def test_it_yields_at_once_to_another_host_and_says_so(told: bytes) -> None:
    state = State(5.0, (FOUR, SIX))
    responder = serving(state)
    until(responder, 0.05)
    assert frame(responder, told, 0.1) is None
    place, ask = (FOUR, ASK4) if arp.read(told) else (SIX, ASK6)
    assert responder.events == [Yielded(place.ip, LINK, OTHER_TEXT)]
    responder.order(state, 0.2)
    assert frame(responder, ask, 0.2) is None, "the agent had not heard of it"
    assert all(place is not FOUR or data[12:14] != b"\x08\x06" for _, data in until(responder, 2.0, 0.2))
    responder.order(State(5.0, ()), 2.1)
    responder.order(state, 2.2)
    assert frame(responder, ask, 2.3) is not None, "the agent decided so"


@pytest.mark.parametrize(
    "said",
    [
        arp.question(OTHER, VIP4),
        ndp.probe(OTHER, VIP6),
        arp.announcement(MAC, VIP4, reply=True),
        ndp.announcement(MAC, VIP6),
        arp.announcement(OTHER, CLIENT4, reply=True),
    ],
    ids=["probe", "IPv6 probe", "own", "own IPv6", "other address"],
)
def test_it_yields_to_nothing_else(said: bytes) -> None:
    responder = serving(State(5.0, (FOUR, SIX)))
    frame(responder, said, 0.1)
    assert responder.events == []
    assert frame(responder, ASK4, 0.2) is not None
    assert frame(responder, ASK6, 0.2) is not None


@pytest.mark.parametrize(
    ("place", "question", "told"),
    [
        (FOUR, arp.question(MAC, VIP4), arp.answer(OTHER, VIP4, ASKED4)),
        (SIX, ndp.probe(MAC, VIP6), ndp.announcement(OTHER, VIP6)),
    ],
)
def test_a_probe_asks_three_times_and_tells_who_has_the_address(place: Place, question: bytes, told: bytes) -> None:
    responder = serving(State(5.0, probe=(place,)))
    sent = until(responder, 0.15)
    assert [data for _, data in sent] == [question] * 3
    frame(responder, told, 0.16)
    assert responder.events == [Probed(place.ip, LINK, OTHER_TEXT)]
    assert until(responder, 4.0, 0.2) == []
    assert responder.events == [Probed(place.ip, LINK, OTHER_TEXT)], "once"


def test_an_address_is_free_when_nobody_has_answered_for_a_fifth_of_a_second() -> None:
    responder = serving(State(5.0, probe=(FOUR,)))
    until(responder, 0.18)
    assert responder.events == []
    until(responder, 0.25, 0.18)
    assert responder.events == [Probed(FOUR.ip, LINK)]


def test_a_holder_that_falls_silent_is_noticed_and_so_is_its_return() -> None:
    holder = Peer(FOUR.ip, LINK, OTHER_TEXT)
    responder = serving(State(5.0, watch=(holder,)))
    sent = [data for _, data in until(responder, 1.8)]
    assert sent[0] == arp.question(MAC, VIP4, OTHER)
    assert set(sent[1:]) == {sent[0], arp.question(MAC, VIP4)}, "in doubt all are asked"
    assert responder.events == [Silent(FOUR.ip, LINK, OTHER_TEXT, alone=True)]
    responder.events.clear()
    frame(responder, arp.answer(OTHER, VIP4, ASKED4), 1.9)
    assert responder.events == [Heard(FOUR.ip, LINK, OTHER_TEXT)]


def test_who_else_answers_for_an_address_counts_only_while_its_holder_does_not() -> None:
    other = bytes.fromhex("020000000003")
    responder = serving(State(5.0, watch=(Peer(FOUR.ip, LINK, OTHER_TEXT),)))
    until(responder, 0.0)
    frame(responder, arp.answer(OTHER, VIP4, ASKED4), 0.1)
    frame(responder, arp.answer(other, VIP4, ASKED4), 0.2)
    assert responder.events == [], "who had it before may still answer"
    until(responder, 1.1, 0.5)
    frame(responder, arp.answer(other, VIP4, ASKED4), 1.2)
    assert responder.events == [Heard(FOUR.ip, LINK, "02:00:00:00:00:03")], "it has another link-layer address"


@pytest.mark.parametrize("to_all", [True, False], ids=["announced", "answered"])
def test_a_host_that_says_it_has_a_watched_address_is_told_of_once(to_all: bool) -> None:
    third, fourth = bytes.fromhex("020000000003"), bytes.fromhex("020000000004")
    state = State(9.0, watch=(Peer(FOUR.ip, LINK, OTHER_TEXT),))
    responder = serving(state)
    start = 1.1
    until(responder, start)

    def says(mac: bytes, since: float, seconds: float) -> list[str]:
        """The hosts that the agent is told of while one says a thousand times a second that it has the address."""
        told = arp.announcement(mac, VIP4, reply=True) if to_all else arp.answer(mac, VIP4, ASKED4)
        for number in range(round(seconds * 1000)):
            responder.order(Renewal(9.0), since)
            frame(responder, told, since + number / 1000)
        events, responder.events = responder.events, []
        return [event.mac for event in events if isinstance(event, Heard)]

    assert says(third, start, 0.4) == ["02:00:00:00:00:03"]
    assert says(fourth, start + 0.4, 0.3) == ["02:00:00:00:00:04"], "half a second later"
    assert says(third, start + 0.7, 0.2) == []
    responder.standing(start + 0.9)
    assert says(fourth, start + 0.9, 0.1) == ["02:00:00:00:00:04"], "an agent that has restarted does not know it"
    responder.order(State(9.0, watch=(Peer(FOUR.ip, LINK, "02:00:00:00:00:04"),)), start + 1.0)
    assert says(fourth, start + 1.0, 0.5) == [], "it is the one that is watched"
    if to_all:
        assert says(third, start + 1.5, 0.5) == ["02:00:00:00:00:03"]
        responder.order(state, start + 2.0)
        assert says(third, start + 2.5, 0.5) == ["02:00:00:00:00:03"], "somebody else is watched"


def test_a_holder_that_takes_an_address_again_is_told_of_though_the_lease_named_the_other_meanwhile() -> None:
    holder, other = (State(9.0, watch=(Peer(FOUR.ip, LINK, mac),)) for mac in (OTHER_TEXT, "02:00:00:00:00:03"))
    takes = arp.announcement(bytes.fromhex("020000000003"), VIP4, reply=True)
    responder = serving(holder)
    frame(responder, takes, 0.1)
    responder.order(other, 1.0)
    responder.order(holder, 2.0)
    responder.events.clear()
    frame(responder, takes, 3.0)
    assert responder.events == [Heard(FOUR.ip, LINK, "02:00:00:00:00:03")]


def test_a_node_that_says_at_any_rate_whether_it_is_outdated_is_told_of_once_a_round() -> None:
    responder = serving(State(5.0, watch=(Peer(SIX.ip, LINK, OTHER_TEXT),)))
    for number in range(2000):
        frame(responder, ndp.answer(OTHER, VIP6, ASKED6, outdated=number % 2 == 0), number / 1000)
    assert responder.events == [Outdated(LINK, OTHER_TEXT, outdated=flag) for flag in (True, False, True, False)]


def test_a_node_that_hears_others_knows_that_it_is_not_the_one_that_is_cut_off() -> None:
    responder = serving(State(5.0, watch=(Peer(FOUR.ip, LINK, OTHER_TEXT),)))
    until(responder, 1.2)
    frame(responder, ASK4, 1.2)
    until(responder, 1.8, 1.2)
    assert responder.events == [Silent(FOUR.ip, LINK, OTHER_TEXT, alone=False)]


@pytest.mark.parametrize("source", [b"", None])
def test_who_cannot_be_asked_is_not_silent(source: bytes | None) -> None:
    responder = Responder()
    responder.order(State(5.0, watch=(Peer(SIX.ip, LINK, OTHER_TEXT),)), 0.0)
    if source is not None:
        responder.link(LINK, LinkAddresses(MAC, source), 0.0)
    responder.events.clear()
    until(responder, 4.0)
    assert responder.events == []
    assert not any(isinstance(event, Silent) for event in responder.standing(4.0)), "nor to an agent that restarts"


def test_a_silence_that_begins_while_the_holder_cannot_be_asked_is_told_once_it_can() -> None:
    responder = Responder()
    responder.order(State(5.0, watch=(Peer(SIX.ip, LINK, OTHER_TEXT),)), 0.0)
    responder.link(LINK, LinkAddresses(MAC), 0.0)
    until(responder, 2.9)
    responder.link(LINK, LinkAddresses(MAC, SOURCE), 2.9)
    responder.events.clear()
    until(responder, 4.9, 2.9)
    assert responder.events == [Silent(SIX.ip, LINK, OTHER_TEXT, alone=True)]


def test_an_agent_that_restarts_while_a_silent_holder_cannot_be_asked_is_told_of_it_once_it_can() -> None:
    responder = serving(State(5.0, watch=(Peer(SIX.ip, LINK, OTHER_TEXT),)))
    until(responder, 1.6)
    assert responder.events == [Silent(SIX.ip, LINK, OTHER_TEXT, alone=True)]
    responder.link(LINK, LinkAddresses(MAC), 1.6)
    responder.events = responder.standing(1.6)
    until(responder, 2.0, 1.6)
    responder.link(LINK, LinkAddresses(MAC, SOURCE), 2.0)
    assert not any(isinstance(event, Silent) for event in responder.events)
    until(responder, 4.9, 2.0)
    assert responder.events[-1] == Silent(SIX.ip, LINK, OTHER_TEXT, alone=True)


def test_of_a_holder_of_both_families_the_one_that_can_be_asked_for_is_watched() -> None:
    responder = Responder()
    responder.order(State(5.0, watch=(Peer(SIX.ip, LINK, OTHER_TEXT), Peer(FOUR.ip, LINK, OTHER_TEXT))), 0.0)
    responder.link(LINK, LinkAddresses(MAC), 0.0)
    responder.events.clear()
    until(responder, 2.0)
    assert responder.events == [Silent(FOUR.ip, LINK, OTHER_TEXT, alone=True)]


def test_a_former_holder_that_still_answers_is_told_and_not_yielded_to() -> None:
    former = Peer(FOUR.ip, LINK, OTHER_TEXT)
    responder = serving(State(5.0, (FOUR,), fence=(former,)))
    until(responder, 2.0)
    assert responder.events == [], "it was gone"
    frame(responder, arp.answer(OTHER, VIP4, ASKED4), 2.1)
    assert responder.events == [Heard(FOUR.ip, LINK, OTHER_TEXT)]
    assert arp.announcement(MAC, VIP4, reply=False) in [data for _, data in until(responder, 2.15, 2.1)]
    assert frame(responder, ASK4, 2.2) is not None
    frame(responder, arp.announcement(OTHER, VIP4, reply=True), 2.3)
    assert responder.events[-1] == Yielded(FOUR.ip, LINK, OTHER_TEXT), "it took the address, and told all"


def test_after_a_link_was_away_others_may_have_its_addresses() -> None:
    state = State(5.0, (FOUR,))
    responder = serving(state)
    responder.link(LINK, None, 1.0, "the link is down")
    assert responder.events == [LinkChanged(LINK, error="the link is down"), Yielded(FOUR.ip, LINK, "")]
    responder.link(LINK, LinkAddresses(MAC), 2.0)
    assert frame(responder, ASK4, 2.1) is None
    responder.order(State(5.0, ()), 2.2)
    responder.order(state, 2.3)
    assert frame(responder, ASK4, 2.4) is not None


def test_an_address_that_comes_while_its_link_is_away_is_not_held_and_the_error_is_told_once() -> None:
    responder = serving(State(5.0, (FOUR,)))
    responder.link(LINK, None, 1.0, "the link is down")
    responder.order(State(5.0, (FOUR, SIX)), 1.1)
    responder.events.clear()
    responder.link(LINK, None, 1.2, "the link is down")
    assert responder.events == [Yielded(SIX.ip, LINK, "")]
    assert not responder.holds


@pytest.mark.parametrize(
    "state",
    [
        State(5.0, (Place("x", LINK),)),
        State(5.0, watch=(Peer(FOUR.ip, LINK, "x"),)),
        State(5.0, fence=(Peer(FOUR.ip, LINK, "ff:ff:ff:ff:ff:ff"),)),
        State(5.0, watch=(Peer(FOUR.ip, LINK, "00:00:00:00:00:00"),)),
    ],
)
def test_a_state_with_a_bad_address_is_refused_as_a_whole(state: State) -> None:
    responder = serving(State(5.0, (FOUR,)))
    with pytest.raises(ValueError, match=r"x|host"):
        responder.order(state, 0.1)
    until(responder, 2.0)
    assert frame(responder, ASK4, 2.0) is not None


def test_an_agent_that_restarts_while_an_address_is_probed_gets_an_outcome() -> None:
    responder = serving(State(5.0, probe=(FOUR,)))
    until(responder, 0.3)
    responder.events = responder.standing(0.3)
    responder.order(State(5.0, probe=(FOUR,)), 0.3)
    until(responder, 0.6, 0.3)
    assert responder.events[-1] == Probed(FOUR.ip, LINK)


def test_an_agent_that_connects_is_told_what_stands() -> None:
    responder = serving(State(5.0, (FOUR,)))
    frame(responder, arp.announcement(OTHER, VIP4, reply=True), 0.1)
    expected: list[Event] = [
        Ready(holds=True),
        LinkChanged(LINK, "02:00:00:00:00:01"),
        Yielded(FOUR.ip, LINK, OTHER_TEXT),
    ]
    assert responder.standing(0.2) == expected
    assert Responder().standing(0.0) == [Ready(holds=False)]
    responder.link(LINK, None, 0.3, "Operation not permitted")
    assert LinkChanged(LINK, error="Operation not permitted") in responder.standing(0.4)
    responder.order(State(5.0), 0.5)
    assert responder.standing(0.6) == [Ready(holds=True)], "it does not matter any more"


@pytest.mark.parametrize("place", [FOUR, SIX], ids=["ipv4", "ipv6"])
def test_a_holder_tells_those_who_watch_it_that_it_is_outdated_and_no_client(place: Place) -> None:
    holder, watcher = serving(State(5.0, (place,), outdated=True)), Responder()
    watcher.order(State(5.0, watch=(Peer(place.ip, LINK, MAC.hex(":")),)), 0.0)
    watcher.link(LINK, LinkAddresses(OTHER, SOURCE), 0.0)
    watcher.events.clear()

    def asks(now: float) -> list[Event]:
        for data in [data for _, data in until(watcher, now, now)]:
            answer = frame(holder, data, now)
            assert answer is not None
            frame(watcher, answer, now)
        events, watcher.events = watcher.events, []
        return events

    assert asks(0.0) == [Outdated(LINK, MAC.hex(":"), outdated=True)]
    assert asks(0.5) == [], "it is told once"
    assert Outdated(LINK, MAC.hex(":"), outdated=True) in watcher.standing(0.5), "and to an agent that has restarted"
    holder.order(State(5.0, (place,)), 0.6)
    assert asks(1.0) == [Outdated(LINK, MAC.hex(":"), outdated=False)]
    holder.order(State(5.0, (place,), outdated=True), 1.1)
    assert frame(holder, ASK4, 1.2) == (arp.answer(MAC, VIP4, ASKED4) if place is FOUR else None)


def test_what_hosts_say_of_addresses_that_do_not_matter_here_is_no_event_and_no_reason_to_stop() -> None:
    responder = serving(State(5.0, (FOUR,), watch=(Peer("192.0.2.11", LINK, OTHER_TEXT),)))
    frame(responder, arp.announcement(OTHER, bytes((192, 0, 2, 12)), reply=True), 0.1)
    assert responder.events == []
    assert responder.holds


@pytest.mark.parametrize("ip", ["192.0.2", "192.0.2.010", "x", "", "2001:db8::g"])
def test_an_order_with_what_is_no_address_is_refused(ip: str) -> None:
    with pytest.raises(ValueError, match="does not appear to be an IPv4 or IPv6 address"):
        Responder().order(State(5.0, (Place(ip, LINK),)), 0.0)
