"""Whether an address that nobody is known to have is free (RFC 5227, RFC 4862). Pure; times are monotonic seconds."""

from collections.abc import Iterable
from typing import Final

from kube_nftlb.announce.wire.messages import Place
from kube_nftlb.announce.wire.sending import Sending

_PATIENCE_S: Final = 0.1
"""How long an answer to the last question may take."""


class Probes:
    """Probes that go on, and those that have an outcome. Each address is probed once while it stays wanted."""

    def __init__(self, sending: Sending) -> None:
        self._sending = sending
        self._open: dict[Place, float | None] = {}
        """With the time at which nobody has answered; None while questions wait to be sent."""
        self._done: set[Place] = set()

    def keep(self, places: Iterable[Place], now: float) -> None:
        """Probe these, and nothing else."""
        wanted = set(places)
        for place in self._open.keys() - wanted:
            self._sending.cancel(place)
        for place in wanted - self._open.keys() - self._done:
            self._sending.probe(place, now)
        self._open = {place: self._open.get(place) for place in wanted - self._done}
        self._done &= wanted

    def forget(self) -> None:
        """Forget the outcomes, which nobody knows any more."""
        self._done.clear()

    def link_is_new(self, link: str, now: float) -> None:
        """Begin again on a link that can be used again."""
        for place in [place for place in self._open if place.link == link]:
            self._open[place] = None
            self._sending.probe(place, now)

    def answered(self, place: Place) -> bool:
        """Take note that somebody has the address. Return whether that is the outcome of a probe."""
        if place not in self._open:
            return False
        self._sending.cancel(place)
        del self._open[place]
        self._done.add(place)
        return True

    def free(self, now: float) -> list[Place]:
        """Return the addresses of which it is now known that nobody answered."""
        found = []
        for place, until in list(self._open.items()):
            if until is None and not self._sending.waits(place):
                self._open[place] = now + _PATIENCE_S
            elif until is not None and now >= until:
                del self._open[place]
                self._done.add(place)
                found.append(place)
        return found

    def wake(self) -> float | None:
        """Return when the next outcome is known, as far as it is; None if no probe waits for one."""
        return min((until for until in self._open.values() if until is not None), default=None)
