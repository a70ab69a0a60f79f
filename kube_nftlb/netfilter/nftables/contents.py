"""What a table has, as the kernel tells: to compare two tables by content, and to make one like another. No I/O.

Rules and sets are written as text where that is easier (``netfilter.table_text``), or as expressions of our own. The
kernel tells both in a form of its own, which is what a table is compared with: that of the same rules in a table that
nobody uses (``Blueprint``).
"""

import hashlib
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import NamedTuple

from kube_nftlb.netfilter import netlink
from kube_nftlb.netfilter.netlink import attribute, text
from kube_nftlb.netfilter.nftables import messages
from kube_nftlb.netfilter.nftables.messages import Message
from kube_nftlb.netfilter.rules import KernelRule, data_of, name_of

SET_TABLE, SET_NAME, _SET_FLAGS = 1, 2, 3
_SET_ID = 10
_SET_DECLARATION = (3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 15, 17, 18)
"""All that nft(8) may say of a set, of linux/netfilter/nf_tables.h: not its names, its handle and its counts."""
_ANONYMOUS, _INTERVAL, _DYNAMIC = 0x1, 0x4, 0x10 | 0x20
CHAIN_TABLE, CHAIN_NAME = 1, 3
_CHAIN_DECLARATION = (4, 5, 7)
_RULE_USERDATA = 7
_EXPRESSION_NAME, _EXPRESSION_DATA = 1, 2
_LOOKUP_SET, _LOOKUP_ID = 1, 4
ELEMENTS_LIST, _ELEMENTS_ID = 3, 4
_LIST_ELEMENT = 1
ELEMENT_KEY, VALUE = 1, 1
_ELEMENT_FLAGS, _RANGE_END = 3, 1


class SetContents(NamedTuple):
    """A set or map: its declaration, as attributes, and its elements, as far as they were read."""

    declaration: bytes
    elements: frozenset[bytes] = frozenset()

    @property
    def flags(self) -> int:
        """The flags of the declaration."""
        return int.from_bytes(netlink.find(self.declaration, _SET_FLAGS) or b"", "big")

    @property
    def is_anonymous(self) -> bool:
        """True if it belongs to a rule, and has no name of its own."""
        return bool(self.flags & _ANONYMOUS)

    @property
    def is_dynamic(self) -> bool:
        """True if packets, or time, change its elements."""
        return bool(self.flags & _DYNAMIC)

    @property
    def is_interval(self) -> bool:
        """True if its elements are the bounds of ranges."""
        return bool(self.flags & _INTERVAL)


class RuleContents(NamedTuple):
    """A rule: its expressions, and the anonymous sets in which they look up, by the names in the expressions."""

    expressions: tuple[bytes, ...]
    sets: Mapping[str, SetContents]
    userdata: bytes | None = None

    @property
    def content(self) -> Hashable:
        """What two rules have in common that do the same: an anonymous set has another name in each table."""
        return tuple(
            (self.sets[name], _without_set(each)) if (name := looked_up(each)) in self.sets else each
            for each in self.expressions
        )


@dataclass(frozen=True, slots=True)
class TableContents:
    """A table's sets, chains and rules, by name. Those of a table that does not exist are empty."""

    sets: Mapping[str, SetContents] = field(default_factory=dict)
    chains: Mapping[str, bytes] = field(default_factory=dict)
    """The hook, policy and type of each chain, as attributes; empty if it is not hooked in."""
    rules: Mapping[str, tuple[RuleContents, ...]] = field(default_factory=dict)

    def condensed(self) -> "TableContents":
        """Return the same with a digest for the elements of each set, of which there may be very many."""
        return replace(self, sets={name: each._replace(elements=_digest(each)) for name, each in self.sets.items()})

    def content_of(self, chain: str) -> tuple[Hashable, ...]:
        """Return what the rules of a chain do, in their order."""
        return tuple(rule.content for rule in self.rules.get(chain, ()))

    def __bool__(self) -> bool:
        return bool(self.sets or self.chains)


def difference(wanted: TableContents, found: TableContents) -> str | None:
    """Return what of a table differs from what is wanted, or None. Elements count that both have read."""
    for what, desired, actual in (("chain", wanted.chains, found.chains), ("set", wanted.sets, found.sets)):
        if missing := desired.keys() - actual.keys():
            return f"the {what} {min(missing)} was deleted"
        if extra := actual.keys() - desired.keys():
            return f"the {what} {min(extra)} was added"
    for name, chain in wanted.chains.items():
        if chain != found.chains[name] or wanted.content_of(name) != found.content_of(name):
            return f"the chain {name} was changed"
    return next((f"the set {name} was changed" for name, each in wanted.sets.items() if each != found.sets[name]), None)


def declaration(attributes_: bytes, kinds: Iterable[int]) -> bytes:
    """Return those attributes of an answer that are of these kinds, in the order of the kinds."""
    found = {kind: value for kind, value in netlink.attributes(attributes_) if kind in set(kinds)}
    return b"".join(attribute(kind, found[kind]) for kind in kinds if kind in found)


def declared_set(answer: bytes) -> SetContents:
    """Return a set as the kernel declares it, without elements."""
    return SetContents(declaration(answer, _SET_DECLARATION))


def declared_chain(answer: bytes) -> bytes:
    """Return a chain as the kernel declares it."""
    return declaration(answer, _CHAIN_DECLARATION)


def rule(found: KernelRule, sets: Mapping[str, SetContents]) -> RuleContents:
    """Return the contents of a rule; ``sets`` are all of its table."""
    names = {name for each in found.expressions if (name := looked_up(each)) in sets and sets[name].is_anonymous}
    return RuleContents(found.expressions, {name: sets[name] for name in names}, found.userdata)


def elements_of(answer: bytes) -> list[bytes]:
    """Return the elements in an answer."""
    return [element for _, element in netlink.attributes(netlink.find(answer, ELEMENTS_LIST) or b"")]


def _digest(of: SetContents) -> frozenset[bytes]:
    digest = hashlib.blake2b(digest_size=16)
    for each in sorted(of.elements):
        digest.update(each)
    return frozenset({digest.digest()}) if of.elements else of.elements


def ends_nothing(element: bytes) -> bool:
    """Return True if an element is the end of a range below all others, which nft(8) adds to some sets."""
    key = netlink.find(element, ELEMENT_KEY, VALUE) or b""
    return not any(key) and bool(int.from_bytes(netlink.find(element, _ELEMENT_FLAGS) or b"", "big") & _RANGE_END)


def looked_up(expression: bytes) -> str:
    """Return the set or map of a lookup expression; empty for other expressions."""
    return netlink.name(netlink.find(data_of(expression), _LOOKUP_SET)) if name_of(expression) == "lookup" else ""


def _without_set(lookup: bytes) -> bytes:
    return b"".join(
        attribute(kind, value) for kind, value in netlink.attributes(data_of(lookup)) if kind != _LOOKUP_SET
    )


class Maker:
    """Makes the messages that make a table, or a part of it, like what was read of another one."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._numbers = count(_FIRST_NUMBER)
        """Each set of a transaction has a number, by which rules find one that has no name yet."""

    def table(self, contents: TableContents) -> Iterator[Message]:
        """Yield what makes the table anew, whatever there was."""
        yield messages.new_table(self._table)
        yield messages.delete_table(self._table)
        yield messages.new_table(self._table)
        for name, each in contents.sets.items():
            yield from self.set_(name, each)
        for name in contents.chains:
            yield self.chain(name, contents)
        for name in contents.chains:
            yield from self.rules(name, contents)

    def set_(self, name: str, contents: SetContents) -> Iterator[Message]:
        """Yield what adds a set with its elements."""
        yield from self._set(name, contents, next(self._numbers))

    def refilled(self, name: str, contents: SetContents) -> Iterator[Message]:
        """Yield what brings the elements of a set to these, whatever it has."""
        yield messages.flush_set(self._table, name)
        if contents.elements:
            yield self._added(name, contents, b"")

    def chain(self, name: str, contents: TableContents) -> Message:
        """Return what adds a chain without rules."""
        return messages.declared_chain(self._table, name, contents.chains[name])

    def rules(self, name: str, contents: TableContents) -> Iterator[Message]:
        """Yield what adds the rules of a chain."""
        for each in contents.rules.get(name, ()):
            yield from self._rule(name, each)

    def _rule(self, chain: str, contents: RuleContents) -> Iterator[Message]:
        numbers: dict[str, int] = {}
        for name, each in contents.sets.items():
            numbers[name] = next(self._numbers)
            yield from self._set(_ANONYMOUS_NAME, each, numbers[name])
        expressions = b"".join(
            attribute(_LIST_ELEMENT, _renamed(each, numbers[name]) if (name := looked_up(each)) in numbers else each)
            for each in contents.expressions
        )
        userdata = attribute(_RULE_USERDATA, contents.userdata) if contents.userdata is not None else b""
        yield messages.new_rule(self._table, chain, expressions, userdata)

    def _set(self, name: str, contents: SetContents, number: int) -> Iterator[Message]:
        yield messages.new_set(self._table, name, contents.declaration + _number(_SET_ID, number))
        if contents.elements:
            yield self._added(name, contents, _number(_ELEMENTS_ID, number))

    def _added(self, name: str, contents: SetContents, of: bytes) -> Message:
        listed = (attribute(_LIST_ELEMENT, each) for each in sorted(contents.elements))
        return messages.new_listed_elements(self._table, name, listed, of)


_ANONYMOUS_NAME = "__set%d"
_FIRST_NUMBER = 1 << 16
"""Others in the same transaction have lower ones."""


def _renamed(lookup: bytes, number: int) -> bytes:
    """Return a lookup in an anonymous set of this transaction."""
    data = text(_LOOKUP_SET, _ANONYMOUS_NAME) + _without_set(lookup) + _number(_LOOKUP_ID, number)
    return text(_EXPRESSION_NAME, "lookup") + attribute(_EXPRESSION_DATA, data)


def _number(kind: int, number: int) -> bytes:
    return attribute(kind, number.to_bytes(4, "big"))
