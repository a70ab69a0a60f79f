"""Label selectors as kubectl takes them (k8s.io/apimachinery/pkg/labels): ``a=b,c!=d,e in (f,g),h notin (i),j,!k``."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_KEY = r"(?P<key>[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?)"
_VALUE = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_EQUALITY = re.compile(rf"{_KEY}\s*(?P<operator>==?|!=)\s*(?P<values>(?:{_VALUE})?)")
_SET = re.compile(rf"{_KEY}\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_EXISTENCE = re.compile(rf"(?P<operator>!?)\s*{_KEY}")
_COMMA = re.compile(r",(?![^(]*\))")
_NEGATIONS = frozenset(("!=", "notin", "!"))


@dataclass(frozen=True, slots=True)
class _Requirement:
    key: str
    values: frozenset[str] | None
    """None: any."""
    negated: bool


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """Selects objects by their labels. Without requirements it selects all."""

    requirements: tuple[_Requirement, ...] = ()

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Return True if the labels meet all requirements."""
        return all(_meets(each, labels) for each in self.requirements)


def parse(text: str) -> LabelSelector:
    """Parse a selector; an empty one selects all. Raises ValueError with the part that cannot be read."""
    parts = [part.strip() for part in _COMMA.split(text)] if text.strip() else []
    return LabelSelector(tuple(_requirement(part) for part in parts))


def _requirement(part: str) -> _Requirement:
    if found := _EQUALITY.fullmatch(part):
        return _Requirement(found["key"], frozenset((found["values"],)), found["operator"] in _NEGATIONS)
    if found := _SET.fullmatch(part):
        values = frozenset(value.strip() for value in found["values"].split(","))
        if all(not value or re.fullmatch(_VALUE, value) for value in values):
            return _Requirement(found["key"], values, found["operator"] in _NEGATIONS)
    if found := _EXISTENCE.fullmatch(part):
        return _Requirement(found["key"], None, found["operator"] in _NEGATIONS)
    raise ValueError(f"{part!r} is none of: a=b, a!=b, a in (b,c), a notin (b,c), a, !a")


def _meets(requirement: _Requirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    found = value is not None if requirement.values is None else value in requirement.values
    return found != requirement.negated
