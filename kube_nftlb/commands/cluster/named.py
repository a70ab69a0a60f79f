"""Names of objects and namespaces as users give them. Pure: no I/O."""

import ipaddress
import re
from typing import Final

from kube_nftlb import errors

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


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
