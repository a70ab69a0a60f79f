"""Pieces of an nftables table, and the commands that turn one state of it into another. No I/O.

Everything is text in the syntax of nft(8), made of validated values.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

TableFamily = Literal["ip", "ip6"]
FAMILIES: Final[tuple[TableFamily, ...]] = ("ip", "ip6")
NFPROTO: Final[Mapping[TableFamily, Literal["ipv4", "ipv6"]]] = {"ip": "ipv4", "ip6": "ipv6"}
"""The families as ``meta nfproto`` has them, and as Kubernetes calls them."""
ADDRESS_TYPE: Final[Mapping[TableFamily, str]] = {"ip": "ipv4_addr", "ip6": "ipv6_addr"}
HAS_PORTS: Final = "meta l4proto { tcp, udp, sctp }"
REFUSES: Final = ("meta l4proto tcp reject with tcp reset", "reject with icmpx port-unreachable")
"""The rules that refuse a connection, of any protocol."""


class Element(NamedTuple):
    """An element of a map or set; ``value`` is empty in a set."""

    set: str
    key: str
    value: str = ""


class Chain(NamedTuple):
    """A chain; ``hook`` is the line that hooks in a base chain."""

    name: str
    rules: tuple[str, ...]
    hook: str = ""


class NamedSet(NamedTuple):
    """A set or map: ``declaration`` is what stands between its braces, such as ``type ipv4_addr; flags interval;``.

    Its own ``elements`` are changed as a whole, in one transaction.
    """

    name: str
    declaration: str
    elements: tuple[str, ...] = ()
    kind: str = "set"


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of one owner, such as a farm, in a table. Names of chains and sets are unique over all owners."""

    elements: frozenset[Element] = frozenset()
    chains: tuple[Chain, ...] = ()
    sets: tuple[NamedSet, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.elements or self.chains or self.sets)

    def __or__(self, other: "Contents") -> "Contents":
        """Return both together; for a common key or name, the other's counts."""
        return contents_of(combined([self, other]))


@dataclass(frozen=True, slots=True)
class State:
    """A table's elements, chains and sets by their names."""

    elements: Mapping[tuple[str, str], str] = field(default_factory=dict)
    chains: Mapping[str, Chain] = field(default_factory=dict)
    sets: Mapping[str, NamedSet] = field(default_factory=dict)


def combined(contents: Iterable[Contents]) -> State:
    """Return all contents together; for a common key or name, the later one counts."""
    elements: dict[tuple[str, str], str] = {}
    chains: dict[str, Chain] = {}
    sets: dict[str, NamedSet] = {}
    for each in contents:
        elements.update({(entry.set, entry.key): entry.value for entry in each.elements})
        chains.update({chain.name: chain for chain in each.chains})
        sets.update({named.name: named for named in each.sets})
    return State(elements, chains, sets)


def contents_of(state: State) -> Contents:
    """Return a state as the contents of one owner."""
    elements = frozenset(Element(name, key, value) for (name, key), value in state.elements.items())
    return Contents(elements, tuple(state.chains.values()), tuple(state.sets.values()))


def creation(table: str, state: State, *, dormant: bool = False) -> str:
    """Return the commands that recreate a table with this state, whatever it has now.

    No packet passes one that is ``dormant``.
    """
    flags = "flags dormant;" if dormant else ""
    fresh = f"table inet {table} {{}}\ndelete table inet {table}\ntable inet {table} {{{flags}}}\n"
    return fresh + changes(table, State(), state)


def changes(table: str, before: State, after: State) -> str:
    """Return the commands from one state to the other, ordered so that nothing refers to what does not exist."""
    return "".join(f"{command}\n" for command in _changes(f"inet {table}", before, after))


def _changes(table: str, before: State, after: State) -> Iterator[str]:
    stale = [key for key, value in before.elements.items() if after.elements.get(key) != value]
    fresh = [key for key, value in after.elements.items() if before.elements.get(key) != value]
    yield from _element_commands("delete", table, ((name, key) for name, key in stale))
    for named in after.sets.values():
        if named.name not in before.sets:
            yield f"add {named.kind} {table} {named.name} {{ {named.declaration} }}"
    yield from _chains(table, before.chains, after.chains)
    for named in after.sets.values():
        known = before.sets.get(named.name)
        if known is not None and known.elements != named.elements:
            yield f"flush {named.kind} {table} {named.name}"
        if named.elements and (known is None or known.elements != named.elements):
            yield f"add element {table} {named.name} {{ {', '.join(named.elements)} }}"
    yield from _element_commands("add", table, ((name, _entry(key, after.elements[name, key])) for name, key in fresh))
    gone = [name for name in before.chains if name not in after.chains]
    yield from (f"flush chain {table} {name}" for name in gone)
    yield from (f"delete chain {table} {name}" for name in gone)
    yield from (f"delete {named.kind} {table} {name}" for name, named in before.sets.items() if name not in after.sets)


def _chains(table: str, before: Mapping[str, Chain], after: Mapping[str, Chain]) -> Iterator[str]:
    changed = [chain for chain in after.values() if before.get(chain.name) != chain]
    for chain in changed:
        if chain.name in before:
            yield f"flush chain {table} {chain.name}"
        else:
            yield f"add chain {table} {chain.name}" + (f" {{ {chain.hook} }}" if chain.hook else "")
    for chain in changed:
        yield from (f"add rule {table} {chain.name} {rule}" for rule in chain.rules)


def _element_commands(verb: str, table: str, entries: Iterable[tuple[str, str]]) -> Iterator[str]:
    by_set: dict[str, list[str]] = {}
    for name, entry in sorted(entries):
        by_set.setdefault(name, []).append(entry)
    yield from (f"{verb} element {table} {name} {{ {', '.join(elements)} }}" for name, elements in by_set.items())


def _entry(key: str, value: str) -> str:
    return f"{key} : {value}" if value else key
