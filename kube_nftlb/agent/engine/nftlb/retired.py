"""IPv6 farms that stay in nftlb without backends after they were withdrawn.

nftlb 1.0.7 drops the whole table ip6 when an IPv6 farm is removed (docs/nftlb-defects.md), so that removing one would
make it write the rules of all others anew. It is left without backends instead, which for a client is the same.
"""

from collections.abc import Iterator, Mapping

import structlog

from kube_nftlb.agent.engine.nftlb import plan
from kube_nftlb.agent.engine.nftlb.direct import KEEPER
from kube_nftlb.agent.model import Programmed
from kube_nftlb.nftlb import objects
from kube_nftlb.nftlb.requests import Step

_log = structlog.get_logger()

RETIRED_MAX = 64
"""The number of farms that may be retired before they are removed."""
REBUILT_MAX = 256
"""They are removed only if there are at most this many farms: nftlb rewrites so many in a second."""


class Retired:
    """Knows which farms are retired."""

    def __init__(self, maximum: int = RETIRED_MAX) -> None:
        self._maximum = maximum
        self.names: set[str] = set()
        self._changed = True

    def withdrawn(self, name: str, present: Mapping[str, objects.Farm]) -> None:
        """Note that a farm was withdrawn; it is retired if nftlb still has it."""
        if name in present:
            self.names.add(name)
        else:
            self.names.discard(name)
        self._changed = True

    def served(self, name: str) -> None:
        """Note that a farm is served."""
        self.names.discard(name)

    def keep(self, present: Mapping[str, objects.Farm]) -> None:
        """Forget those that nftlb does not have."""
        self.names &= present.keys()
        self._changed = True

    def burial(self, present: Mapping[str, objects.Farm], *, busy: bool) -> list[Step]:
        """Return the steps that remove retired farms if it is time for that.

        It does no harm if no other IPv6 farm is there. Otherwise new connections wait for as long as nftlb takes to
        write all rules anew, so it is done only if that is a second, if there are many, and when nothing else waits.
        """
        if not self._changed:
            return []
        self._changed = False
        ipv6 = [name for name, farm in present.items() if farm.ipv6 and not farm.ingress]
        if ipv6 and self.names.issuperset(ipv6):
            return plan.steps(present, dict.fromkeys(ipv6))
        retired = [name for name in ipv6 if name in self.names and not present[name].persistent]
        if len(retired) <= self._maximum or len(present) > REBUILT_MAX:
            return []
        if busy:
            self._changed = True
            return []
        _log.warning("removing retired farms", farms=len(retired))
        return plan.burial(present, retired)


class Visible(Mapping[str, Programmed]):
    """The farms in nftlb, without those that only remain there to work around a defect."""

    def __init__(self, programmed: Mapping[str, Programmed], retired: Retired) -> None:
        self._programmed = programmed
        self._retired = retired

    def __getitem__(self, name: str) -> Programmed:
        if name in self._retired.names or name == KEEPER:
            raise KeyError(name)
        return self._programmed[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._programmed if name not in self._retired.names and name != KEEPER)

    def __len__(self) -> int:
        return sum(1 for _ in self)
