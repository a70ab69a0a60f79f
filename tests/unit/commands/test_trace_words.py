"""The kernel's events about packets in the lab, in our words; see ``trace_recordings``."""

from typing import NamedTuple

import pytest

from kube_nftlb.commands.trace.interpret import interpret
from kube_nftlb.commands.trace.result import Outcome, TraceResult
from kube_nftlb.netfilter.tracing.events import Addresses, Event
from kube_nftlb.netfilter.tracing.packets import Packet
from kube_nftlb.netfilter.tracing.table import SENT_ON, name
from tests.unit.commands import trace_recordings as recordings

AT = "test.front"
"""The farm that the engine nftables has at the destination, by its name on the node."""


class Told(NamedTuple):
    """The contents of the words, by subject; empty if they say nothing."""

    verdict: str
    reason: str
    choice: str = ""
    session: str = ""
    source: str = ""
    other: tuple[str, str] = ("", "")


SERVED, NO_LOCAL = ("Served", "BackendChosen"), ("Dropped", "NoLocalBackend")
SEEN, MASQUERADED = "not masqueraded: the backend sees the client", "masqueraded: the backend sees "
RR, WEIGHT, SYMHASH = "the scheduler: rr, in turn", "the scheduler: weight, at random", "the scheduler: symhash"
ONE = "the scheduler: there is one backend"
FIXED, SESSION = "the client has a fixed session", "the client's session: the backend that it had"
REMEMBERED = "the choice is remembered for the client"
OWN = ("hairpin", "the client is its own backend")

EXPECTED = {
    # Each way to choose, of each engine.
    "nftlb-rr": Told(*SERVED, RR, source=MASQUERADED),
    "nftlb-weight": Told(*SERVED, WEIGHT, source=MASQUERADED),
    "nftlb-hash": Told(*SERVED, "the scheduler: hash", source=MASQUERADED),
    "nftlb-symhash": Told(*SERVED, SYMHASH, source=MASQUERADED),
    "nftlb-ipv6": Told(*SERVED, RR, source=MASQUERADED),
    "nftlb-session-begins": Told(*SERVED, RR, REMEMBERED),
    "nftlb-session": Told(*SERVED, SESSION),
    "nftlb-fixed-session": Told(*SERVED, FIXED),
    "nftables-rr": Told(*SERVED, RR, source=MASQUERADED),
    "nftables-weight": Told(*SERVED, WEIGHT, source=MASQUERADED),
    "nftables-hash": Told(*SERVED, "the scheduler: hash of srcip", source=MASQUERADED),
    "nftables-symhash": Told(*SERVED, SYMHASH, source=MASQUERADED),
    "nftables-session-begins": Told(*SERVED, RR, f"{REMEMBERED}, for 60 s"),
    "nftables-session-not-remembered": Told(*SERVED, RR, "the choice is not remembered: the namespace test remembers"),
    "nftables-session": Told(*SERVED, SESSION),
    "nftables-fixed-session": Told(*SERVED, FIXED),
    # Who the backend sees.
    "nftlb-not-masqueraded": Told(*SERVED, RR, source=SEEN),
    "nftlb-hairpin": Told(*SERVED, RR, source=MASQUERADED, other=OWN),
    "nftables-not-masqueraded": Told(*SERVED, ONE, source=SEEN),
    "nftables-hairpin": Told(*SERVED, ONE, source=MASQUERADED, other=OWN),
    # Who may connect.
    "policy-missing": Told("Dropped", "PolicyMissing"),
    "policy-denies": Told("Dropped", "PolicyDenies", other=("message", "the deny list test/bad")),
    "policy-does-not-deny": Told(*SERVED, RR, other=("policy", "no deny list has the client's address")),
    "policy-allows": Told(*SERVED, RR, other=("policy", "the allow list test/office admits the client")),
    "policy-allows-others": Told("Dropped", "PolicyAdmitsOthers", other=("message", "test/office")),
    "policy-allows-others-of-several": Told(
        "Dropped", "PolicyAdmitsOthers", other=("message", "test/bad, test/office")
    ),
    "source-range-outside": Told("Dropped", "OutsideSourceRanges"),
    "source-range-inside": Told(*SERVED, RR, other=("source range", "the client is in a source range")),
    "limit-new": Told("Dropped", "LimitReached", other=("message", "limits.new")),
    "limit-established": Told("Dropped", "LimitReached", other=("message", "limits.established")),
    "limit-of-backend": Told("Dropped", "LimitReached", RR, other=("message", "the backend's established")),
    # Without backends, or without backends here.
    "nftlb-no-backends": Told("Refused", "NoReadyBackends"),
    "nftables-no-backends": Told("Refused", "NoReadyBackends"),
    "nftables-last-backend-gone": Told(
        "Dropped", "NoReadyBackends", RR, other=("message", "went while the packet was")
    ),
    "nftlb-local-inside": Told(*NO_LOCAL),
    "nftlb-local-outside": Told(*NO_LOCAL),
    "nftlb-local-client": Told(*SERVED, RR, other=("traffic policy", "a client of this node: any backend")),
    "nftlb-local-steered": Told(*SERVED, "the agent's rules chose", other=("traffic policy", "a client of this node")),
    "nftables-local-inside": Told(*NO_LOCAL),
    "nftables-local-outside": Told(*NO_LOCAL),
    "nftables-local-client": Told(*SERVED, ONE),
    # What is no farm's, or did not get as far.
    "no-such-service": Told("Refused", "NoSuchService"),
    "no-listener": Told("NotServed", "NoListener"),
    "not-routed": Told("Lost", "NotRouted", RR),
    "other-program": Told("Dropped", "OtherProgram", other=("message", "the table inet foreign")),
    "rules-incomplete": Told("Dropped", "RulesIncomplete"),
    "nftlb-established": Told("Served", "EstablishedConnection", source=MASQUERADED),
    "nftables-established": Told("Served", "EstablishedConnection", source=MASQUERADED),
}


def steps(made: TraceResult, about: str) -> str:
    return " / ".join(each.text for each in made.steps if each.about == about)


def test_each_recording_is_read() -> None:
    assert sorted(EXPECTED) == recordings.names()


@pytest.mark.parametrize("recording", sorted(EXPECTED))
def test_words(recording: str) -> None:
    packet, rules = recordings.load(recording)
    made, told = interpret(packet, rules, "TCP", AT if "nftables" in recording else ""), EXPECTED[recording]
    assert made.outcome is not None
    assert (made.outcome.verdict, made.outcome.reason) == (told.verdict, told.reason)
    assert told.choice in steps(made, "choice")
    assert bool(told.choice) == bool(steps(made, "choice"))
    assert told.session in steps(made, "session")
    assert bool(told.session) == bool(steps(made, "session"))
    assert steps(made, "source").startswith(told.source)
    about, text = told.other
    assert text in (made.outcome.message if about == "message" else steps(made, about))
    if told.verdict == "Served":
        assert made.engine == ("nftables" if "nftables" in recording else "nftlb")
        assert made.backend


TRACE = name(1)
CAME = Addresses("10.244.1.9", 4711, "10.96.0.10", 80)


def of(*events: Event) -> TraceResult:
    """The words for a packet that met these rules, and left as it was last."""
    begun = Event(1, "inet", TRACE, "first", "rule", "continue", "", 7, CAME)
    return interpret(Packet(CAME, [begun, *events]), {})


def left(*addresses: object) -> Event:
    return Event(1, "inet", TRACE, SENT_ON, "policy", "accept", "", 0, Addresses(*addresses) if addresses else CAME)  # type: ignore[arg-type]  # as the cases say


def test_a_packet_that_another_program_translates() -> None:
    moved = left("10.244.1.9", 4711, "10.244.1.2", 8080)
    assert of(moved).outcome == Outcome(
        "NotServed", "OtherProgram", "another program translated it, to 10.244.1.2:8080"
    )


def test_a_packet_that_the_policy_of_another_programs_chain_drops() -> None:
    made = of(Event(1, "inet", "filter", "forward", "policy", "drop"))
    assert made.outcome is not None
    assert made.outcome[:2] == ("Dropped", "OtherProgram")
    assert "the policy of the chain forward of the table inet filter" in made.outcome.message


def test_a_mark_that_leads_nowhere() -> None:
    made = of(
        Event(1, "ip", "nftlb", "filter", "rule", "goto", "filter-web", 4),
        Event(1, "ip", "nftlb", "prerouting", "rule", "goto", "nat-web", 11),
        Event(1, "ip", "nftlb", "nat-web", "rule", "continue"),
        left(),
    )
    assert made.outcome is not None
    assert made.outcome[:2] == ("NotServed", "NotTranslated")
    assert "its mark leads to no backend" in steps(made, "backend")


def test_a_program_that_inspects_packets() -> None:
    made = of(Event(1, "inet", "kube-nftlb", "queues-web", "rule", "queue", "", 4))
    assert steps(made, "queue") == "a program inspects the packet, and may drop it"


def test_a_limit_that_only_logs() -> None:
    made = of(
        Event(1, "inet", "kube-nftlb", "connections-web", "rule", "jump", "over-new-rtlimit-web", 4),
        Event(1, "inet", "kube-nftlb", "over-new-rtlimit-web", "rule", "continue", "", 5),
    )
    assert steps(made, "limit") == "above the limit, and logged: limits.new"


@pytest.mark.parametrize(
    ("chain", "field"),
    [
        ("over-new-rtlimit-web", "limits.new"),
        ("over-rst-rtlimit-web", "limits.reset"),
        ("over-est-connlimit-web", "limits.established"),
        ("over-tcp-strict-web", "limits.tcpStrict"),
        # The farm's name may look like a backend's part of the chain's.
        ("over-est-connlimit-deadbeef-web", "limits.established"),
    ],
)
def test_limits_are_named_as_in_the_farm(chain: str, field: str) -> None:
    made = of(Event(1, "inet", "kube-nftlb", chain, "rule", "drop", "", 5))
    assert made.outcome == Outcome("Dropped", "LimitReached", f"above the limit: {field}")


def test_a_limit_of_a_backend_is_told_from_the_farms() -> None:
    made = of(
        Event(1, "inet", "kube-nftlb", "by-departure", "rule", "jump", "leaving-web", 3),
        Event(1, "inet", "kube-nftlb", "leaving-web", "rule", "jump", "over-est-connlimit-deadbeef-web", 4),
        Event(1, "inet", "kube-nftlb", "over-est-connlimit-deadbeef-web", "rule", "drop", "", 5),
    )
    assert made.outcome == Outcome("Dropped", "LimitReached", "above the limit: the backend's established")
    assert made.farm == "web"


SERVICES = "kube-nftlb-services"
DRAW = "draw-random-10-random-2.x.d-ip"


def of_engine(*events: tuple[str, str, str]) -> TraceResult:
    """The words for rules of the engine nftables, given as chain, verdict and the chain that it leads to."""
    return of(*(Event(1, "inet", SERVICES, chain, "rule", verdict, to, 4) for chain, verdict, to in events))


def test_a_group_is_drawn_before_an_endpoint_is_chosen() -> None:
    made = of_engine(
        ("prerouting", "goto", "draw-hash-srcip.srcport-10-rr-2_2.3_2-ip"),
        ("draw-hash-srcip.srcport-10-rr-2_2.3_2-ip", "continue", ""),
        ("draw-hash-srcip.srcport-10-rr-2_2.3_2-ip", "goto", "rr-3-2-group-1-ip"),
        ("rr-3-2-group-1-ip", "accept", ""),
    )
    assert steps(made, "group") == "drawn by weight, by hash of srcip srcport / that of spec.backendsFrom[1]"
    assert steps(made, "choice") == RR


@pytest.mark.parametrize(
    ("last", "verdict"),
    [
        ([(DRAW, "goto", "refuse"), ("refuse", "drop", "")], "Refused"),
        ([(DRAW, "drop", "")], "Dropped"),
    ],
)
def test_a_group_without_backends_says_so(last: list[tuple[str, str, str]], verdict: str) -> None:
    made = of_engine(("prerouting", "goto", DRAW), (DRAW, "continue", ""), *last)
    assert made.outcome is not None
    assert made.outcome[:2] == (verdict, "NoReadyBackends")
    assert "the group that was drawn has no backend" in made.outcome.message


@pytest.mark.parametrize(("verdict", "to", "told"), [("goto", "refuse", "Refused"), ("drop", "", "Dropped")])
def test_the_refused_share_of_a_farm_in_nftlb_says_so(verdict: str, to: str, told: str) -> None:
    chain = "refused-share-test.front"
    made = of(
        Event(1, "inet", "kube-nftlb", "new-ip", "rule", "goto", chain, 4),
        Event(1, "inet", "kube-nftlb", chain, "rule", verdict, to, 5),
    )
    assert made.outcome is not None
    assert (made.outcome[:2], made.farm) == ((told, "NoReadyBackends"), "test.front")
    assert "the group that was drawn has no backend" in made.outcome.message
