"""Reading back from the kernel what nftlb has built, over netlink.

So the kernel is asked for one chain or one element, where libnftables would first read every chain and set there is
(measured with 1,000 farms: 0.4 ms instead of 260 ms), and there is no part in the disagreements between versions of
libnftables about each other's tables.
"""

from collections import Counter
from collections.abc import AsyncIterator
from typing import NamedTuple, Self

from kube_nftlb.netfilter import netlink
from kube_nftlb.netfilter.netlink import NetfilterSocket
from kube_nftlb.nftlb import layout
from kube_nftlb.nftlb.layout import FarmRules, IngressRules, Listener, Target

# The types of attributes, as linux/netfilter/nf_tables.h has them.
_GEN_ID = 1
_RULE_TABLE, _RULE_CHAIN, _RULE_EXPRESSIONS = 1, 2, 4
_LIST_ITEM = 1
_EXPRESSION_NAME, _EXPRESSION_DATA = 1, 2
_LOOKUP_SET = 1
_IMMEDIATE_DATA = 2
_VALUE, _VERDICT = 1, 2
_VERDICT_CHAIN = 2
_ELEMENTS_TABLE, _ELEMENTS_SET, _ELEMENTS_LIST = 1, 2, 3
_ELEMENT_KEY, _ELEMENT_DATA, _ELEMENT_EXPIRATION = 1, 2, 5


class TimedSession(NamedTuple):
    """A client as the kernel has it, the whole mark of its backend, and how many ms it is still remembered."""

    key: bytes
    mark: int
    left_ms: int


class Kernel:
    """A look at this network namespace's nftables. Use ``Kernel.open``."""

    def __init__(self, nftables: NetfilterSocket) -> None:
        self._nftables = nftables
        self._known: dict[str, dict[bytes, Listener]] = {}
        """What the elements of each map of listeners meant at the last look: most are the same at the next."""

    @classmethod
    async def open(cls) -> Self:
        """Open the socket, in the running event loop."""
        return cls(NetfilterSocket.open())

    def close(self) -> None:
        """Close the socket."""
        self._nftables.close()

    async def generation(self) -> int:
        """The number of the last nftables transaction in this network namespace, whoever made it."""
        answers = await self._nftables.ask("inet", netlink.GET_GENERATION)
        return int.from_bytes(netlink.find(answers[0], _GEN_ID) or b"", "big")

    async def rules_of(self, farm: str, family: layout.Family, wanted: frozenset[Listener]) -> FarmRules:
        """What there is of one farm. Of listeners only those that are wanted are looked for."""
        listeners = {found for listener in wanted if (found := await self._listener(family, listener))}
        scheduled: set[int] = set()
        targets: set[Target] = set()
        for expression in await self._expressions(family, layout.filter_chain(farm)):
            scheduled.update(await self._scheduled(family, expression))
        for expression in await self._expressions(family, layout.nat_chain(farm)):
            if lookup := _lookup(expression):
                async for key, data in self._values(family, lookup):
                    targets.add(layout.parse_target(key, data))
        return FarmRules(frozenset(listeners), frozenset(scheduled - {0}), frozenset(targets))

    async def full_marks(self, family: layout.Family, farm: str) -> dict[int, int]:
        """The connection marks of a farm's backends with all bits, by the part that is the backend's own."""
        marks = [
            key
            for expression in await self._expressions(family, layout.nat_chain(farm))
            if (lookup := _lookup(expression))
            async for key, _ in self._values(family, lookup)
        ]
        return {layout.parse_mark(mark): int.from_bytes(mark, "little") for mark in marks}

    async def ingress_of(self, farm: str, wanted: frozenset[Listener]) -> IngressRules:
        """What there is of one farm in the mode dsr, in the maps of the listeners that are wanted."""
        listeners = {
            layout.parse_listener(name, key, chain)
            for name in {listener.map for listener in wanted}
            async for key, chain in self._verdicts("netdev", name)
        }
        macs = {
            layout.parse_mac(data)
            for expression in await self._expressions("netdev", farm)
            if (lookup := _lookup(expression))
            async for _, data in self._values("netdev", lookup)
        }
        return IngressRules(frozenset(listeners & wanted), frozenset(macs))

    async def listeners(self, family: layout.Family) -> set[Listener]:
        """Every element of the maps of listeners."""
        found: set[Listener] = set()
        for name in layout.MAPS:
            map_ = layout.map_name(name, family)
            known = self._known.get(map_, {})
            self._known[map_] = {
                element: known.get(element) or layout.parse_listener(name, *_verdict(element))
                async for element in self._raw_elements(family, map_, layout.TABLE)
            }
            found.update(self._known[map_].values())
        return found

    async def base_rules(self, family: layout.Family) -> set[str]:
        """The maps of listeners that their base chain looks up, as it must for that map to have any effect."""
        chains = {
            chain: [_lookup(expression) for expression in await self._expressions(family, chain)]
            for chain in set(layout.BASE_CHAINS.values())
        }
        return {name for name, chain in layout.BASE_CHAINS.items() if layout.map_name(name, family) in chains[chain]}

    async def sessions(self, family: layout.Family, map_: str) -> dict[bytes, int]:
        """A farm's map of sessions: client as the kernel has it, and the mark of its backend."""
        return {key: layout.parse_mark(data) async for key, data in self._values(family, map_)}

    async def timed_sessions(self, family: layout.Family, map_: str) -> list[TimedSession]:
        """What packets have made of a farm's map of sessions."""
        return [
            TimedSession(key, int.from_bytes(mark, "little"), int.from_bytes(left, "big"))
            async for element in self._raw_elements(family, map_, layout.TABLE)
            if (mark := netlink.find(element, _ELEMENT_DATA, _VALUE)) is not None
            and (left := netlink.find(element, _ELEMENT_EXPIRATION)) is not None
            and any(left)
            and (key := netlink.find(element, _ELEMENT_KEY, _VALUE)) is not None
        ]

    async def rule_counts(self, table: str) -> Counter[str]:
        """How many rules each chain of the inet table ``table`` has; chains without rules are not told of."""
        payload = netlink.text(_RULE_TABLE, table)
        return Counter(
            [
                netlink.name(netlink.find(rule, _RULE_CHAIN))
                for rule in await self._nftables.ask("inet", netlink.GET_RULES, payload, dump=True)
                if netlink.name(netlink.find(rule, _RULE_TABLE)) == table
            ]
        )

    async def element_count(self, table: str, name: str) -> int:
        """How many elements a map or set of the inet table ``table`` has; an interval has one more for its end."""
        return sum([1 async for _ in self._raw_elements("inet", name, table)])

    async def _scheduled(self, family: layout.Family, expression: bytes) -> set[int]:
        """The marks that one expression of a farm's filter chain can give."""
        if netlink.name(netlink.find(expression, _EXPRESSION_NAME)) == "immediate":
            value = netlink.find(expression, _EXPRESSION_DATA, _IMMEDIATE_DATA, _VALUE)
            return {layout.parse_mark(value)} if value is not None else set()
        lookup = _lookup(expression)
        # Named maps are those of sessions: who is in there is no matter of the plan.
        if not lookup.startswith("__"):
            return set()
        return {layout.parse_mark(data) async for _, data in self._values(family, lookup)}

    async def _listener(self, family: layout.Family, listener: Listener) -> Listener | None:
        key = netlink.attribute(_VALUE, layout.listener_key(listener))
        element = netlink.attribute(_ELEMENT_KEY, key, nested=True)
        elements = netlink.attribute(_LIST_ITEM, element, nested=True)
        payload = _set_payload(layout.TABLE, layout.map_name(listener.map, family)) + netlink.attribute(
            _ELEMENTS_LIST, elements, nested=True
        )
        found = [
            layout.parse_listener(listener.map, *_verdict(each))
            for answer in await self._nftables.ask(family, netlink.GET_ELEMENTS, payload)
            for each in _elements_of(answer)
        ]
        return found[0] if found else None

    async def _expressions(self, family: str, chain: str, table: str = layout.TABLE) -> list[bytes]:
        payload = netlink.text(_RULE_TABLE, table) + netlink.text(_RULE_CHAIN, chain)
        return [
            expression
            for rule in await self._nftables.ask(family, netlink.GET_RULES, payload, dump=True)
            # A filter that names no chain there is gets every rule of the table.
            if netlink.name(netlink.find(rule, _RULE_CHAIN)) == chain
            and netlink.name(netlink.find(rule, _RULE_TABLE)) == table
            for _, expression in netlink.attributes(netlink.find(rule, _RULE_EXPRESSIONS) or b"")
        ]

    async def _values(self, family: str, name: str) -> AsyncIterator[tuple[bytes, bytes]]:
        """The elements of a map whose values are bytes."""
        async for element in self._raw_elements(family, name, layout.TABLE):
            # The end of a range of keys is an element of its own, with a key alone.
            data = netlink.find(element, _ELEMENT_DATA, _VALUE)
            if data is not None:
                yield netlink.find(element, _ELEMENT_KEY, _VALUE) or b"", data

    async def _verdicts(self, family: str, name: str) -> AsyncIterator[tuple[bytes, str]]:
        """The elements of a map whose values are chains to go to."""
        async for element in self._raw_elements(family, name, layout.TABLE):
            yield _verdict(element)

    async def _raw_elements(self, family: str, name: str, table: str) -> AsyncIterator[bytes]:
        payload = _set_payload(table, name)
        for answer in await self._nftables.ask(family, netlink.GET_ELEMENTS, payload, dump=True):
            for element in _elements_of(answer):
                yield element


def _set_payload(table: str, name: str) -> bytes:
    return netlink.text(_ELEMENTS_TABLE, table) + netlink.text(_ELEMENTS_SET, name)


def _elements_of(answer: bytes) -> list[bytes]:
    return [element for _, element in netlink.attributes(netlink.find(answer, _ELEMENTS_LIST) or b"")]


def _lookup(expression: bytes) -> str:
    """The set or map that an expression looks something up in; empty where it does not."""
    if netlink.name(netlink.find(expression, _EXPRESSION_NAME)) != "lookup":
        return ""
    return netlink.name(netlink.find(expression, _EXPRESSION_DATA, _LOOKUP_SET))


def _verdict(element: bytes) -> tuple[bytes, str]:
    """An element's key, and the chain that it leads to."""
    key = netlink.find(element, _ELEMENT_KEY, _VALUE) or b""
    return key, netlink.name(netlink.find(element, _ELEMENT_DATA, _VERDICT, _VERDICT_CHAIN))
