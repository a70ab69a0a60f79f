"""The contents of the table without any farm: maps, sets, and the chains that are hooked in. Pure: no I/O.

Written as text, unlike what depends on farms: it is programmed once, and not worth encoding by hand.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping

from kube_nftlb.agent.engine.nftables import layout
from kube_nftlb.agent.engine.nftables.layout import TABLE
from kube_nftlb.netfilter.table_text import ADDRESS_TYPE, FAMILIES, HAS_PORTS, NFPROTO, REFUSES, TableFamily

_PRIORITY = -105
"""Before nftlb translates (-100): a farm that moves between the engines is served by this one while both have it."""
_RESET_PRIORITY = 85
"""Before source addresses of farms (90): no further chain sees a packet whose source is translated."""
_MASQUERADE_PRIORITY = 95
"""After source addresses of farms (90), before nftlb masquerades (100)."""


def _as_class(number: int) -> str:
    """Return a number as nft(8) has priorities."""
    return f"{number >> 16:x}:{number & 0xFFFF:x}"


_CLASS_OF_NUMBERS = _as_class(layout.NUMBER_MARK)


def creation() -> str:
    """Return the commands that create the table, whatever there was."""
    lines = [*_sets(), *_chains(), f"chain {seal()} {{ }}"]
    body = "\n".join(f"\t{line}" for line in lines)
    return f"{deletion()}table inet {TABLE} {{\n{body}\n}}\n"


def deletion() -> str:
    """Return the commands that delete the table, if there is one."""
    return f"table inet {TABLE} {{}}\ndelete table inet {TABLE}\n"


def local_pods(ranges: Mapping[TableFamily, Iterable[str]]) -> str:
    """Return the commands that set the ranges of this node's pods."""
    commands = []
    for family in FAMILIES:
        name = f"inet {TABLE} {layout.LOCAL_PODS}-{family}"
        commands.append(f"flush set {name}\n")
        if elements := ", ".join(ranges.get(family, ())):
            commands.append(f"add element {name} {{ {elements} }}\n")
    return "".join(commands)


def seal() -> str:
    """Return the name of an empty chain by which an agent recognizes a table that it knows how to use."""
    text = "\n".join((*_sets(), *_chains()))
    return f"layout-{hashlib.blake2b(text.encode(), digest_size=6).hexdigest()}"


def _key_expression(family: TableFamily) -> str:
    return f"meta l4proto . {family} daddr . th dport"


def _maps(family: TableFamily) -> Iterator[str]:
    """Yield the declarations of what farms put elements into (``reading.key_bytes`` has the lengths of the keys)."""
    address = ADDRESS_TYPE[family]
    for part, key, value in (
        ("", f"inet_proto . {address} . inet_service", f"{address} . inet_service"),
        ("-all", address, address),
    ):
        suffix = f"{part}-{family}"
        for name in (
            layout.SERVICES,
            layout.INSIDE,
            layout.OUTSIDE,
            layout.CHOICES,
            layout.MEMORIES,
            layout.MASQUERADE,
        ):
            yield f"map {name}{suffix} {{ type {key} : verdict; }}"
        yield f"set {layout.NOT_FROM_NODE}{suffix} {{ type {key}; }}"
        yield f"map {layout.STICKY}{suffix} {{ type {key} : classid; }}"
        for name in (layout.PICKS, layout.SHARES):
            yield f"map {name}{suffix} {{ type {key} . classid : classid; }}"
        for name in (layout.ENDPOINTS, layout.STICKY_ENDPOINTS):
            yield f"map {name}{suffix} {{ type {key} . classid : {value}; }}"
    yield f"map {layout.SESSIONS}-{family} {{ type classid . {address} : classid; }}"
    yield f"set {layout.HAIRPIN}-{family} {{ type {address} . {address}; }}"


def _sets() -> Iterator[str]:
    for family in FAMILIES:
        yield from _maps(family)
        yield f"set {layout.LOCAL_PODS}-{family} {{ type {ADDRESS_TYPE[family]}; flags interval; auto-merge; }}"


def _chains() -> Iterator[str]:
    for name, hook, rules in _all_chains():
        yield f"chain {name} {{ {'; '.join((*((hook,) if hook else ()), *rules))}; }}"


def _all_chains() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield names, hooks and rules. A chain comes after those that it leads to."""
    yield "refuse", "", REFUSES
    hairpin = tuple(
        f"{family} saddr . {family} daddr @{layout.HAIRPIN}-{family} masquerade fully-random" for family in FAMILIES
    )
    ours = tuple(f"{family} saddr @{layout.LOCAL_PODS}-{family} return" for family in FAMILIES)
    yield "masquerade-always", "", ("masquerade fully-random",)
    yield "masquerade-from-outside", "", (*hairpin, *ours, "masquerade fully-random")
    yield "masquerade-from-itself", "", (*hairpin, "fib saddr type local masquerade fully-random")
    inside, outside = (
        f"meta priority set {_as_class(each)} return" for each in (layout.FROM_INSIDE, layout.FROM_OUTSIDE)
    )
    for family in FAMILIES:
        pods = f"{family} saddr @{layout.LOCAL_PODS}-{family}"
        yield f"{layout.BY_CLIENT}-{family}", "", (f"{pods} {inside}", f"fib saddr type local {inside}", outside)
    for family in FAMILIES:
        yield from _numbered(family)
    yield layout.INSIDE, "", _looked_up(layout.INSIDE)
    yield layout.OUTSIDE, "", _looked_up(layout.OUTSIDE)
    by_client = (
        f"meta priority {_as_class(layout.FROM_INSIDE)} jump {layout.INSIDE}",
        f"meta priority {_as_class(layout.FROM_OUTSIDE)} jump {layout.OUTSIDE}",
    )
    # Only a packet to a farm that serves some clients otherwise, or remembers them, comes back, with a number.
    services = (
        *_looked_up(layout.SERVICES),
        f"meta priority & {_CLASS_OF_NUMBERS} == none accept",
        *by_client,
        *_looked_up(layout.CHOICES),
        *by_client,
        *_looked_up(layout.MEMORIES),
    )
    not_from_node = tuple(
        rule
        for family in FAMILIES
        for rule in (
            f"{_key_expression(family)} @{layout.NOT_FROM_NODE}-{family} return",
            f"{family} daddr @{layout.NOT_FROM_NODE}-all-{family} return",
        )
    )
    yield "prerouting", _hook("prerouting", _PRIORITY), services
    yield "output", _hook("output", _PRIORITY), (*not_from_node, *services)
    for family in FAMILIES:
        yield f"masquerading-{family}", "", tuple(_masquerading(family))
    by_family = ", ".join(f"{name} : goto masquerading-{family}" for family, name in NFPROTO.items())
    translated = f"ct status dnat meta nfproto vmap {{ {by_family} }}"
    yield "masquerading", _hook("postrouting", _MASQUERADE_PRIORITY), (translated,)
    # The number would choose a traffic class.
    reset = f"meta priority & {_CLASS_OF_NUMBERS} != none meta priority set none"
    yield "reset-priority", _hook("postrouting", _RESET_PRIORITY), (reset,)


def _numbered(family: TableFamily) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield the chains that look up the number that was chosen for a packet, and that is its priority.

    Few other rules use these maps: whenever an element comes, the kernel goes through all rules that use its map.
    The number may have gone since the listener was looked up: then it is the first one. If that has gone too, the
    packet is dropped: it would never be translated, nor would those that repeat it, but a dropped one is new when it
    comes again.
    """
    # nft(8) reads a class only if a space or the end of the line follows.
    first = (f"meta priority set meta priority & {_as_class(layout.FIRST_MASK)} ",)
    for part, listener in (("", _key_expression(family)), ("-all", f"{family} daddr")):
        first_pick = (f"meta priority set {_CLASS_OF_NUMBERS} ", f"jump {layout.PICKS}{part}-{family}")
        for map_, statement, otherwise, end in (
            (layout.PICKS, "meta priority set", first, " return"),
            (layout.ENDPOINTS, f"dnat {family} to", first, ""),
            (layout.STICKY_ENDPOINTS, f"dnat {family} to", first_pick, ""),
        ):
            name = f"{map_}{part}-{family}"
            rule = f"{statement} {listener} . meta priority map @{name}{end}"
            yield name, "", (rule, *otherwise, rule, "drop")


def _looked_up(map_: str) -> tuple[str, ...]:
    return tuple(
        rule
        for family in FAMILIES
        for rule in (
            f"{_key_expression(family)} vmap @{map_}-{family}",
            f"{HAS_PORTS} {family} daddr vmap @{map_}-all-{family}",
        )
    )


def _masquerading(family: TableFamily) -> Iterator[str]:
    for protocol in ("tcp", "udp", "sctp"):
        key = f"meta l4proto . ct original {family} daddr . ct original proto-dst"
        yield f"meta l4proto {protocol} {key} vmap @{layout.MASQUERADE}-{family}"
    yield f"ct original {family} daddr vmap @{layout.MASQUERADE}-all-{family}"


def _hook(hook: str, priority: int) -> str:
    return f"type nat hook {hook} priority {priority}; policy accept"
