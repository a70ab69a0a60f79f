"""The layout of the agent table, ``inet kube-nftlb``: what all farms share, and the maps that they add elements to.

A rule that looks something up exists while there is something to be found: what nobody uses costs no packet anything.
"""

import functools
import ipaddress
from collections.abc import Collection, Iterable, Iterator, Mapping

from kube_nftlb.api.base import Family
from kube_nftlb.api.listeners import Listener
from kube_nftlb.netfilter.transaction import Chain, Contents, Element, NamedSet

TABLE = "kube-nftlb"

PRIORITY = -160
"""Before nftlb's own chains (-150), which would give the connection a mark."""

_QUEUE_PRIORITY = -140
"""After these, and before nftlb translates (-100): from a queue a packet goes on to the next hook, no further rule."""

NO_ENDPOINTS = "no-endpoints"
"""The maps from a listener to what happens to its new connections; each exists once per family, see ``listener``."""

POLICY = "policy"
"""The maps from a listener to the chain that says whether a new connection's client gets in (``policies``)."""

REFUSE = "goto refuse"
"""The verdict for a connection that nobody would answer: a TCP reset, or ICMP's port unreachable."""

DROP = "drop"
"""The verdict for a connection that is to be tried elsewhere: nobody answers."""

SOURCE_RANGES = "source-ranges"
"""The maps from a listener to the chain that lets the connections from some ranges pass (``steering``)."""

MASQUERADE = "masquerade"
"""The maps from a listener to who is masqueraded on the way to its backends: ALWAYS, FROM_OUTSIDE or FROM_ITSELF."""
ALWAYS = "goto masquerade-always"
FROM_OUTSIDE = "goto masquerade-from-outside"
"""All but this node's pods: those that backends would answer by another way."""
FROM_ITSELF = "goto masquerade-from-itself"
"""The node's own processes."""

HAIRPIN = "hairpin"
"""The sets of a backend's address twice, as client and as backend: it would never see an answer to itself."""
LOCAL_PODS = "local-pods"
"""The sets of the ranges of this node's pods."""
SERVICE_RANGES = "service-ranges"
"""The sets of the cluster's ranges for Services."""

LISTENERS = "listeners"
"""The sets of all that farms listen on."""

CONNECTIONS = "connections"
"""The maps from a listener to what is done with each new connection that comes in."""
RESETS = "resets"
"""The same for each TCP reset of a client."""
INVALIDS = "invalids"
"""The same for each packet that belongs to no connection and opens none."""
FORWARDED = "forwarded"
"""The same for each new connection that is forwarded."""
QUEUES = "queues"
"""The maps from a listener to the netfilter queue that inspects what opens a connection."""
LEAVING = "leaving"
"""The same for each new connection as it leaves the node."""
SOURCES = "sources"
"""The maps from a listener to the address that its connections' source is translated to."""
BACKEND_SOURCES = "backend-sources"
"""The same for a listener and the address of a backend."""

_SOURCE_PRIORITY = 90
_MASQUERADE_PRIORITY = 95
"""Both before nftlb masquerades (100): the first translation counts."""

_ADDRESS_TYPE = {"ip": "ipv4_addr", "ip6": "ipv6_addr"}
_LISTENER_KEY = {"ip": "inet_proto . ipv4_addr . inet_service", "ip6": "inet_proto . ipv6_addr . inet_service"}
_FAMILIES = {"ip": "ipv4", "ip6": "ipv6"}
_PORTS = "{ tcp, udp, sctp }"


def _new(used: Collection[str], family: str) -> tuple[str, ...]:
    """Rules for new connections."""
    rules = [
        rule
        for name in (SOURCE_RANGES, POLICY, NO_ENDPOINTS)
        for map_, rule in (
            (f"{name}-{family}", _by_listener(family, name)),
            (f"{name}-all-{family}", f"{family} daddr vmap @{name}-all-{family}"),
        )
        if map_ in used
    ]
    return (f"meta l4proto != {_PORTS} return", *rules) if rules else ()


def _by_listener(family: str, name: str) -> str:
    """The rule that looks up what a packet is for."""
    return f"meta l4proto . {family} daddr . th dport vmap @{name}-{family}"


def _in_use(used: Collection[str], name: str) -> list[str]:
    """The families for which a map has elements."""
    return [family for family in _FAMILIES if f"{name}-{family}" in used]


_OPTIONS = (
    ("options-new", CONNECTIONS, "ct state new"),
    ("options-invalid", INVALIDS, "ct state invalid"),
    ("options-reset", RESETS, "tcp flags rst"),
)
"""Chains with the options for what comes in, the map that each looks into, and for which packets."""


def _arriving(used: Collection[str]) -> Iterator[Chain]:
    """What is done before nftlb. What is kept out does not count in the options.

    Most packets are of connections that were opened long ago, and match the first rules of no chain.
    """
    first = []
    for family, protocol in _FAMILIES.items():
        if rules := _new(used, family):
            yield Chain(f"new-{family}", rules)
            first.append(f"ct state new meta nfproto {protocol} jump new-{family}")
    for name, map_, match in _OPTIONS:
        if families := _in_use(used, map_):
            yield Chain(name, tuple(_by_listener(family, map_) for family in families))
            first.append(f"{match} jump {name}")
    if first:
        for hook in ("prerouting", "output"):
            yield Chain(hook, tuple(first), _filter_hook(hook, PRIORITY))


def _queueing(used: Collection[str]) -> Iterator[Chain]:
    """What is inspected, by programs that may be there or not."""
    rules = (
        *(_by_listener(family, QUEUES) for family in _in_use(used, QUEUES)),
        *(f"{family} daddr vmap @{QUEUES}-all-{family}" for family in _in_use(used, f"{QUEUES}-all")),
    )
    if rules:
        yield Chain("queueing", rules)
        for hook in ("prerouting", "output"):
            yield Chain(f"queueing-{hook}", ("ct state new jump queueing",), _filter_hook(hook, _QUEUE_PRIORITY))


def _filter_hook(hook: str, priority: int) -> str:
    return f"type filter hook {hook} priority {priority}; policy accept;"


def _by_origin(statement: str, families: Iterable[str]) -> tuple[str, ...]:
    """Rules that look up what a connection was opened to: nft must know the protocol to know what a port is."""
    return tuple(
        f"meta l4proto {protocol} "
        + statement.format(family=family, key=f"meta l4proto . ct original {family} daddr . ct original proto-dst")
        for family in families
        for protocol in ("tcp", "udp", "sctp")
    )


def _passing(used: Collection[str]) -> Iterator[Chain]:
    """The options for what nftlb has sent on."""
    for name, hook, map_ in (("forward", "forward", FORWARDED), ("departure", "postrouting", LEAVING)):
        if families := _in_use(used, map_):
            yield Chain(f"by-{name}", _by_origin(f"{{key}} vmap @{map_}-{{family}}", families))
            yield Chain(name, (f"ct state new ct status dnat jump by-{name}",), _filter_hook(hook, 0))


def _translating(used: Collection[str]) -> Iterator[Chain]:
    """Whose source address becomes another one."""
    by_backend = "ct status dnat snat {family} to {key} . {family} daddr map @" + BACKEND_SOURCES + "-{family}"
    sources = (
        *_by_origin(by_backend, _in_use(used, BACKEND_SOURCES)),
        *_by_origin(f"ct status dnat snat {{family}} to {{key}} map @{SOURCES}-{{family}}", _in_use(used, SOURCES)),
    )
    masquerading = (
        *(
            f"ct status dnat {family} saddr . {family} daddr @{HAIRPIN}-{family} goto masquerade-always"
            for family in _in_use(used, HAIRPIN)
        ),
        *_by_origin(f"ct status dnat {{key}} vmap @{MASQUERADE}-{{family}}", _in_use(used, MASQUERADE)),
        *(
            f"ct status dnat ct original {family} daddr vmap @{MASQUERADE}-all-{family}"
            for family in _in_use(used, f"{MASQUERADE}-all")
        ),
    )
    for name, rules, priority in (
        ("source", sources, _SOURCE_PRIORITY),
        ("masquerading", masquerading, _MASQUERADE_PRIORITY),
    ):
        if rules:
            yield Chain(name, rules, f"type nat hook postrouting priority {priority}; policy accept;")


_VERDICT_MAPS = (
    SOURCE_RANGES,
    POLICY,
    NO_ENDPOINTS,
    CONNECTIONS,
    RESETS,
    INVALIDS,
    QUEUES,
    FORWARDED,
    LEAVING,
    MASQUERADE,
)
_UNSERVED = tuple(f"{family} daddr @{SERVICE_RANGES}-{family} goto refuse" for family in _ADDRESS_TYPE)


def _listened_on(verdict: str) -> tuple[str, ...]:
    """Rules for new connections to what is listened on that nobody has translated."""
    return (
        "ct state != new return",
        "ct status dnat return",
        *(
            rule
            for family in _ADDRESS_TYPE
            for rule in (
                f"meta l4proto . {family} daddr . th dport @{LISTENERS}-{family} {verdict}",
                f"{family} daddr @{LISTENERS}-all-{family} {verdict}",
            )
        ),
    )


_FROM_LOCAL_PODS = tuple(f"{family} saddr @{LOCAL_PODS}-{family} return" for family in _ADDRESS_TYPE)

_SETS = (
    tuple(
        NamedSet(f"{name}-{family}", f"type {key}{value};", kind="map")
        for family, key in _LISTENER_KEY.items()
        for name, value in (
            *((name, " : verdict") for name in _VERDICT_MAPS),
            (SOURCES, f" : {_ADDRESS_TYPE[family]}"),
            (BACKEND_SOURCES, f" . {_ADDRESS_TYPE[family]} : {_ADDRESS_TYPE[family]}"),
        )
    )
    + tuple(
        NamedSet(f"{name}-all-{family}", f"type {key} : verdict;", kind="map")
        for name in (SOURCE_RANGES, POLICY, NO_ENDPOINTS, QUEUES, MASQUERADE)
        for family, key in _ADDRESS_TYPE.items()
    )
    + tuple(NamedSet(f"{LISTENERS}-{family}", f"type {key};") for family, key in _LISTENER_KEY.items())
    + tuple(NamedSet(f"{LISTENERS}-all-{family}", f"type {key};") for family, key in _ADDRESS_TYPE.items())
    + tuple(NamedSet(f"{HAIRPIN}-{family}", f"type {key} . {key};") for family, key in _ADDRESS_TYPE.items())
)

_CHAINS = (
    Chain("refuse", ("meta l4proto tcp reject with tcp reset", "reject with icmpx port-unreachable")),
    # What nobody has translated by now, nftlb or another proxy, goes to a port or an address without a Service; or
    # nftlb is making its rules anew. A packet that came by in that moment would never be translated, however often
    # it is sent; one that is dropped is new when it comes again. To a process a drop would be an error.
    Chain("unserved", (*_listened_on("drop"), *_UNSERVED), _filter_hook("forward", -5)),
    Chain("unserved-output", (*_listened_on("return"), *_UNSERVED), _filter_hook("output", -90)),
    Chain("masquerade-always", ("masquerade fully-random",)),
    Chain("masquerade-from-outside", (*_FROM_LOCAL_PODS, "masquerade fully-random")),
    Chain("masquerade-from-itself", ("fib saddr type local masquerade fully-random",)),
    # Established connections do not survive a moment in which the network namespace has no chain of the type nat,
    # such as nftlb's start.
    Chain("keep-nat-prerouting", (), "type nat hook prerouting priority 100; policy accept;"),
    Chain("keep-nat-postrouting", (), "type nat hook postrouting priority 200; policy accept;"),
)

SET_NAMES = frozenset(named.name for named in _SETS)
"""All maps and sets that farms put elements into."""


@functools.lru_cache
def base(used: frozenset[str]) -> Contents:
    """What all farms share, where these of SET_NAMES have elements."""
    chains = (*_CHAINS, *_arriving(used), *_queueing(used), *_passing(used), *_translating(used))
    return Contents(sets=_SETS, chains=chains)


ENVIRONMENT = "environment"
"""The owner of what is known of the node and the cluster; no farm's name in nftlb is that of a word without dashes."""


def environment(local_pods: Mapping[Family, Iterable[str]], service_ranges: Mapping[Family, Iterable[str]]) -> Contents:
    """The ranges of this node's pods, and the cluster's ranges for Services."""
    return Contents(
        sets=tuple(
            NamedSet(
                f"{name}-{table}", f"type {_ADDRESS_TYPE[table]}; flags interval; auto-merge;", tuple(sorted(ranges))
            )
            for name, by_family in ((LOCAL_PODS, local_pods), (SERVICE_RANGES, service_ranges))
            for table, ranges in (("ip", by_family.get("ipv4", ())), ("ip6", by_family.get("ipv6", ())))
        )
    )


def table_family(ip: str) -> str:
    """What nft calls the family of an address."""
    return "ip6" if ipaddress.ip_address(ip).version == 6 else "ip"


def listener(name: str, to: Listener, value: str = "") -> Element:
    """An element of one of the maps that are keyed by protocol, address and port, or by the address alone."""
    family = table_family(to.ip)
    if to.protocol == "All":
        return Element(f"{name}-all-{family}", to.ip, value)
    return Element(f"{name}-{family}", f"{to.protocol.lower()} . {to.ip} . {to.port}", value)


def hairpin(ip: str) -> Element:
    """A backend of this node is masqueraded when it is its own client."""
    return Element(f"{HAIRPIN}-{table_family(ip)}", f"{ip} . {ip}")


def is_deferrable(contents: Contents) -> bool:
    """Return True if contents need not be there before a farm is served: refusals, and the set of listeners."""
    return not (contents.chains or contents.sets) and all(
        entry.value == REFUSE or entry.set.startswith(LISTENERS) for entry in contents.elements
    )


def refused(listeners: Iterable[Listener]) -> Contents:
    """Return what refuses new connections to these listeners."""
    return Contents(frozenset(listener(NO_ENDPOINTS, each, REFUSE) for each in listeners))
