"""What happened to a packet on a node, in our words. Pure: no I/O."""

import re
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

Verdict = Literal["Served", "Refused", "Dropped", "NotServed", "Lost", "Unseen"]
"""The verdict on a connection.

NotServed: no farm has the address, and the packet went on as it was, or as another program translated it. Lost: it
went astray between two hooks, such as without a route. Unseen: no packet came.
"""

Reason = Literal[
    "BackendChosen",
    "EstablishedConnection",
    "PolicyDenies",
    "PolicyAdmitsOthers",
    "PolicyMissing",
    "OutsideSourceRanges",
    "LimitReached",
    "NoReadyBackends",
    "NoLocalBackend",
    "RulesIncomplete",
    "NoConnection",
    "NoSuchService",
    "OtherProgram",
    "NoListener",
    "NodeItself",
    "NotTranslated",
    "NotRouted",
    "NoPacket",
]

LIMITS: Final = {
    "new-rtlimit": "limits.new",
    "rst-rtlimit": "limits.reset",
    "est-connlimit": "limits.established",
    "tcp-strict": "limits.tcpStrict",
}
"""The fields of a farm by the names of limits in chains."""

_NAMESPACED = re.compile(r"([^.]+)\.(.+)")


class Step(NamedTuple):
    """Something that happened on the way: a word for what it is about, a sentence, and the chain."""

    about: str
    text: str
    chain: str = ""


class Outcome(NamedTuple):
    """The end of the way."""

    verdict: Verdict
    reason: Reason
    message: str


@dataclass(slots=True)
class TraceResult:
    """What happened to a packet on a node, as far as it was read."""

    client: str = ""
    destination: str = ""
    protocol: str = "TCP"
    established: bool = False
    farm: str = ""
    """The farm's name on the node."""
    engine: str = ""
    backend: str = ""
    """Its address and port."""
    backend_name: str = ""
    seen_as: str = ""
    """The client's address as the backend sees it."""
    reply: str = ""
    steps: list[Step] = field(default_factory=list)
    outcome: Outcome | None = None

    def step(self, about: str, text: str, chain: str = "") -> None:
        """Add a step; the same one twice is one."""
        new = Step(about, text, chain)
        if not self.steps or self.steps[-1][:2] != new[:2]:
            self.steps.append(new)

    def serve(self, farm: str, engine: str) -> None:
        """Note which farm it is for."""
        if farm and not self.farm:
            self.farm, self.engine = farm, engine


def object_name(farm: str) -> str:
    """Return the namespace and name of a farm by its name on a node (``names.node_farm_name``)."""
    found = _NAMESPACED.fullmatch(farm)
    return f"{found[1]}/{found[2]}" if found else f"default/{farm}"
