"""Names of objects and namespaces on the command line, in the words of kubectl. Pure: no I/O."""

import ipaddress
import re
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from kube_nftlb import errors

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")

Kind = Literal["", "service", "farm"]

_KINDS: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(("svc", "service", "services"), "service"),
    **dict.fromkeys(("farm", "farms", "nftlbfarm", "nftlbfarms"), "farm"),
}


def checked(text: str, what: str = "name") -> str:
    """Return a name, or what else it is. Raises UsageError for what no object is called: "" would mean all of them."""
    if not text:
        raise errors.UsageError(f"the {what} is empty: is a variable of the shell not set?")
    if not _NAME.fullmatch(text):
        raise errors.UsageError(f"{text!r} is no {what}: it may have lower-case letters, digits, '-' and '.'")
    return text


def split(text: str) -> tuple[str | None, str]:
    """Return the namespace and name of NAMESPACE/NAME; of a name alone the namespace is None. Raises UsageError."""
    namespace, slash, name = text.rpartition("/")
    return checked(namespace, "namespace") if slash else None, checked(name)


def is_address(text: str) -> bool:
    """Return True for an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


class NameArgument(NamedTuple):
    """What a user asks for."""

    kind: Kind
    """Empty: whichever there is."""
    namespace: str
    name: str
    word: str = ""
    """How the user calls the kind, which may be a namespace that is called so."""

    @property
    def hint(self) -> str:
        """What to say where there is none: what else may be meant."""
        return f"; for the namespace {self.word} say {self.name} -n {self.word}" if self.word else ""


def parse(text: str, option: str | None, namespace: str) -> NameArgument:
    """Return what ``NAME``, ``NAMESPACE/NAME`` or ``KIND/NAME`` means; ``namespace`` is that of a name without one.

    Raises UsageError if it cannot be a name, or the option ``--namespace`` says something else.
    """
    before, name = split(text)
    if before is not None and before in _KINDS and before != option:
        return NameArgument(_KINDS[before], namespace, name, before)
    if before and option and before != option:
        raise errors.UsageError(f"{text!r} is in the namespace {before}, but --namespace says {option}")
    return NameArgument("", before or namespace, name)
