"""The farms that make nftlb end: learned from the requests that it had when it did.

A farm that nftlb had when it ended is a suspect: it is sent alone, and after all others, for which it waits half a
minute at most. If nftlb then ends again, the farm is left out for an hour.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from kube_nftlb.agent.clock import Clock
from kube_nftlb.agent.model import Version

LEFT_OUT_S = 3600
"""Time in seconds that a culprit is left out, unless its spec changes."""
_PUT_OFF_S = 30
"""Maximum time in seconds that a suspect waits for others, which may change without pause."""
_ENDS = 2
"""Number of times that nftlb ends over a farm until that is left out."""


class _Suspicion(NamedTuple):
    version: Version | None
    ends: int
    since: float
    left_out_until: float


class Suspects:
    """The farms that nftlb had when it ended."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._suspicions: dict[str, _Suspicion] = {}
        self._versions: Mapping[str, Version] = {}
        self._outstanding: Collection[str] = ()

    def __contains__(self, name: object) -> bool:
        """Return True for a farm that is best sent alone."""
        return name in self._suspicions

    @property
    def names(self) -> Collection[str]:
        """The farms that are best sent after all others, by now."""
        since = self._clock.now() - _PUT_OFF_S
        return {name for name, suspicion in self._suspicions.items() if suspicion.since > since}

    def sending(self, names: Collection[str]) -> None:
        """Note that nftlb gets a request about these farms."""
        self._outstanding = names

    def answered(self) -> None:
        """Note that nftlb has answered, or was not asked."""
        self._outstanding = ()

    def ended(self) -> Collection[str]:
        """Note that nftlb ended. Return the farms of the request that it had."""
        ended, self._outstanding = self._outstanding, ()
        for name in ended:
            version = self._versions.get(name)
            before = self._suspicions.get(name)
            ends = before.ends + 1 if before is not None and before.version == version else 1
            now = self._clock.now()
            self._suspicions[name] = _Suspicion(version, ends, now, now + LEFT_OUT_S if ends >= _ENDS else now)
        return ended

    def expect(self, versions: Mapping[str, Version]) -> None:
        """Note the versions of the farms that are about to be sent."""
        self._versions = versions

    def cleared(self, names: Iterable[str]) -> None:
        """Note that nftlb has taken all of these farms."""
        for name in names:
            self._suspicions.pop(name, None)

    def retry_after_s(self, name: str, version: Version) -> float:
        """Return for how many more seconds a farm is left out; 0 or less if it is not."""
        suspicion = self._suspicions.get(name)
        if suspicion is None or suspicion.version != version:
            return 0
        return suspicion.left_out_until - self._clock.now()
