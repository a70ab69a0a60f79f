"""Values of options and exit statuses that the commands share."""

from enum import StrEnum
from typing import Final

UNHEALTHY: Final = 1
CANNOT_ASK: Final = 2


class Format(StrEnum):
    """The output of a command."""

    TEXT = "text"
    JSON = "json"


class By(StrEnum):
    """The order of farms and backends in ``top``."""

    NEW = "new"
    BYTES = "bytes"
    CONNECTIONS = "connections"


class Hide(StrEnum):
    """The details that a bug report leaves out, beside secrets."""

    ADDRESSES = "addresses"
    NAMES = "names"
