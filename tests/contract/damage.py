"""All that anybody could change in a table, generated from the table in the kernel: each change is one transaction."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from kube_nftlb.netfilter import netlink
from kube_nftlb.netfilter.netlink import NetfilterSocket, attribute
from kube_nftlb.netfilter.nftables import expressions, messages
from kube_nftlb.netfilter.nftables.contents import SetContents, TableContents
from kube_nftlb.netfilter.nftables.expressions import Family, Verdict
from kube_nftlb.netfilter.nftables.messages import Message
from kube_nftlb.netfilter.nftables.reading import read

_NEW_CHAIN, _NEW_RULE, _NEW_ELEMENTS, _DELETE_ELEMENTS = 3, 6, 12, 14
_REPLACE, _CREATE = 0x100, 0x400
_CHAIN_POLICY = 5
_RULE_TABLE, _RULE_CHAIN, _RULE_HANDLE, _RULE_EXPRESSIONS = 1, 2, 3, 4
_KEY, _DATA, _VALUE, _VERDICT = 1, 2, 1, 2
_LIST_ELEMENT, _FLAGS, _KEY_END = 1, 3, 10
_RANGE_END = 1
_OTHER_CHAIN = "somebodys-chain"


class Damage(NamedTuple):
    """What is done, in words, and the transaction that does it."""

    what: str
    messages: list[Message]


def _accepts() -> bytes:
    """Return a rule, as expressions, that nobody of us has."""
    return expressions.is_family(Family.IP) + expressions.go_to(_OTHER_CHAIN)


def _add_chain(table: str) -> list[Message]:
    return list(messages.new_chain(table, _OTHER_CHAIN, [expressions.is_family(Family.IP)]))


async def damages(netfilter: NetfilterSocket, table: str) -> list[Damage]:
    """Return every change of one rule, chain, set or element of a table that there is."""
    contents = await read(netfilter, table, lambda _: True)
    answers = await netfilter.ask("inet", netlink.GET_RULES, netlink.text(_RULE_TABLE, table), dump=True)
    return [
        Damage("a chain is added", _add_chain(table)),
        *_of_rules(table, [each for each in answers if netlink.name(netlink.find(each, _RULE_TABLE)) == table]),
        *_of_chains(table, contents),
        *(each for name, of in contents.sets.items() if not of.is_dynamic for each in _of_set(table, name, of)),
    ]


def _of_rules(table: str, rules: list[bytes]) -> Iterator[Damage]:
    for each in rules:
        chain = netlink.name(netlink.find(each, _RULE_CHAIN))
        handle = int.from_bytes(netlink.find(each, _RULE_HANDLE) or b"", "big")
        yield Damage(f"rule {handle} of {chain} is deleted", [messages.delete_rule(table, chain, handle)])
        names = netlink.text(_RULE_TABLE, table) + netlink.text(_RULE_CHAIN, chain)
        replaced = names + attribute(_RULE_HANDLE, struct.pack(">Q", handle)) + attribute(_RULE_EXPRESSIONS, _accepts())
        yield Damage(
            f"rule {handle} of {chain} is replaced", [*_add_chain(table), Message(_NEW_RULE, _REPLACE, replaced)]
        )


def _of_chains(table: str, contents: TableContents) -> Iterator[Damage]:
    for name, hooked in contents.chains.items():
        added = messages.new_rule(table, name, _accepts(), b"")
        yield Damage(f"a rule is added to {name}", [*_add_chain(table), added])
        flush = messages.flush_chain(table, name)
        if contents.rules.get(name):
            yield Damage(f"{name} is flushed", [flush])
        if hooked:
            yield Damage(f"{name} is deleted", [flush, messages.delete_chain(table, name)])
            drops = messages.chain_names(table, name) + attribute(_CHAIN_POLICY, struct.pack(">I", 0))
            yield Damage(f"{name} drops by policy", [Message(_NEW_CHAIN, _CREATE, drops)])


def _of_set(table: str, name: str, of: SetContents) -> Iterator[Damage]:
    if of.elements:
        yield Damage(f"{name} is flushed", [messages.flush_set(table, name)])
    if of.is_interval:
        yield from _of_ranges(table, name, of)
        return
    for element in of.elements:
        key = netlink.find(element, _KEY, _VALUE) or b""
        deleted = list(messages.delete_elements(table, name, [key]))
        yield Damage(f"{key.hex()} of {name} is deleted", deleted)
        other = bytes((*key[:-4], key[-4] ^ 0x40, *key[-3:]))
        data = b"".join(attribute(kind, value) for kind, value in netlink.attributes(element) if kind != _KEY)
        yield Damage(f"{other.hex()} is added to {name}", list(messages.new_elements(table, name, [(other, data)])))
        if (found := netlink.find(element, _DATA)) is not None:
            changed = list(messages.new_elements(table, name, [(key, _other_data(found))]))
            yield Damage(f"{key.hex()} of {name} is changed", [*deleted, *changed])


def _of_ranges(table: str, name: str, of: SetContents) -> Iterator[Damage]:
    """Yield what becomes of each range: the kernel keeps both its ends in one element, or has one for each."""

    def message(kind: int, *elements: bytes) -> Message:
        listed = (attribute(_LIST_ELEMENT, each) for each in elements)
        return Message(kind, _CREATE if kind == _NEW_ELEMENTS else 0, messages.element_list(table, name, listed))

    def key_of(element: bytes) -> bytes:
        return netlink.find(element, _KEY, _VALUE) or b""

    ends = {key_of(each): each for each in of.elements if netlink.find(each, _FLAGS) is not None}
    for first in (each for each in of.elements if netlink.find(each, _FLAGS) is None):
        key = key_of(first)
        # That of the last address there is has none.
        last = [ends[min(after)]] if (after := [each for each in ends if each > key]) else []
        closed = last if netlink.find(first, _KEY_END) is None else []
        deleted = message(_DELETE_ELEMENTS, first, *closed)
        yield Damage(f"the range from {key.hex()} of {name} is deleted", [deleted])
        second = (int.from_bytes(key) + 1).to_bytes(len(key))
        if closed and second != key_of(closed[0]):
            end = attribute(_KEY, attribute(_VALUE, second)) + attribute(_FLAGS, struct.pack(">I", _RANGE_END))
            yield Damage(f"{key.hex()} of {name} ends at once", [deleted, message(_NEW_ELEMENTS, first, end)])


def _other_data(data: bytes) -> bytes:
    if netlink.find(data, _VERDICT) is not None:
        drops = netlink.find(data, _VERDICT, 2) is None
        verdict = Verdict.GOTO if drops else Verdict.DROP
        return attribute(_DATA, expressions.verdict_data(verdict, "refuse" if drops else ""))
    value = netlink.find(data, _VALUE) or b""
    return messages.value(bytes((value[0] ^ 1, *value[1:])))
