"""The connections that are forgotten once rules are back."""

from collections.abc import Collection

from kube_nftlb.agent.engine.untranslated import WATCH_S, Untranslated
from kube_nftlb.agent.model import Programmed
from kube_nftlb.api.listeners import Listener
from kube_nftlb.netfilter.conntrack import Destination
from tests.fakes.nftlb import FakeConntrack


class Seen(FakeConntrack):
    def __init__(self) -> None:
        self.calls: list[set[Destination]] = []

    async def forget_untranslated(self, to: Collection[Destination]) -> int:
        self.calls.append(set(to))
        return 0


def programmed(*listeners: Listener, local: bool = False) -> Programmed:
    return Programmed("nftlb", frozenset(listeners), 1, 1, answers_itself=local)


async def test_those_to_all_farms_are_forgotten_once_for_each_family_but_for_the_mode_local() -> None:
    seen = Seen()
    farms = {
        "web": programmed(Listener("10.96.0.10", "TCP", 80)),
        "dns": programmed(Listener("10.96.0.11", "UDP", 53)),
        "all": programmed(Listener("fd00:96::a", "All", 0)),
        "local": programmed(Listener("172.31.0.11", "TCP", 22), local=True),
    }
    await Untranslated(farms, seen).forget(0)
    assert seen.calls == [
        {Destination("10.96.0.10", "tcp", 80), Destination("10.96.0.11", "udp", 53)},
        {Destination("fd00:96::a", protocol, 0) for protocol in ("tcp", "udp", "sctp")},
    ]


async def test_they_are_looked_for_once_more_a_moment_later_and_then_no_more() -> None:
    seen = Seen()
    untranslated = Untranslated({"web": programmed(Listener("10.96.0.10", "TCP", 80))}, seen)
    await untranslated.again(0)
    assert seen.calls == []
    await untranslated.forget(0)
    for now in (1, WATCH_S + 1, WATCH_S + 2):
        await untranslated.again(now)
    assert len(seen.calls) == 3
