"""Rejected parts of objects, for logs, Events and conditions."""

from typing import NamedTuple

from kube_nftlb.reasons import OperatorEvent


class Rejection(NamedTuple):
    """A part of an object that is not used as written: a reason in CamelCase, and a message that says what to do."""

    reason: OperatorEvent
    message: str
