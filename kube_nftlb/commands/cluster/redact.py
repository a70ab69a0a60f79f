"""The contents of a bug report: objects without the words of others, texts without names or addresses. No I/O."""

import hashlib
import ipaddress
import re
from collections.abc import Iterable
from typing import Any

from kube_nftlb import names
from kube_nftlb.commands.cluster.options import Hide
from kube_nftlb.kube.resources import JsonObject

_DIGITS = 6
_KEPT_NAMES = frozenset(
    {
        "default",
        "kubernetes",
        "kube-system",
        "kube-nftlb",
        "kube-nftlb-agent",
        "kube-nftlb-operator",
        "kube-nftlb-system",
    }
)
_IPV4 = re.compile(r"(?<![\d.])\d{1,3}(?:([.-])\d{1,3})(?:\1\d{1,3}){2}(?!\.?\d)")
"""Also with dashes, as in the names of backends without a Pod."""
_IPV6 = re.compile(r"(?<![\w:])[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7}(?![\w:])")
_DASHED_IPV6 = re.compile(r"(?<![0-9A-Za-z])[0-9a-fA-F]{0,4}(?:-[0-9a-fA-F]{0,4}){2,}(?![0-9A-Za-z])")
"""What may be one with dashes, as in the names of backends without a Pod, with a port, and of Leases of addresses."""
_PARTS_MAX, _DASHED_MAX = 9, 100
"""Of an address with its port, and of what is looked at part by part."""
_MAY_BE_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")
_BORDER = re.compile(r"[.-]+")
_DROPPED = ("env", "envFrom", "args")
"""Fields of containers in which administrators put what is secret."""


def cleaned(raw: JsonObject) -> JsonObject:
    """Return an object without field managers, foreign annotations, environment variables and arguments."""
    cleaned = {key: _without_environment(value) for key, value in raw.items() if key != "metadata"}
    return {"metadata": _metadata(raw["metadata"]), **cleaned}


def _metadata(metadata: JsonObject) -> JsonObject:
    plain = {key: value for key, value in metadata.items() if key not in ("managedFields", "annotations")}
    ours = {
        key: text
        for key, text in (metadata.get("annotations") or {}).items()
        if key.startswith(names.ANNOTATION_PREFIX) or key == names.ANNOTATION_TRIGGER_TIME
    }
    return {**plain, "annotations": ours} if ours else plain


def _without_environment(value: Any) -> Any:
    if isinstance(value, dict):
        image = "image" in value
        return {
            key: _without_environment(each)
            for key, each in value.items()
            if not (image and key in _DROPPED) and key != "annotations"
        }
    return [_without_environment(each) for each in value] if isinstance(value, list) else value


class Redactor:
    """Replaces addresses and names in texts, each always by the same word within one report."""

    def __init__(self, hidden: Iterable[Hide], salt: bytes, known: Iterable[str] = ()) -> None:
        """``known`` are the names to hide; ``salt`` keeps anybody from guessing them by trying."""
        self._hidden = frozenset(hidden)
        self._salt = salt
        self._known = frozenset(known) - _KEPT_NAMES

    def text(self, text: str) -> str:
        """Return a text with its addresses and names replaced, as far as they are to be hidden."""
        if Hide.ADDRESSES in self._hidden:
            text = _IPV6.sub(lambda found: self._address(found[0]), text)
            # Four numbers of it may look like an IPv4 address.
            text = _DASHED_IPV6.sub(lambda found: self._dashed(found[0]), text)
            text = _IPV4.sub(lambda found: self._address(found[0]), text)
        if Hide.NAMES in self._hidden:
            text = _MAY_BE_NAME.sub(lambda found: self._name(found[0]), text)
        return text

    def _address(self, text: str) -> str:
        try:
            address = ipaddress.ip_address(text.replace("-", "."))
        except ValueError:
            return text
        if address.is_loopback or address.is_unspecified:
            return text
        return f"ip{address.version}-{self._digest(str(address))}"

    def _dashed(self, text: str) -> str:
        """Replace an address with dashes, wherever it begins and ends, with what may be its port or its last part."""
        parts = text.split("-")
        if len(parts) > _DASHED_MAX:
            # Of a tenant, who wants this to take long.
            return self._digest(text)
        for size in range(min(len(parts), _PARTS_MAX), 2, -1):
            for begin in range(len(parts) - size + 1):
                part = parts[begin : begin + size]
                if (whole := self._address(":".join(part))) == ":".join(part):
                    continue
                without_port = self._address(":".join(part[:-1]))
                hidden = without_port if without_port != ":".join(part[:-1]) else whole
                return "-".join([*parts[:begin], hidden, *parts[begin + size :]])
        return text

    def _name(self, text: str) -> str:
        """Replace a name, also where it is a part of the name of a chain."""
        if text in self._known:
            return f"name-{self._digest(text)}"
        borders = [found.span() for found in _BORDER.finditer(text)]
        begins = [0, *(end for _, end in borders)]
        ends = [*(begin for begin, _ in borders), len(text)]
        longest_first = sorted(((b, e) for b in begins for e in ends if b < e), key=lambda span: span[0] - span[1])
        for begin, end in longest_first:
            if (part := text[begin:end]) in self._known:
                return f"{self._name(text[:begin])}name-{self._digest(part)}{self._name(text[end:])}"
        return text

    def _digest(self, text: str) -> str:
        return hashlib.sha256(self._salt + text.encode()).hexdigest()[:_DIGITS]
