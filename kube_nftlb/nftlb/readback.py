"""Read nftlb's rules back from the kernel, over netlink."""

from typing import NamedTuple

from kube_nftlb.netfilter import netlink, rules
from kube_nftlb.netfilter.netlink import NetfilterSocket
from kube_nftlb.netfilter.nftables.contents import ELEMENT_KEY, ELEMENTS_LIST, VALUE, elements_of, looked_up
from kube_nftlb.netfilter.readback import ELEMENT_DATA, RulesetReader, set_payload, verdict
from kube_nftlb.nftlb import encoding, layout
from kube_nftlb.nftlb.layout import FarmRules, IngressRules, MapEntry, Target

# The types of attributes, as linux/netfilter/nf_tables.h has them.
_LIST_ITEM = 1
_IMMEDIATE_DATA = 2
_ELEMENT_EXPIRATION = 5


class BaseRules(NamedTuple):
    """The rules of the chains that farms share."""

    looked_up: set[str]
    """The maps of listeners that their chain looks up."""
    others: dict[str, tuple[str, ...]]
    """The other rules of each chain, as ``layout.BASE_RULES`` has them."""


class TimedSession(NamedTuple):
    """A client as the kernel has it, the full mark of its backend, and the time until it expires, in ms."""

    key: bytes
    mark: int
    remaining_ms: int


class NftlbReader(RulesetReader):
    """Reads nftlb's rules in this network namespace. Use ``open``."""

    def __init__(self, netfilter: NetfilterSocket) -> None:
        super().__init__(netfilter)
        self._known: dict[str, dict[bytes, MapEntry]] = {}
        """The parsed elements of each map of listeners at the last read: most are the same at the next."""

    async def rules_of(self, farm: str, family: layout.TableFamily, wanted: frozenset[MapEntry]) -> FarmRules:
        """Return the rules of one farm. Only the wanted listeners are looked up."""
        listeners = {found for listener in wanted if (found := await self._listener(family, listener))}
        scheduled: set[int] = set()
        targets: set[Target] = set()
        for expression in await self.expressions(family, layout.TABLE, layout.filter_chain(farm)):
            scheduled.update(await self._scheduled(family, expression))
        for expression in await self.expressions(family, layout.TABLE, layout.nat_chain(farm)):
            if lookup := looked_up(expression):
                async for key, data in self.values(family, layout.TABLE, lookup):
                    targets.add(encoding.parse_target(key, data))
        return FarmRules(frozenset(listeners), frozenset(scheduled - {0}), frozenset(targets))

    async def full_marks(self, family: layout.TableFamily, farm: str) -> dict[int, int]:
        """Return the full connection marks of a farm's backends, by the part that tells backends apart."""
        marks = [
            key
            for expression in await self.expressions(family, layout.TABLE, layout.nat_chain(farm))
            if (lookup := looked_up(expression))
            async for key, _ in self.values(family, layout.TABLE, lookup)
        ]
        return {encoding.parse_mark(mark): int.from_bytes(mark, "little") for mark in marks}

    async def ingress_of(self, farm: str, wanted: frozenset[MapEntry]) -> IngressRules:
        """Return the rules of one farm in the mode dsr, in the maps of the wanted listeners.

        Our nftlb puts ``_`` before a chain's name that nft would not parse (docs/nftlb-defects.md, 28).
        """
        listeners = {
            encoding.parse_listener(name, key, chain.removeprefix("_"))
            for name in {listener.map for listener in wanted}
            async for key, chain in self.verdicts("netdev", layout.TABLE, name)
        }
        macs = {
            encoding.parse_mac(data)
            for chain in (farm, f"_{farm}")
            for expression in await self.expressions("netdev", layout.TABLE, chain)
            if (lookup := looked_up(expression))
            async for _, data in self.values("netdev", layout.TABLE, lookup)
        }
        return IngressRules(frozenset(listeners & wanted), frozenset(macs))

    async def listeners(self, family: layout.TableFamily) -> set[MapEntry]:
        """Return every element of the maps of listeners."""
        found: set[MapEntry] = set()
        for name in layout.MAPS:
            map_ = layout.map_name(name, family)
            known = self._known.get(map_, {})
            self._known[map_] = {
                element: known.get(element) or encoding.parse_listener(name, *verdict(element))
                async for element in self.elements(family, layout.TABLE, map_)
            }
            found.update(self._known[map_].values())
        return found

    async def base_rules(self, family: layout.TableFamily) -> BaseRules:
        """Return the rules of the chains that farms share; maps of listeners that none looks up have no effect."""
        maps = {layout.map_name(name, family): name for name in layout.MAPS}
        found = BaseRules(set(), dict.fromkeys(layout.BASE_RULES, ()))
        for chain in layout.BASE_RULES:
            async for rule in rules.read(self._netfilter, family, layout.TABLE, chain, whole=True):
                names = {maps[name] for name in map(looked_up, rule.expressions) if name in maps}
                if looked := {name for name in names if layout.BASE_CHAINS[name] == chain}:
                    found.looked_up.update(looked)
                else:
                    found.others[chain] += ("; ".join(name for name, _ in rule.named),)
        return found

    async def sessions(self, family: layout.TableFamily, map_: str) -> dict[bytes, int]:
        """Return a map of sessions: clients as the kernel has them, and the marks of their backends."""
        return {key: encoding.parse_mark(data) async for key, data in self.values(family, layout.TABLE, map_)}

    async def timed_sessions(self, family: layout.TableFamily, map_: str) -> list[TimedSession]:
        """Return the sessions that packets have added to a map."""
        return [
            TimedSession(key, int.from_bytes(mark, "little"), int.from_bytes(expiry, "big"))
            async for element in self.elements(family, layout.TABLE, map_)
            if (mark := netlink.find(element, ELEMENT_DATA, VALUE)) is not None
            and (expiry := netlink.find(element, _ELEMENT_EXPIRATION)) is not None
            and any(expiry)
            and (key := netlink.find(element, ELEMENT_KEY, VALUE)) is not None
        ]

    async def _scheduled(self, family: layout.TableFamily, expression: bytes) -> set[int]:
        """Return the marks that one expression of a farm's filter chain can set."""
        if rules.name_of(expression) == "immediate":
            value = netlink.find(rules.data_of(expression), _IMMEDIATE_DATA, VALUE)
            return {encoding.parse_mark(value)} if value is not None else set()
        lookup = looked_up(expression)
        # Named maps hold sessions, which are no part of the expected rules.
        if not lookup.startswith("__"):
            return set()
        return {encoding.parse_mark(data) async for _, data in self.values(family, layout.TABLE, lookup)}

    async def _listener(self, family: layout.TableFamily, listener: MapEntry) -> MapEntry | None:
        key = netlink.attribute(VALUE, encoding.listener_key(listener))
        element = netlink.attribute(ELEMENT_KEY, key, nested=True)
        elements = netlink.attribute(_LIST_ITEM, element, nested=True)
        payload = set_payload(layout.TABLE, layout.map_name(listener.map, family)) + netlink.attribute(
            ELEMENTS_LIST, elements, nested=True
        )
        found = [
            encoding.parse_listener(listener.map, *verdict(each))
            for answer in await self._netfilter.ask(family, netlink.GET_ELEMENTS, payload)
            for each in elements_of(answer)
        ]
        return found[0] if found else None
