"""Decide which farm owns a listener that several farms want. Pure: the operator and all agents reach the same verdict.

Each listener is judged by itself: of the farms that want it, the one of the lowest ``rank`` owns it, and the others
serve without it. Two listeners overlap although they differ if

- one of them is a whole address (protocol All), and the other a port of that address: either the whole address is
  owned, or none of it by that farm;
- one of them is a node port, and the other the same port of a node's address.
"""

import bisect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any, NamedTuple, Self, TypeVar

from kube_nftlb.api.farm import Farm
from kube_nftlb.api.listeners import ALL_PORTS, Listener, listeners_of, node_ports

Rank = tuple[bool, bool, float, str, str]
_K = TypeVar("_K")


class FarmKey(NamedTuple):
    """The identity of a farm."""

    namespace: str
    name: str

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Self:
        """Return the identity of a farm object."""
        return cls(raw["metadata"]["namespace"], raw["metadata"]["name"])


class Conflict(NamedTuple):
    """A listener that a farm wants and does not get."""

    winner: FarmKey
    listener: Listener
    """The listener of the winner; it overlaps the lost one."""
    lost: Listener


class Loss(NamedTuple):
    """The conflicts that a farm loses, at least one."""

    conflicts: tuple[Conflict, ...]
    everything: bool
    """True if no listener is left."""

    @property
    def listeners(self) -> frozenset[Listener]:
        """The listeners that the farm does not get."""
        return frozenset(conflict.lost for conflict in self.conflicts)


def lost_listeners(loss: Loss | None) -> frozenset[Listener]:
    """Return the listeners that a farm does not get; ``loss`` is None if it loses none."""
    return loss.listeners if loss is not None else frozenset()


class _Contender(NamedTuple):
    """A farm that is to have a listener; of those for one listener the lowest wins."""

    rank: Rank
    listener: Listener
    key: FarmKey


class _Address(NamedTuple):
    """The owner of an address as a whole, or the contender for a port of it because of which there is none."""

    owner: _Contender | None = None
    obstacle: _Contender | None = None


_key_of = attrgetter("key")
_NOBODY = _Address()
_MANY = 32


def farm_key(farm: Farm) -> FarmKey:
    """Return the identity of a farm object."""
    return FarmKey(farm.metadata.namespace, farm.metadata.name)


def rank(farm: Farm, *, chosen: bool = False) -> Rank:
    """Return a sort key for a listener of a farm; the lowest wins. ``chosen`` is True for one on an external IP.

    Farms of a Service or route come before hand-written ones, then listeners on other addresses before those on
    external IPs, then older farms, then by name. The age of a Service's farm is that of the Service: it may have to be
    made anew.

    Anyone who may write a Service can choose its external IPs. If they ranked by age alone, one could squat on an
    address that another Service is about to be assigned.
    A farm belongs to a Service or route if its controller ownerReference says so; the operator removes that reference
    from farms that it did not create. A farm without a creationTimestamp counts as the youngest.
    """
    owned = farm.metadata.has_source
    created = farm.metadata.creation_timestamp
    if owned and farm.spec.service_creation_timestamp is not None:
        created = farm.spec.service_creation_timestamp
    age = created.timestamp() if created is not None else float("inf")
    return (not owned, chosen, age, farm.metadata.namespace, farm.metadata.name)


class Conflicts:
    """The conflicts among all farms, updated one farm at a time.

    A change looks at the farm's own listeners; only a new owner of a listener concerns the other farms that want it.
    """

    def __init__(self) -> None:
        """Start without farms, and without nodes."""
        self._of_farms: dict[FarmKey, tuple[_Contender, ...]] = {}
        self._at: dict[Listener, list[_Contender]] = {}
        """The contenders for each listener, the winner first."""
        self._ports_on: dict[str, list[_Contender]] = {}
        """The contenders for ports of each address, the lowest first."""
        self._nodes: dict[str, str] = {}
        """The name that ``listeners.node_ports`` has for the addresses of nodes, by address."""
        self._named_nodes: dict[str, str] = {}
        """Those of them that a farm names."""
        self._local: dict[str, tuple[str, ...]] = {}
        """The addresses of this node, by the same name."""
        self._losses: dict[FarmKey, Loss | None] = {}
        """The losses of farms with many listeners, if they were asked for and have not changed since."""

    def put(self, farm: Farm) -> set[FarmKey]:
        """Add or replace a farm. Return the other farms whose verdict may have changed."""
        ranks = {chosen: rank(farm, chosen=chosen) for chosen in (False, True)}
        kinds: dict[Listener, bool] = {}
        for address, listener in listeners_of(farm):
            kinds[listener] = kinds.get(listener, True) and address.type == "ExternalIP"
        key = farm_key(farm)
        return self._change(key, tuple(_Contender(ranks[chosen], listener, key) for listener, chosen in kinds.items()))

    def remove(self, key: FarmKey) -> set[FarmKey]:
        """Remove a farm. Return the other farms whose verdict may have changed."""
        return self._change(key, ())

    def set_nodes(self, everywhere: Collection[str], here: Collection[str] = ()) -> set[FarmKey]:
        """Set the addresses of all nodes, and those of this node on which node ports listen.

        Return the farms whose verdict may have changed by that.
        """
        ips = {*everywhere, *here}
        affected = self.move_nodes(self._nodes.keys() - ips, ips - self._nodes.keys())
        local = {name: tuple(ip for ip in here if _node_ports_at(ip) == name) for name in map(_node_ports_at, here)}
        if local != self._local:
            affected.update(contender.key for name in local.keys() | self._local.keys() for contender in self._on(name))
            self._local = local
        self._forget(affected)
        return affected

    def move_nodes(self, gone: Iterable[str], come: Iterable[str]) -> set[FarmKey]:
        """Change the addresses of nodes. Return the farms whose verdict may have changed by that."""
        changed = set[str]()
        for ip in gone:
            changed.add(ip)
            self._nodes.pop(ip, None)
            self._named_nodes.pop(ip, None)
        for ip in come:
            changed.add(ip)
            self._nodes[ip] = name = _node_ports_at(ip)
            if self._is_named(ip):
                self._named_nodes[ip] = name
        affected = {contender.key for ip in changed for contender in self._on(ip)}
        self._forget(affected)
        return affected

    def get(self, key: FarmKey) -> Loss | None:
        """Return what a farm loses, or None if it gets all of its listeners, or is unknown."""
        contenders = self._of_farms.get(key, ())
        if len(contenders) < _MANY:
            return self._loss(contenders)
        if key not in self._losses:
            self._losses[key] = self._loss(contenders)
        return self._losses[key]

    def contenders(self, ip: str) -> set[FarmKey]:
        """Return the farms that want an address, or ports of it."""
        return {contender.key for contender in self._on(ip)}

    def owner(self, listener: Listener) -> FarmKey | None:
        """Return the farm that has a listener, or its address as a whole; None if none has."""
        address = self._address(listener.ip)
        if address.owner is None and not self._wanting(listener):
            return None
        return self._owner(listener, address).key

    def _loss(self, contenders: tuple[_Contender, ...]) -> Loss | None:
        lost: list[Conflict] = []
        won = 0
        addresses = _Cached(self._address)
        for _, listener, key in contenders:
            local = self._local.get(listener.ip)
            everywhere = self._owner(listener, addresses[listener.ip])
            # On this node a node port is a listener on each of its addresses.
            for each in [listener._replace(ip=ip) for ip in local] if local else (listener,):
                own = everywhere if everywhere.key != key or not local else self._owner(each, addresses[each.ip])
                if own.key == key:
                    won += 1
                else:
                    lost.append(Conflict(own.key, own.listener, each))
        return Loss(tuple(lost), not won) if lost else None

    def _owner(self, listener: Listener, address: _Address) -> _Contender:
        """Return who has a listener that somebody wants, or what keeps a whole address from its contenders."""
        if (whole := address.owner or (address.obstacle if listener.port == ALL_PORTS else None)) is not None:
            return whole
        return min(contenders[0] for contenders in self._wanting(listener))

    def _address(self, ip: str) -> _Address:
        wholes = [contenders[0] for contenders in self._wanting(Listener(ip, "All", ALL_PORTS))]
        if not wholes:
            return _NOBODY
        ports = [
            contenders[0] for each in (ip, self._nodes.get(ip)) if each and (contenders := self._ports_on.get(each))
        ]
        if ports and min(ports) < min(wholes):
            return _Address(obstacle=min(ports))
        return _Address(owner=min(wholes))

    def _wanting(self, listener: Listener) -> list[list[_Contender]]:
        """Return the contenders for a listener, and for a node port that overlaps it."""
        found = [contenders] if (contenders := self._at.get(listener)) else []
        if (nodes := self._nodes.get(listener.ip)) and (contenders := self._at.get(listener._replace(ip=nodes))):
            found.append(contenders)
        return found

    def _on(self, ip: str) -> Iterator[_Contender]:
        """Yield all contenders on an address."""
        yield from self._ports_on.get(ip, ())
        yield from self._at.get(Listener(ip, "All", ALL_PORTS), ())

    def _change(self, key: FarmKey, contenders: tuple[_Contender, ...]) -> set[FarmKey]:
        """Replace the contenders of a farm. Return the other farms whose verdict may have changed."""
        old = self._of_farms.get(key, ())
        if old == contenders:
            return set()
        wanted = {contender.listener for contender in (*old, *contenders)}
        listeners = set(self._overlapping(wanted | {listener.whole_address for listener in wanted}))
        before = self._owners(listeners)
        self._replace(key, old, contenders)
        after = self._owners(listeners)
        affected = {key}
        for what, owner in after.items():
            if owner != before[what]:
                affected.update(self._concerned(what))
        self._forget(affected)
        affected.discard(key)
        return affected

    def _replace(self, key: FarmKey, old: tuple[_Contender, ...], new: tuple[_Contender, ...]) -> None:
        for contender in old:
            _take_out(self._at, contender.listener, contender)
            if contender.listener.port != ALL_PORTS:
                _take_out(self._ports_on, contender.listener.ip, contender)
        for contender in new:
            bisect.insort(self._at.setdefault(contender.listener, []), contender)
            if contender.listener.port != ALL_PORTS:
                bisect.insort(self._ports_on.setdefault(contender.listener.ip, []), contender)
        for ip in {contender.listener.ip for contender in (*old, *new)} & self._nodes.keys():
            self._named_nodes.pop(ip, None)
            if self._is_named(ip):
                self._named_nodes[ip] = self._nodes[ip]
        self._of_farms.pop(key, None)
        if new:
            self._of_farms[key] = new

    def _is_named(self, ip: str) -> bool:
        return next(self._on(ip), None) is not None

    def _overlapping(self, listeners: Iterable[Listener]) -> Iterator[Listener]:
        """Yield listeners, and for node ports also those of the nodes' addresses that farms name."""
        for listener in listeners:
            yield listener
            yield from (listener._replace(ip=ip) for ip, name in self._named_nodes.items() if name == listener.ip)

    def _owners(self, listeners: Collection[Listener]) -> dict[Listener | str, tuple[FarmKey, Listener] | None]:
        """Return who has each listener that somebody wants, and each of their addresses as a whole."""
        addresses = _Cached(self._address)
        found: dict[Listener | str, _Contender | None] = {
            each: self._owner(each, addresses[each.ip]) if self._wanting(each) else None for each in listeners
        }
        found |= {ip: addresses[ip].owner for ip in {each.ip for each in listeners}}
        return {
            what: (contender.key, contender.listener) if contender is not None else None
            for what, contender in found.items()
        }

    def _concerned(self, what: Listener | str) -> Iterator[FarmKey]:
        """Yield the farms that want a listener, or anything on an address."""
        ip = what if isinstance(what, str) else what.ip
        for each in (ip, self._nodes.get(ip)):
            if each is not None:
                found = self._on(each) if isinstance(what, str) else self._at.get(what._replace(ip=each), ())
                yield from map(_key_of, found)

    def _forget(self, keys: set[FarmKey]) -> None:
        # Either may be thousands.
        for key in keys if len(keys) < len(self._losses) else self._losses.keys() & keys:
            self._losses.pop(key, None)


class _Cached(dict[str, _Address]):
    """Addresses that are looked at once."""

    def __init__(self, look: Callable[[str], _Address]) -> None:
        super().__init__()
        self._look = look

    def __missing__(self, ip: str) -> _Address:
        self[ip] = found = self._look(ip)
        return found


def _node_ports_at(ip: str) -> str:
    return node_ports("ipv6" if ":" in ip else "ipv4")


def _take_out(where: dict[_K, list[_Contender]], under: _K, contender: _Contender) -> None:
    contenders = where[under]
    del contenders[bisect.bisect_left(contenders, contender)]
    if not contenders:
        del where[under]
