"""Whether this node may announce an address: what a client would meet that connects at once. Pure."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple

EXCLUDED: Final = "node.kubernetes.io/exclude-from-external-load-balancers"
"""The label of nodes that announce no address, whatever its value."""


class Reason(StrEnum):
    """Why a node does not announce an address."""

    NO_FARM = "NoFarm"
    NODE_EXCLUDED = "NodeExcluded"
    NODE_LEAVES = "NodeLeaves"
    NOT_SELECTED = "NotSelected"
    NO_LINK = "NoLink"
    NO_RESPONDER = "NoResponder"
    NOT_PROGRAMMED = "NotProgrammed"
    NO_ENDPOINT = "NoEndpoint"
    ADDRESS_IN_USE = "AddressInUse"
    BGP_OFF = "BGPOff"


class Blocker(NamedTuple):
    """A reason, and a sentence."""

    reason: Reason
    message: str


class WhenEmpty(StrEnum):
    """What to do with an address without any endpoint."""

    ANNOUNCE = "announce"
    """Clients are refused at once."""
    WITHDRAW = "withdraw"


class FarmHere(NamedTuple):
    """A farm that has the address, on this node."""

    name: str
    """``namespace/name``."""
    generation: int
    programmed: int
    """The generation that was verified in the kernel; 0 for none."""
    reached: int
    """Endpoints to which its policy lets this node send connections: those that serve, and those that drain."""
    serving: int
    """The same on all nodes."""
    refuses: bool = False
    """This node cannot serve it, and refuses its clients, whatever endpoints there are."""
    succeeds: bool = False
    """The address is in the kernel, but not known to be of this farm: another has just left it to this one."""


class NodeHere(NamedTuple):
    """What bears on all addresses."""

    link: str | None
    """The interface on whose segment the address is; empty if there is none, None if none is needed."""
    excluded: bool = False
    """By the label ``EXCLUDED``."""
    selected: bool = True
    """By the node selector of the pool."""
    leaves: str | None = None
    """Why the node is about to go, or may not work; None if it is not."""
    selector: str = "announce.l2.nodeSelector"
    """The name of that selector."""


NO_FARM: Final = Blocker(Reason.NO_FARM, "no farm has this address")
_NO_LINK: Final = Blocker(Reason.NO_LINK, "no interface has the subnet of the address")
_NO_ENDPOINT: Final = Blocker(Reason.NO_ENDPOINT, "there is no serving endpoint")


def why_not_announce(farms: Iterable[FarmHere], when_empty: WhenEmpty, node: NodeHere) -> Blocker | None:
    """Return why this node may not begin to answer for an address; None if it may."""
    of_address = sorted(farms)
    if (blocker := _of_node(node)) is not None:
        return blocker
    if not of_address:
        return NO_FARM
    for farm in of_address:
        if farm.programmed < farm.generation:
            had = f"generation {farm.programmed}" if farm.programmed else "nothing of it"
            message = f"the farm {farm.name} is at generation {farm.generation}, and the kernel has {had}"
            return Blocker(Reason.NOT_PROGRAMMED, message)
    return _without_endpoint(of_address, when_empty)


def why_not_keep(farms: Iterable[FarmHere], when_empty: WhenEmpty, node: NodeHere) -> Blocker | None:
    """Return why this node may not go on answering; None if it may.

    A newer generation that is not programmed yet, or endpoints that are terminating, are no reason: until another node
    has announced the address, clients are better served by this one than by none.
    """
    of_address = sorted(farms)
    if not of_address:
        return NO_FARM
    if not any(farm.programmed or farm.succeeds for farm in of_address):
        return Blocker(Reason.NOT_PROGRAMMED, f"the kernel has nothing of the farm {of_address[0].name}")
    if node.link == "":
        return _NO_LINK
    return _NO_ENDPOINT if when_empty is WhenEmpty.WITHDRAW and not any(farm.serving for farm in of_address) else None


def _of_node(node: NodeHere) -> Blocker | None:
    if node.excluded:
        return Blocker(Reason.NODE_EXCLUDED, f"the node has the label {EXCLUDED}")
    if not node.selected:
        return Blocker(Reason.NOT_SELECTED, f"the pool's {node.selector} does not select the node")
    if node.leaves is not None:
        return Blocker(Reason.NODE_LEAVES, node.leaves)
    return _NO_LINK if node.link == "" else None


def _without_endpoint(farms: list[FarmHere], when_empty: WhenEmpty) -> Blocker | None:
    if any(farm.reached for farm in farms):
        return None
    if serving := [farm for farm in farms if farm.serving]:
        message = "externalTrafficPolicy Local reaches no serving endpoint on this node"
        if (refused := next((farm.name for farm in serving if farm.refuses), None)) is not None:
            message = f"this node refuses connections to the farm {refused}"
        return Blocker(Reason.NO_ENDPOINT, message)
    if when_empty is WhenEmpty.ANNOUNCE:
        return None
    return _NO_ENDPOINT
