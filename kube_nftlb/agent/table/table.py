"""The agent's own table, ``inet kube-nftlb``: what nftlb has no way to say.

What all farms share is ``base``; what a farm adds to it is a pure function's ``Contents``. ``OwnTable`` keeps the
contents of all owners and brings the kernel to them, each change in one transaction.

A rule that looks something up is there while there is something to be found: what nobody uses costs no packet anything.
"""

import functools
import hashlib
import ipaddress
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from kube_nftlb import errors
from kube_nftlb.api.base import Family
from kube_nftlb.netfilter.libnftables import Nft
from kube_nftlb.netfilter.transaction import Chain, Contents, Element, NamedSet, State, changes, combined, creation
from kube_nftlb.nftlb import objects

TABLE = "kube-nftlb"

PRIORITY = -160
"""Before nftlb's own chains (-150), which would give the connection a mark."""

_QUEUE_PRIORITY = -140
"""After these, and before nftlb translates (-100): from a queue a packet goes on to the next hook, no further rule."""

VERDICTS = "verdicts"
"""The maps from a listener to what happens to its new connections; each exists once per family, see ``listener``."""

GUARDS = "guards"
"""The maps from a listener to the chain that says whether a new connection's client gets in (``policies``)."""

REFUSE = "goto refuse"
"""The verdict for a connection that nobody would answer: a TCP reset, or ICMP's port unreachable."""

DROP = "drop"
"""The verdict for a connection that is to be tried elsewhere: nobody answers."""

RANGES = "ranges"
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
        for name in (RANGES, GUARDS, VERDICTS)
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


_VERDICT_MAPS = (RANGES, GUARDS, VERDICTS, CONNECTIONS, RESETS, INVALIDS, QUEUES, FORWARDED, LEAVING, MASQUERADE)
_NOT_SERVED = tuple(f"{family} daddr @{SERVICE_RANGES}-{family} goto refuse" for family in _ADDRESS_TYPE)


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
        for name in (RANGES, GUARDS, VERDICTS, QUEUES, MASQUERADE)
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
    Chain("not-served", (*_listened_on("drop"), *_NOT_SERVED), _filter_hook("forward", -5)),
    Chain("not-served-output", (*_listened_on("return"), *_NOT_SERVED), _filter_hook("output", -90)),
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


def listener(name: str, claim: objects.Claim, value: str = "") -> Element:
    """An element of one of the maps that are keyed by protocol, address and port, or by the address alone."""
    family = table_family(claim.ip)
    if claim.protocol == "all":
        return Element(f"{name}-all-{family}", claim.ip, value)
    return Element(f"{name}-{family}", f"{claim.protocol} . {claim.ip} . {claim.port}", value)


def hairpin(ip: str) -> Element:
    """A backend of this node is masqueraded when it is its own client."""
    return Element(f"{HAIRPIN}-{table_family(ip)}", f"{ip} . {ip}")


def can_wait(contents: Contents) -> bool:
    """Whether there is nothing that must be there before somebody is served: refusals, and what is listened on."""
    return not (contents.chains or contents.sets) and all(
        entry.value == REFUSE or entry.set.startswith(LISTENERS) for entry in contents.elements
    )


class OwnTable:
    """The table in the kernel, and what each owner is to have in it."""

    def __init__(self, nft: Nft) -> None:
        self._nft = nft
        self._owners: dict[str, Contents] = {}
        self._digest = 0
        self._present: dict[tuple[str, str], dict[str, str]] = {}
        self._elements: Counter[str] = Counter()
        self.expect({})

    @property
    def state(self) -> State:
        """All that is to be in the table, with a chain whose name stands for it.

        By that name an agent that was restarted knows that the table is the one which it would make.
        """
        return combined([self._base(), *self._owners.values(), self._seal()])

    def _base(self) -> Contents:
        return base(frozenset(self._elements))

    def _seal(self) -> Contents:
        return Contents(chains=(Chain(f"state-{self._digest:016x}", ("return",)),))

    def owned(self, owner: str) -> Contents:
        """What an owner has."""
        return self._owners.get(owner, Contents())

    async def possible(self, commands: str) -> bool:
        """Whether the kernel would take these commands; nothing is changed."""
        return not await self._nft.complaint(commands)

    async def create(self, otherwise: Callable[[str], Contents] = lambda _: Contents()) -> dict[str, str]:
        """Make the table anew, with all that it is to have, in one transaction.

        Farms whose contents the kernel does not take have what ``otherwise`` says of them. Returns these, by their
        names in nftlb, with what is said against them. Raises KernelError where the kernel refuses what is no farm's.
        """
        try:
            await self._nft.run(creation(TABLE, self.state))
        except errors.KernelError:
            if not (refused := await self._refused([owner for owner in self._owners if _is_farm(owner)])):
                raise
            self._swap({owner: otherwise(owner) for owner in refused})
            await self._nft.run(creation(TABLE, self.state))
            return refused
        return {}

    def expect(self, owners: Mapping[str, Contents]) -> None:
        """These are all owners there are, and this is what they are to have; the kernel is not touched."""
        # Another version of the agent may have made it of other rules.
        self._owners, self._present, self._elements, self._digest = {}, {}, Counter(), _digest("", base(SET_NAMES))
        for owner, contents in {ENVIRONMENT: environment({}, {}), **owners}.items():
            self._hold(owner, contents)

    async def update(
        self, owners: Mapping[str, Contents], otherwise: Callable[[str], Contents] = lambda _: Contents()
    ) -> dict[str, str]:
        """Give these owners these contents, in one transaction; none is sent where nothing changes.

        Farms whose new contents the kernel does not take keep what they have. Returns and raises as ``create`` does.
        """
        changed = {owner: new for owner, new in owners.items() if self.owned(owner) != new}
        if not changed:
            return {}
        earlier = {owner: self.owned(owner) for owner in changed}
        keys = {key for owner in changed for key in _keys(earlier[owner]) | _keys(changed[owner])}
        before = self._part(keys, changed)
        self._swap(changed)
        try:
            await self._nft.run(changes(TABLE, before, self._part(keys, changed)))
        except errors.KernelError:
            if refused := await self._refused([owner for owner in changed if _is_farm(owner)]):
                self._swap(earlier)
                others = {owner: new for owner, new in changed.items() if owner not in refused}
                return refused | await self.update(others, otherwise)
            # Somebody has touched the table: the difference cannot be applied, the whole can.
            return await self.create(lambda owner: earlier[owner] if owner in earlier else otherwise(owner))
        return {}

    async def _refused(self, farms: list[str]) -> dict[str, str]:
        """Those of these farms whose contents the kernel does not take, in a table of their own, and what is said."""
        if not farms or await self._complaint([]):
            return {}
        return await self._among(farms)

    async def _among(self, farms: list[str]) -> dict[str, str]:
        if not (said := await self._complaint(farms)):
            return {}
        if len(farms) == 1:
            return {farms[0]: said}
        half = len(farms) // 2
        return await self._among(farms[:half]) | await self._among(farms[half:])

    async def _complaint(self, farms: list[str]) -> str:
        """What is said against a table with these farms, and with what belongs to none."""
        contents = [contents for owner, contents in self._owners.items() if not _is_farm(owner)]
        contents.extend(self._owners[owner] for owner in farms if owner in self._owners)
        used = frozenset(entry.set for each in contents for entry in each.elements)
        return await self._nft.complaint(creation(TABLE, combined([base(used), *contents])))

    def _part(self, keys: Iterable[tuple[str, str]], owners: Iterable[str]) -> State:
        """What there is under these keys, of these owners, and of all; other owners cost nothing."""
        own = combined(
            [self._base(), *(self._owners[owner] for owner in owners if owner in self._owners), self._seal()]
        )
        values = {key: self._present[key] for key in keys if key in self._present}
        # Where several owners have one element, it is as the last of them wants it, and stays until the last has gone.
        return State({key: list(held.values())[-1] for key, held in values.items()}, own.chains, own.sets)

    def _swap(self, owners: Mapping[str, Contents]) -> None:
        for owner, contents in owners.items():
            self._release(owner)
            self._hold(owner, contents)

    def _hold(self, owner: str, contents: Contents) -> None:
        if contents:
            self._owners[owner] = contents
            self._digest ^= _digest(owner, contents)
            for entry in contents.elements:
                held = self._present.setdefault((entry.set, entry.key), {})
                self._elements[entry.set] += not held
                held[owner] = entry.value

    def _release(self, owner: str) -> None:
        contents = self._owners.pop(owner, Contents())
        if contents:
            self._digest ^= _digest(owner, contents)
        for key in _keys(contents):
            del self._present[key][owner]
            if not self._present[key]:
                del self._present[key]
                self._elements -= Counter((key[0],))


def _is_farm(owner: str) -> bool:
    """Whether an owner is a farm, by its name in nftlb. What other owners have in common, farms may refer to."""
    return owner != ENVIRONMENT and ":" not in owner


def _keys(contents: Contents) -> set[tuple[str, str]]:
    return {(entry.set, entry.key) for entry in contents.elements}


def _digest(owner: str, contents: Contents) -> int:
    text = repr((owner, sorted(contents.elements), contents.chains, contents.sets))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
