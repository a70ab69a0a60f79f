"""The interface of an engine, which serves farms on this node with the data plane that it programs.

The loop decides what the node is to serve (``sync.decide``), writes what keeps clients out into the agent table, and
hands the farms to their engines (``sync.apply``). How a farm becomes requests, marks, chains or map elements, and in
which order, is its engine's business, as are defects and restarts. Engines know nothing of each other, and
of policies and the agent table only which listeners are restricted there.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kube_nftlb.agent.engine.sent import SentFarms
from kube_nftlb.agent.model import Blocker, NodeFarm
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.netfilter.table_text import Contents

FarmChanges = Mapping[str, NodeFarm | None]
"""Farms as they are to be served, by name; None for one that is to go."""

TAKEN = "a farm that cannot be changed has an address of it"
"""Why a farm is refused that is to get what another does not leave: two never share a listener."""


@dataclass(frozen=True, slots=True)
class Applied:
    """The outcome of ``Engine.apply``, by the names of farms."""

    refused: Mapping[str, str] = field(default_factory=dict)
    """Reasons that changes of farms were refused; ``Engine.drift`` names them until the next change."""
    incomplete: Collection[str] = ()
    """Farms that lack endpoints until others are gone: apply them again."""
    changed: Collection[str] = ()
    """Farms for which the data plane was sent anything."""


class Engine(Protocol):
    """One data plane of this node. Methods that do I/O raise KubeNftlbError; EngineUnreachableError if it is away."""

    @property
    def sent(self) -> SentFarms:
        """The farms that the engine has sent to its data plane, or adopted there; ``sync.verification`` compares."""

    def unsupported(self, farm: NodeFarm) -> Blocker | None:
        """Return why this engine cannot serve a farm now, or None if it can. No I/O."""

    def contents(self, farm: NodeFarm) -> Contents:
        """Return what a farm needs in the agent table with what the engine has of it now. No I/O."""

    async def load(self) -> bool:
        """Adopt what the data plane has. Return True if a farm that was verified is missing."""

    async def apply(self, changes: FarmChanges) -> Applied:
        """Program changes. No listener ever belongs to two farms; established connections survive."""

    async def drift(self, name: str | None = None) -> str | None:
        """Return how the kernel deviates from what was sent, or None if it does not.

        Compares one farm or, without a name, what all farms share. A farm whose last change was refused deviates.
        """

    async def repair(self, name: str | None = None) -> None:
        """Rewrite the rules of one farm, or all rules."""

    async def revert(self, name: str) -> bool:
        """Serve a farm as it was when it last did not deviate, because its changes since then were refused.

        Return False if the data plane cannot.
        """

    async def maintain(self, *, busy: bool) -> str | None:
        """Do periodic work, about once a second; ``busy`` if changes wait. Return what went wrong, or None."""

    async def aclose(self) -> str | None:
        """Finish what must not be left half-done. Return what went wrong, or None."""


class TableEngine(Engine, Protocol):
    """An engine whose data plane is a table of the agent: if it is gone, all of it is."""

    async def restore(self) -> None:
        """Program what was last served, if the kernel has nothing: called once, before anything is known."""

    async def set_node(self, node: NodeFacts) -> None:
        """Take facts about the node."""

    async def begin(self, changes: Callable[[], FarmChanges]) -> Collection[str]:
        """Program all farms at once, if clients wait for them all. Return those for which anything was sent.

        ``changes`` returns all farms of this engine; their rules are in the agent table. ``apply`` takes them again,
        and tells what is refused.
        """

    async def is_missing(self) -> bool:
        """Return True if the kernel has lost what was sent as a whole, so that clients should wait."""


class DaemonEngine(Engine, Protocol):
    """An engine whose daemon may be away, or end over a farm."""

    @property
    def suspects(self) -> Collection[str]:
        """Farms over which the daemon may end: ``apply`` each alone, and after others that wait."""

    def restarted(self) -> bool:
        """Return True if the daemon has lost its state, or may have, since ``load``."""

    async def leftover(self, name: str) -> str | None:
        """Return what the kernel still has of a farm that was withdrawn, or None."""

    async def forget_stale(self, name: str) -> None:
        """Clean up sessions of endpoints that disappeared while no agent ran."""

    async def blank(self) -> bool:
        """Return True if the kernel has nothing of this engine, and the daemon has nothing to load."""
