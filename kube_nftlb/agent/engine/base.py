"""The interface of an engine, which serves farms on this node with the data plane that it programs.

The loop decides what the node is to serve (``sync.decide``) and hands the engine changes. How they become requests,
marks, chains or map elements, and in which order, is the engine's business, as are its defects and restarts. All
engines share the agent table (``table``), which they get in their constructors.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol, Self

from kube_nftlb.agent.model import Blocker, NodeFarm, Programmed
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.table import layout
from kube_nftlb.api.listeners import Listener
from kube_nftlb.netfilter.transaction import Contents


@dataclass(frozen=True, slots=True)
class FarmChange:
    """The change of one farm.

    ``farm`` is None if it is withdrawn. With ``keep`` the engine leaves it as it is. ``overlay`` is the farm's part of
    the agent table once the change is applied; None leaves what is there. ``policies`` keep clients out wherever the
    farm listens before or after the change, ``policies_after`` once it is applied.
    """

    name: str
    farm: NodeFarm | None = None
    keep: bool = False
    overlay: Contents | None = field(default_factory=Contents)
    policies: Contents = field(default_factory=Contents)
    policies_after: Contents = field(default_factory=Contents)
    handed_over: bool = False
    """True if another engine serves the farm from now on: connections stay as they are."""

    def without(self, is_taken: Callable[[Listener], bool]) -> Self:
        """Return the change without what the agent table is to have for the listeners that are taken."""
        return replace(
            self,
            overlay=layout.without(self.overlay, is_taken) if self.overlay is not None else None,
            policies=layout.without(self.policies, is_taken),
            policies_after=layout.without(self.policies_after, is_taken),
        )


@dataclass(frozen=True, slots=True)
class Applied:
    """The outcome of ``Engine.apply``, by the names of farms."""

    refused: Mapping[str, str] = field(default_factory=dict)
    """Reasons that the data plane refused changes of farms; ``Engine.drift`` names them until the next change."""
    rules_refused: Mapping[str, str] = field(default_factory=dict)
    """Reasons that the kernel refused a farm's rules in the agent table, or the engine the farm; it stays as it was."""
    nothing_done: bool = False
    """True if rules were refused before anything was programmed: decide again, and apply that."""
    incomplete: Collection[str] = ()
    """Farms that lack endpoints until others are gone: apply them again."""
    changed: Collection[str] = ()
    """Farms for which the data plane was sent anything."""


class Engine(Protocol):
    """One data plane of this node. Methods that do I/O raise KubeNftlbError; EngineUnreachableError if it is away."""

    name: ClassVar[str]

    @property
    def unreachable(self) -> str:
        """Reason a part of the data plane is away while the rest goes on; empty if all is there."""

    @property
    def programmed(self) -> Mapping[str, Programmed]:
        """The farms that the engine has, by name."""

    @property
    def suspects(self) -> Collection[str]:
        """Farms that may bring the data plane down: ``apply`` each alone, and after others that wait."""

    def unsupported(self, farm: NodeFarm) -> Blocker | None:
        """Return why this engine cannot serve a farm now, or None if it can. No I/O."""

    def owners(self, listeners: Collection[Listener]) -> set[str]:
        """Return the names of the farms that this engine has on any of these listeners."""

    def overlay(self, farm: NodeFarm) -> Contents:
        """Return what a farm needs in the agent table beside its options. Pure."""

    def rules(self, changes: Sequence[FarmChange]) -> dict[str, Contents]:
        """Return what these farms need in the agent table before any of the changes is applied, by owner."""

    def restarted(self) -> bool:
        """Return True if the data plane has lost its state, or may have, since ``load``."""

    async def restore(self) -> None:
        """Program what was last served, if the data plane has nothing: called once, before anything is known."""

    async def set_node(self, node: NodeFacts) -> None:
        """Take facts about the node."""

    async def load(self) -> bool:
        """Adopt what the data plane has. Return True if a farm that was verified is missing."""

    async def begin(self, changes: Callable[[], Sequence[FarmChange]]) -> Collection[str]:
        """Program all farms at once, if clients wait for them all. Return those for which anything was sent.

        ``changes`` returns those of all farms that are known; their rules are in the agent table. ``apply`` takes them
        again, and tells what is refused.
        """

    async def is_missing(self) -> bool:
        """Return True if the data plane has lost what was programmed as a whole, so that clients should wait."""

    async def apply(self, changes: Sequence[FarmChange]) -> Applied:
        """Program changes. No listener ever belongs to two farms; established connections survive."""

    async def drift(self, name: str | None = None) -> str | None:
        """Return how the kernel deviates from what was programmed, or None if it does not.

        Compares one farm or, without a name, what all farms share. A farm whose last change was refused deviates.
        """

    async def repair(self, name: str | None = None) -> None:
        """Rewrite the rules of one farm, or all rules."""

    async def revert(self, name: str) -> bool:
        """Serve a farm as it was when it last did not deviate, because its changes since then were refused.

        Return False if the data plane cannot.
        """

    async def forget_stale(self, name: str) -> None:
        """Clean up sessions of endpoints that disappeared while no agent ran."""

    async def maintain(self, *, busy: bool) -> str | None:
        """Do periodic work, about once a second; ``busy`` if changes wait. Return what went wrong, or None."""

    async def aclose(self) -> str | None:
        """Finish what must not be left half-done. Return what went wrong, or None."""


class DaemonEngine(Engine, Protocol):
    """An engine whose daemon may be away."""

    async def blank(self) -> bool:
        """Return True if the kernel has nothing of this engine, and the daemon has nothing to load."""
