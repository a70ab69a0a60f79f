"""The chains of the agent table that are hooked in only while a map has elements: unused ones cost packets nothing.

Pure: no I/O.
"""

from collections.abc import Collection, Iterable, Iterator

from kube_nftlb.agent.table import layout
from kube_nftlb.netfilter.table_text import NFPROTO, Chain

_PRIORITY = -160
"""Before nftlb's own chains (-150), which would give the connection a mark."""

_QUEUE_PRIORITY = -140
"""After these, and before nftlb translates (-100): from a queue a packet goes on to the next hook, no further rule."""

_MARK_PRIORITY = -150
"""Before the routing decision, which may depend on the mark."""

_SOURCE_PRIORITY = 90
_MASQUERADE_PRIORITY = 95
"""Both before nftlb masquerades (100): the first translation counts."""

_ESTABLISHED = "tcp flags & (syn | rst | ack) == ack "
"""Matches what conntrack takes for the first packet of a connection though its client has long been connected."""

_PORTS = "{ tcp, udp, sctp }"


def _new(used: Collection[str], family: str) -> tuple[str, ...]:
    """Return the rules for new connections."""
    rules = [
        rule
        for name, only in (
            (layout.SOURCE_RANGES, ""),
            (layout.POLICY, ""),
            (layout.CUT, _ESTABLISHED),
            (layout.NO_ENDPOINTS, ""),
        )
        for map_, rule in (
            (f"{name}-{family}", only + _by_listener(family, name)),
            (f"{name}-all-{family}", f"{only}{family} daddr vmap @{name}-all-{family}"),
        )
        if map_ in used
    ]
    return (f"meta l4proto != {_PORTS} return", *rules) if rules else ()


def _by_listener(family: str, name: str) -> str:
    """Return the rule that looks up the listener of a packet."""
    return f"meta l4proto . {family} daddr . th dport vmap @{name}-{family}"


def _in_use(used: Collection[str], name: str) -> list[str]:
    """Return the families for which a map has elements."""
    return [family for family in NFPROTO if f"{name}-{family}" in used]


_OPTIONS = (
    ("options-new", layout.CONNECTIONS, "ct state new"),
    ("options-invalid", layout.INVALIDS, "ct state invalid"),
    ("options-reset", layout.RESETS, "tcp flags rst"),
)
"""Chains with the options for incoming packets, the map that each looks up, and the packets that it matches."""


def arriving(used: Collection[str]) -> Iterator[Chain]:
    """Yield the chains before nftlb's. The options do not count what is kept out.

    Most packets are of connections that were opened long ago, and match the first rules of no chain.
    """
    first = []
    for family, protocol in NFPROTO.items():
        if rules := _new(used, family):
            yield Chain(f"new-{family}", rules)
            first.append(f"ct state new meta nfproto {protocol} jump new-{family}")
    for name, map_, match in _OPTIONS:
        if families := _in_use(used, map_):
            yield Chain(name, tuple(_by_listener(family, map_) for family in families))
            first.append(f"{match} jump {name}")
    if first:
        for hook in ("prerouting", "output"):
            yield Chain(hook, tuple(first), filter_hook(hook, _PRIORITY))


def queueing(used: Collection[str]) -> Iterator[Chain]:
    """Yield the chains that queue packets to programs, if these run."""
    rules = (
        *(_by_listener(family, layout.QUEUES) for family in _in_use(used, layout.QUEUES)),
        *(f"{family} daddr vmap @{layout.QUEUES}-all-{family}" for family in _in_use(used, f"{layout.QUEUES}-all")),
    )
    if rules:
        yield Chain("queueing", rules)
        for hook in ("prerouting", "output"):
            yield Chain(f"queueing-{hook}", ("ct state new jump queueing",), filter_hook(hook, _QUEUE_PRIORITY))


def filter_hook(hook: str, priority: int) -> str:
    """Return the declaration of a base chain of the type filter."""
    return f"type filter hook {hook} priority {priority}; policy accept;"


def _by_origin(statement: str, families: Iterable[str]) -> tuple[str, ...]:
    """Return rules that look up the original destination: nft needs the protocol to interpret a port."""
    return tuple(
        f"meta l4proto {protocol} "
        + statement.format(family=family, key=f"meta l4proto . ct original {family} daddr . ct original proto-dst")
        for family in families
        for protocol in ("tcp", "udp", "sctp")
    )


def passing(used: Collection[str]) -> Iterator[Chain]:
    """Yield the chains with the options for connections that nftlb has translated."""
    for name, hook, map_ in (("forward", "forward", layout.FORWARDED), ("departure", "postrouting", layout.LEAVING)):
        if families := _in_use(used, map_):
            yield Chain(f"by-{name}", _by_origin(f"{{key}} vmap @{map_}-{{family}}", families))
            yield Chain(name, (f"ct state new ct status dnat jump by-{name}",), filter_hook(hook, 0))


def translating(used: Collection[str]) -> Iterator[Chain]:
    """Yield the chains that translate source addresses."""
    by_backend = "ct status dnat snat {family} to {key} . {family} daddr map @" + layout.BACKEND_SOURCES + "-{family}"
    sources = (
        *_by_origin(by_backend, _in_use(used, layout.BACKEND_SOURCES)),
        *_by_origin(
            f"ct status dnat snat {{family}} to {{key}} map @{layout.SOURCES}-{{family}}", _in_use(used, layout.SOURCES)
        ),
    )
    masquerading = (
        *(
            f"ct status dnat {family} saddr . {family} daddr @{layout.HAIRPIN}-{family} goto masquerade-always"
            for family in _in_use(used, layout.HAIRPIN)
        ),
        *_by_origin(f"ct status dnat {{key}} vmap @{layout.MASQUERADE}-{{family}}", _in_use(used, layout.MASQUERADE)),
        *(
            f"ct status dnat ct original {family} daddr vmap @{layout.MASQUERADE}-all-{family}"
            for family in _in_use(used, f"{layout.MASQUERADE}-all")
        ),
    )
    for name, rules, priority in (
        ("source", sources, _SOURCE_PRIORITY),
        ("masquerading", masquerading, _MASQUERADE_PRIORITY),
    ):
        if rules:
            yield Chain(name, rules, f"type nat hook postrouting priority {priority}; policy accept;")


def marking(used: Collection[str]) -> Iterator[Chain]:
    """Yield the chains that mark connections, and the packets of these that nobody has marked.

    The backend of a connection is known once its first packet leaves.
    """
    connection = _by_origin(f"ct mark set {{key}} map @{layout.MARKS}-{{family}}", _in_use(used, layout.MARKS))
    packets = _by_origin(f"{{key}} @{layout.MARKED}-{{family}} meta mark set ct mark", _in_use(used, layout.MARKED))
    backend = f"ct mark set {{key}} . {{family}} daddr map @{layout.BACKEND_MARKS}-{{family}}"
    backends = _by_origin(backend, _in_use(used, layout.BACKEND_MARKS))
    if connection:
        yield Chain("mark-connection", connection)
    if packets:
        first = ("ct state new ct mark 0x0 jump mark-connection",) if connection else ()
        yield Chain("mark-packet", packets)
        rules = (*first, "meta mark 0x0 ct mark != 0x0 jump mark-packet")
        yield Chain("marking", rules, filter_hook("prerouting", _MARK_PRIORITY))
    if backends:
        yield Chain("mark-backend", backends)
        rules = ("ct state new ct status dnat jump mark-backend",)
        yield Chain("marking-backend", rules, filter_hook("postrouting", 0))
