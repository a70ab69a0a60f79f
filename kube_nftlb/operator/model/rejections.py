"""Why something was not done as asked: one vocabulary for logs, Events and conditions."""

from typing import NamedTuple

from kube_nftlb.reasons import OperatorEvent


class Rejection(NamedTuple):
    """Something that a person should know of an object: a word in CamelCase, and a sentence that says what to do."""

    reason: OperatorEvent
    message: str
