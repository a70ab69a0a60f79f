"""What tenants read of a farm that failed on a node. No I/O.

The words of a single agent, from a node that may be an attacker's, stay in the NftlbNode.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from kube_nftlb.reasons import FailureReason

_TEXTS: Final[Mapping[FailureReason, str]] = {
    "Invalid": "the agent cannot read its spec",
    "KernelFeatureMissing": "the kernel lacks a feature that it needs",
    "Refused": "the kernel refuses its rules",
    "Unsupported": "its engine cannot do what it asks for",
    "NftlbDefect": "it meets a defect of nftlb",
    "NftlbUnreachable": "nftlb does not answer",
    "TooManyElements": "it needs more elements than a farm or its namespace may have",
    "PortsDiffer": "its mode needs backends with the port of the listener",
    "AddressInUse": "another farm, or the node itself, has one of its addresses",
    "NoLocalBackend": "the agent sees no backend on the node",
    "PolicyMissing": "an NftlbPolicy that it refers to does not exist; all clients' packets are dropped until it does",
    "PolicyInvalid": "an NftlbPolicy that it refers to is invalid; all clients' packets are dropped",
    "NoEffect": "a part of its spec has no effect",
}
_UNKNOWN = "the agent reports a reason that this operator does not know"


class Failure(NamedTuple):
    """What an agent reports of a farm that failed on its node, or a part of which has no effect there."""

    node: str
    reason: str
    """As the agent reports it: any text."""
    message: str
    """The same."""

    @property
    def text(self) -> str:
        """The reason and message in the operator's words."""
        known = next((known for known in _TEXTS if self.reason == known), None)
        description = f"{known}: {_TEXTS[known]}" if known else f"Unknown: {_UNKNOWN}"
        return f"{description}; see kubectl describe nftlbnode {self.node}"


def parse_failure(entry: Mapping[str, Any], node: str) -> Failure:
    """Return an entry of an NftlbNode's failedFarms or warnings."""
    reason, message = entry.get("reason"), entry.get("message")
    return Failure(node, reason if isinstance(reason, str) else "", message if isinstance(message, str) else "")


def describe(failures: Sequence[Failure], nodes: int) -> str:
    """Return the reason and message of the first of a farm's failures, for tenants, in a cluster of so many nodes.

    The agent's own message names what is wrong with the spec. It is shown if another node says the same, or if there is
    no other: then no single node can write to tenants.
    """
    first = failures[0]
    known = first.reason in _TEXTS and first.message and first.message.isprintable()
    agree = sum((each.reason, each.message) == (first.reason, first.message) for each in failures)
    return f"{first.reason}: {first.message}" if known and agree >= min(2, nodes) else first.text
