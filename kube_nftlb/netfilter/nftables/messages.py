"""The messages of a transaction: what to add to a table, and what to delete. No I/O."""

import functools
import struct
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from kube_nftlb.netfilter.netlink import attribute, text
from kube_nftlb.netfilter.nftables.expressions import Verdict, verdict_data

_NEW_TABLE, _DELETE_TABLE, _NEW_CHAIN, _DELETE_CHAIN, _NEW_RULE, _DELETE_RULE = 0, 2, 3, 5, 6, 8
_NEW_SET, _DELETE_SET = 9, 11
_NEW_ELEMENTS, _DELETE_ELEMENTS = 12, 14
_CREATE, _APPEND = 0x400, 0x800
_TABLE_NAME, _TABLE_FLAGS, _OWNED = 1, 2, 2
_CHAIN_TABLE, _CHAIN_NAME, _CHAIN_HOOK, _CHAIN_TYPE = 1, 3, 4, 7
_HOOK_NUMBER, _HOOK_PRIORITY = 1, 2
_RULE_TABLE, _RULE_CHAIN, _RULE_HANDLE, _RULE_EXPRESSIONS = 1, 2, 3, 4
_SET_TABLE, _SET_NAME, _SET_FLAGS, _SET_KEY_TYPE, _SET_KEY_LENGTH = 1, 2, 3, 4, 5
_SET_DATA_TYPE, _SET_DATA_LENGTH, _SET_ID, _SET_USERDATA = 6, 7, 10, 13
_MAP, _TIMEOUT, _EVALUATED = 0x8, 0x10, 0x20
_BYTE_ORDERS = bytes((0, 4, 0, 0, 0, 0, 1, 4, 1, 0, 0, 0))
"""For nft(8), which lists the map by it: parts of a key have their own order, and the data is of the host's."""
_TYPE_BITS = 6
_ELEMENTS_TABLE, _ELEMENTS_SET, _ELEMENTS_LIST = 1, 2, 3
_LIST_ELEMENT = 1
_VALUE = 1
_KEY, _DATA, _USERDATA = 1, 2, 6
_COMMENT = 0
_COMMENT_MAX = 126
_LENGTH = struct.Struct("=H")
"""What an attribute begins with."""
_LIST_BYTES = 48 << 10
"""The list of elements in a message is one attribute, of at most 64 KiB."""


class DataType(IntEnum):
    """A data type of nft(8) (its datatype.h): the kernel only keeps it."""

    IPV4_ADDR = 7
    IPV6_ADDR = 8
    CLASSID = 23


class Message(NamedTuple):
    """A message: its type, the flags that it needs, and its attributes."""

    kind: int
    flags: int
    attributes: bytes


class Hook(NamedTuple):
    """The hook of a base chain: its number (linux/netfilter.h), the priority there, and the chain's type."""

    number: int
    priority: int
    type: str = "filter"


def new_table(table: str) -> Message:
    """Return what adds a table, if there is none."""
    return Message(_NEW_TABLE, _CREATE, text(_TABLE_NAME, table))


def new_owned_table(table: str) -> Message:
    """Return what adds a table that nobody else can change, and that goes with the socket that adds it."""
    return Message(_NEW_TABLE, _CREATE, text(_TABLE_NAME, table) + attribute(_TABLE_FLAGS, struct.pack(">I", _OWNED)))


def new_base_chain(table: str, name: str, hook: Hook, rules: Iterable[bytes]) -> Iterator[Message]:
    """Yield what adds a chain that lets packets pass, at a hook."""
    numbers = ((_HOOK_NUMBER, hook.number), (_HOOK_PRIORITY, hook.priority))
    at = b"".join(attribute(kind, struct.pack(">i", number)) for kind, number in numbers)
    hooked = attribute(_CHAIN_HOOK, at, nested=True) + text(_CHAIN_TYPE, hook.type)
    yield Message(_NEW_CHAIN, _CREATE, chain_names(table, name) + hooked)
    yield from _rules(table, name, rules)


def new_chain(table: str, name: str, rules: Iterable[bytes]) -> Iterator[Message]:
    """Yield what adds a chain with these rules, each given as its expressions."""
    yield Message(_NEW_CHAIN, _CREATE, chain_names(table, name))
    yield from _rules(table, name, rules)


def declared_chain(table: str, name: str, declaration: bytes) -> Message:
    """Return what adds a chain with a hook, type and policy as the kernel tells them, or without any."""
    return Message(_NEW_CHAIN, _CREATE, chain_names(table, name) + declaration)


def new_rule(table: str, chain: str, expressions: bytes, userdata: bytes) -> Message:
    """Return what adds a rule with a list of expressions and user data, as attributes, to the end of a chain."""
    attributes = _rule_names(table, chain) + attribute(_RULE_EXPRESSIONS, expressions) + userdata
    return Message(_NEW_RULE, _CREATE | _APPEND, attributes)


def new_set(table: str, name: str, declaration: bytes) -> Message:
    """Return what adds a set or map with a declaration as the kernel tells it."""
    return Message(_NEW_SET, _CREATE, _set_names(table, name) + declaration)


def _rules(table: str, name: str, rules: Iterable[bytes]) -> Iterator[Message]:
    return (new_rule(table, name, rule, b"") for rule in rules)


def new_dynamic_map(table: str, name: str, key: Sequence[tuple[DataType, int]], data: tuple[DataType, int]) -> Message:
    """Return what adds a map that packets fill, with timeouts; each part of its key has a type and a length in bytes.

    Without a size it takes 65,535 elements, and grows as they come.
    """
    type_ = 0
    for part, _ in key:
        type_ = type_ << _TYPE_BITS | part
    numbers = (
        (_SET_FLAGS, _MAP | _TIMEOUT | _EVALUATED),
        (_SET_KEY_TYPE, type_),
        (_SET_KEY_LENGTH, sum(length for _, length in key)),
        (_SET_DATA_TYPE, data[0]),
        (_SET_DATA_LENGTH, data[1]),
        # By which messages of one transaction could name it; ours do by its name.
        (_SET_ID, 1),
    )
    attributes = b"".join(attribute(kind, struct.pack(">I", number)) for kind, number in numbers)
    return Message(_NEW_SET, _CREATE, _set_names(table, name) + attributes + attribute(_SET_USERDATA, _BYTE_ORDERS))


def delete_set(table: str, name: str) -> Message:
    """Return what deletes a set or map with its elements."""
    return Message(_DELETE_SET, 0, _set_names(table, name))


def _set_names(table: str, name: str) -> bytes:
    return text(_SET_TABLE, table) + text(_SET_NAME, name)


def delete_table(table: str) -> Message:
    """Return what deletes a table with all that it has."""
    return Message(_DELETE_TABLE, 0, text(_TABLE_NAME, table))


def delete_rule(table: str, chain: str, handle: int) -> Message:
    """Return what deletes one rule of a chain, by its handle."""
    return Message(_DELETE_RULE, 0, _rule_names(table, chain) + attribute(_RULE_HANDLE, struct.pack(">Q", handle)))


def flush_chain(table: str, chain: str) -> Message:
    """Return what deletes all rules of a chain."""
    return Message(_DELETE_RULE, 0, _rule_names(table, chain))


def _rule_names(table: str, chain: str) -> bytes:
    return text(_RULE_TABLE, table) + text(_RULE_CHAIN, chain)


def delete_chain(table: str, name: str) -> Message:
    """Return what deletes a chain with its rules."""
    return Message(_DELETE_CHAIN, 0, chain_names(table, name))


def chain_names(table: str, name: str) -> bytes:
    """Return the attributes that name a chain."""
    return text(_CHAIN_TABLE, table) + text(_CHAIN_NAME, name)


def value(data: bytes) -> bytes:
    """Return the data of an element of a map."""
    before, after = _around(len(data))
    return before + data + after


@functools.cache
def _around(length: int) -> tuple[bytes, bytes]:
    """Return what is around a value of that many bytes, as a farm may have thousands."""
    whole = attribute(_DATA, attribute(_VALUE, bytes(length)))
    padding = -length % 4
    return whole[: len(whole) - length - padding], bytes(padding)


def leads_to(chain: str, comment: str = "", *, and_back: bool = False) -> bytes:
    """Return the data of an element that leads to a chain, or drops packets if there is none; with a comment.

    With ``and_back`` packets come back at the chain's end.
    """
    verdict = _verdict(chain, and_back=and_back)
    return verdict + _comment(comment) if comment else verdict


@functools.lru_cache(maxsize=4096)
def _verdict(chain: str, *, and_back: bool) -> bytes:
    """Return a verdict as data, once: thousands of farms lead to the same chains."""
    code = Verdict.JUMP if and_back else Verdict.GOTO
    return attribute(_DATA, verdict_data(code, chain) if chain else verdict_data(Verdict.DROP))


def _comment(comment: str) -> bytes:
    text = comment.encode()[:_COMMENT_MAX] + b"\0"
    return attribute(_USERDATA, bytes((_COMMENT, len(text))) + text)


def new_elements(table: str, name: str, elements: Iterable[tuple[bytes, bytes]]) -> Iterator[Message]:
    """Yield what adds elements to a set or map: their keys, and their data as attributes, which are empty in a set."""
    return _elements(_NEW_ELEMENTS, table, name, (element(key, data) for key, data in elements))


def new_parts(table: str, name: str, parts: Iterable[bytes]) -> Iterator[Message]:
    """Yield what adds elements to a set or map, which are given as attributes of a list, several in each part."""
    return _elements(_NEW_ELEMENTS, table, name, parts)


def new_listed_elements(table: str, name: str, elements: Iterable[bytes], of: bytes) -> Message:
    """Return what adds elements, given as attributes of a list, to a set or map; ``of`` are more attributes of it."""
    return Message(_NEW_ELEMENTS, _CREATE, element_list(table, name, elements) + of)


def delete_elements(table: str, name: str, keys: Iterable[bytes]) -> Iterator[Message]:
    """Yield what deletes elements from a set or map."""
    return _elements(_DELETE_ELEMENTS, table, name, (element(key) for key in keys))


def flush_set(table: str, name: str) -> Message:
    """Return what deletes all elements of a set or map."""
    return Message(_DELETE_ELEMENTS, 0, text(_ELEMENTS_TABLE, table) + text(_ELEMENTS_SET, name))


def element(key: bytes, data: bytes = b"") -> bytes:
    """Return an element of a list of elements."""
    before, after, length = _around_key(len(key))
    return _LENGTH.pack(length + len(data)) + before + key + after + data


@functools.cache
def _around_key(length: int) -> tuple[bytes, bytes, int]:
    """Return what is around a key of that many bytes in an element, and the element's length without data."""
    whole = attribute(_LIST_ELEMENT, attribute(_KEY, attribute(_VALUE, bytes(length))))
    padding = -length % 4
    return whole[_LENGTH.size : len(whole) - length - padding], bytes(padding), len(whole)


def element_list(table: str, name: str, elements: Iterable[bytes]) -> bytes:
    """Return the attributes of a message about elements."""
    listed = attribute(_ELEMENTS_LIST, b"".join(elements))
    return text(_ELEMENTS_TABLE, table) + text(_ELEMENTS_SET, name) + listed


def _elements(kind: int, table: str, name: str, elements: Iterable[bytes]) -> Iterator[Message]:
    parts: list[bytes] = []
    size = 0
    for each in elements:
        parts.append(each)
        size += len(each)
        if size > _LIST_BYTES:
            yield Message(kind, _CREATE, element_list(table, name, parts))
            parts, size = [], 0
    if parts:
        yield Message(kind, _CREATE, element_list(table, name, parts))
