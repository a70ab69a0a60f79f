import json

import pytest

from kube_nftlb import errors
from kube_nftlb.commands.trace import command, output
from kube_nftlb.commands.trace.passage import Outcome, Passage, object_name
from kube_nftlb.netfilter.tracing.events import Addresses, Event
from kube_nftlb.netfilter.tracing.rules import Rule, chain_of


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("10.96.0.10:80", ("10.96.0.10", 80)),
        ("[fd00:0::10]:443", ("fd00::10", 443)),
        ("10.96.0.10:65535", ("10.96.0.10", 65535)),
    ],
)
def test_destinations(text: str, parsed: tuple[str, int]) -> None:
    assert command.destination(text) == parsed


@pytest.mark.parametrize(
    "text", ["", "10.96.0.10", "10.96.0.10:0", "10.96.0.10:65536", "10.96.0.300:80", "fd00::10:80", "web:80"]
)
def test_what_is_no_destination(text: str) -> None:
    with pytest.raises(errors.UsageError, match="is not an address with a port, such as"):
        command.destination(text)


def test_farms_have_the_names_that_people_know() -> None:
    assert object_name("web--http") == "default/web--http"
    assert object_name("shop.web--http") == "shop/web--http"


def test_an_answer_for_programs_has_each_rule() -> None:
    event = Event(
        1, "ip", "nftlb", "filter-web", "rule", "continue", "", 4, Addresses("10.244.1.9", 4711, "10.96.0.10", 80)
    )
    made = Passage("10.244.1.9:4711", "10.96.0.10:80", farm="shop.web", engine="nftlb")
    made.step("choice", "the scheduler: rr, in turn", "filter-web")
    made.outcome = Outcome("Served", "BackendChosen", "sent to 10.244.1.2:80")
    told = json.loads(output.document(made, "n1", [event], {(chain_of(event), 4): Rule(("numgen 0",))}))
    assert (told["node"], told["farm"], told["outcome"]["verdict"]) == ("n1", "shop/web", "Served")
    assert told["steps"] == [{"about": "choice", "text": "the scheduler: rr, in turn", "chain": "filter-web"}]
    assert told["events"][0]["rule"] == 4
    assert told["events"][0]["expressions"] == ["numgen 0"]
    assert told["events"][0]["addresses"]["destination"] == "10.96.0.10"
