"""Why something was not done as asked: one vocabulary for logs, Events and conditions."""

from typing import Literal, NamedTuple

Reason = Literal[
    "InvalidAnnotation",
    "InvalidEndpoint",
    "ExternalIPRefused",
    "TooManyEndpoints",
    "FarmNameTaken",
    "FarmRefused",
    "AddressConflict",
    "ForgedOwner",
]


class Problem(NamedTuple):
    """Something that a person should know of an object: a word in CamelCase, and a sentence that says what to do."""

    reason: Reason
    message: str
