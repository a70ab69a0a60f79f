"""The outcomes that rules of several tables lead to. Pure: no I/O."""

from collections.abc import Iterable
from typing import Final

from kube_nftlb.commands.trace.result import Outcome

NO_READY_BACKENDS: Final = Outcome("Refused", "NoReadyBackends", "the farm has no backend that takes new connections")
GROUP_REFUSED: Final = Outcome(
    "Refused", "NoReadyBackends", "the group that was drawn has no backend that takes new connections"
)
GROUP_DROPPED: Final = Outcome("Dropped", "NoReadyBackends", "the group that was drawn has no backend for the client")
LAST_BACKEND_GONE: Final = Outcome(
    "Dropped",
    "NoReadyBackends",
    "the last backend went while the packet was on its way; the client's next try may differ",
)
NO_LOCAL_BACKEND: Final = Outcome(
    "Dropped", "NoLocalBackend", "the traffic policy is Local, and this node has no backend of its own"
)
NO_SUCH_SERVICE: Final = Outcome(
    "Refused",
    "NoSuchService",
    "no Service has this port: the address is in the cluster's ranges for Services, or in an address pool",
)
NO_SUCH_ADDRESS: Final = Outcome(
    "Dropped", "NoSuchService", "the address is in an address pool, and no Service has it, as far as this node knows"
)
NO_CONNECTION: Final = Outcome(
    "Dropped", "NoConnection", "the packet is of no connection that the node knows, and does not begin one"
)
OUTSIDE_SOURCE_RANGES: Final = Outcome(
    "Dropped", "OutsideSourceRanges", "the client is outside of the source ranges (loadBalancerSourceRanges)"
)
POLICY_MISSING: Final = Outcome(
    "Dropped", "PolicyMissing", "a policy of the farm is missing or invalid; it admits nobody until it is valid"
)
NODE_ITSELF: Final = Outcome("Served", "NodeItself", "the node itself answers (mode local)")


def denied(lists: Iterable[str]) -> Outcome:
    """Return the outcome for a client on deny lists, by their names."""
    return Outcome("Dropped", "PolicyDenies", f"the deny list {_names(lists)} has the client's address")


def not_admitted(lists: Iterable[str]) -> Outcome:
    """Return the outcome for a client on no allow list among the policies of a farm, by their names."""
    text = f"no allow list among the policies {_names(lists)} has the client's address"
    return Outcome("Dropped", "PolicyAdmitsOthers", text)


def admitted(lists: Iterable[str]) -> str:
    """Return the words for a client that policies let pass; ``lists`` are the allow lists that it is on."""
    named = _names(lists)
    return f"the allow list {named} admits the client" if named else "no deny list has the client's address"


def _names(lists: Iterable[str]) -> str:
    return ", ".join(sorted(lists))
