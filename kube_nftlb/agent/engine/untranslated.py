"""Forget connections that conntrack took up untranslated while an engine had no rules.

Conntrack never translates a connection that it once let pass: a flow of UDP, or the repeated first packet of TCP, would
find nobody for as long as its client tries.
"""

from collections.abc import Iterator, Mapping

from kube_nftlb.agent.model import Programmed
from kube_nftlb.api.listeners import Listener
from kube_nftlb.netfilter.conntrack import Connections, Destination

WATCH_S = 2
"""Such connections are looked for until this long after the rules are back: a packet may just have passed them."""

_PROTOCOLS = {"All": ("tcp", "udp", "sctp"), "TCP": ("tcp",), "UDP": ("udp",), "SCTP": ("sctp",)}


class Untranslated:
    """Forgets untranslated connections to the farms that an engine has (``programmed``)."""

    def __init__(self, programmed: Mapping[str, Programmed], connections: Connections) -> None:
        self._programmed = programmed
        self._connections = connections
        self._until = float("-inf")

    async def forget(self, now: float) -> None:
        """Forget them, now that the rules are back at ``now``, in seconds."""
        self._until = now + WATCH_S
        await self._forget()

    async def again(self, now: float) -> None:
        """Forget what was taken up since, if the rules came back a moment ago."""
        if self._until > float("-inf"):
            if now > self._until:
                self._until = float("-inf")
            await self._forget()

    async def _forget(self) -> None:
        # With the mode local nothing is ever translated.
        translated = [farm.listeners for farm in self._programmed.values() if not farm.answers_itself]
        to = [each for listeners in translated for listener in listeners for each in destinations(listener)]
        for ipv6 in (False, True):
            if of_family := [each for each in to if (":" in each.ip) == ipv6]:
                await self._connections.forget_untranslated(of_family)


def destinations(listener: Listener) -> Iterator[Destination]:
    """Yield a listener's destination for each of its protocols."""
    return (Destination(listener.ip, protocol, listener.port) for protocol in _PROTOCOLS[listener.protocol])
