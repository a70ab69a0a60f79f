"""What tenants read of a farm that failed on a node. No I/O.

The operator words it: an agent's own words, from a node that may be an attacker's, stay in the NftlbNode.
"""

from collections.abc import Mapping
from typing import Final

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
    "NoLocalBackend": "no backend runs on the node",
    "PolicyMissing": "an NftlbPolicy that it refers to does not exist; until it does, nobody gets in",
    "PolicyInvalid": "an NftlbPolicy that it refers to is invalid; nobody gets in",
    "NoEffect": "a part of its spec has no effect",
}
_UNKNOWN = "the agent reports a reason that this operator does not know"


def failure(reason: object, node: str) -> str:
    """Return the reason and message for a farm that failed on a node."""
    for known, text in _TEXTS.items():
        if reason == known:
            return f"{known}: {text}; see kubectl describe nftlbnode {node}"
    return f"Unknown: {_UNKNOWN}; see kubectl describe nftlbnode {node}"
