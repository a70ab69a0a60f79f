"""The contents of the table without any farm: maps, sets, and the chains that are hooked in. Pure: no I/O.

Written as text, unlike what depends on farms: it is programmed once, and types such as ``typeof numgen`` are not
worth encoding by hand.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping

from kube_nftlb.agent.engine.nftables import layout
from kube_nftlb.agent.engine.nftables.layout import TABLE
from kube_nftlb.netfilter.table_text import ADDRESS_TYPE, FAMILIES, HAS_PORTS, NFPROTO, REFUSES, TableFamily

_PRIORITY = -105
"""Before nftlb translates (-100): a farm that moves between the engines is served by this one while both have it."""
_MASQUERADE_PRIORITY = 95
"""After source addresses of farms (90), before nftlb masquerades (100)."""


def _as_class(number: int) -> str:
    """Return a number as nft(8) has priorities."""
    return f"{number >> 16:x}:{number & 0xFFFF:x}"


_CLASS_OF_STICKY = _as_class(layout.STICKY_MARK)


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
    address, number = ADDRESS_TYPE[family], "numgen random mod 2"
    for part, key, expression, endpoint in (
        ("", f"inet_proto . {address} . inet_service", _key_expression(family), f"{family} daddr . th dport"),
        ("-all", address, f"{family} daddr", f"{family} daddr"),
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
        yield f"map {layout.ENDPOINTS}{suffix} {{ typeof {expression} . {number} : {endpoint}; }}"
        yield f"map {layout.STICKY}{suffix} {{ type {key} : classid; }}"
        for name in (layout.PICKS, layout.SHARES):
            yield f"map {name}{suffix} {{ typeof {expression} . {number} : meta priority; }}"
        value = f"{address} . inet_service" if not part else address
        yield f"map {layout.STICKY_ENDPOINTS}{suffix} {{ type {key} . classid : {value}; }}"
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
    yield layout.INSIDE, "", _looked_up(layout.INSIDE)
    yield layout.OUTSIDE, "", _looked_up(layout.OUTSIDE)
    by_client = (
        f"meta priority {_as_class(layout.FROM_INSIDE)} jump {layout.INSIDE}",
        f"meta priority {_as_class(layout.FROM_OUTSIDE)} jump {layout.OUTSIDE}",
    )
    # Only a packet to a farm that serves some clients otherwise, or remembers them, comes back, with a number.
    services = (
        *_looked_up(layout.SERVICES),
        f"meta priority & {_CLASS_OF_STICKY} == none accept",
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
    # The number would choose a traffic class.
    forgotten = f"meta priority & {_CLASS_OF_STICKY} != none meta priority set none"
    yield "masquerading", _hook("postrouting", _MASQUERADE_PRIORITY), (forgotten, translated)


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
