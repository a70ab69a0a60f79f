"""Values of options that the commands share."""

from enum import StrEnum


class Format(StrEnum):
    """The output of a command."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


class WideFormat(StrEnum):
    """The output of a command that has more columns than fit everywhere."""

    TEXT = "text"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


class By(StrEnum):
    """The order of farms and backends in ``top``."""

    NEW = "new"
    BYTES = "bytes"
    CONNECTIONS = "connections"


class Hide(StrEnum):
    """The details that a bug report leaves out, beside secrets."""

    ADDRESSES = "addresses"
    NAMES = "names"
