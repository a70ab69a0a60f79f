"""The agent's own table, ``inet kube-nftlb``: what nftlb has no way to say.

What all farms share is in ``BASE``; what a farm adds to it is a pure function's ``Contents``. ``OwnTable`` keeps the
contents of all owners and brings the kernel to them, each change in one transaction.
"""

import ipaddress
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kube_nftlb import errors
from kube_nftlb.agent.nft import Nft
from kube_nftlb.agent.nftables import Chain, Contents, Element, NamedSet, State, changes, combined, creation
from kube_nftlb.nftlb import objects

TABLE = "kube-nftlb"

PRIORITY = -160
"""Before nftlb's own chains (-150), which would give the connection a mark."""

VERDICTS = "verdicts"
"""The maps from a listener to what happens to its new connections; each exists once per family, see ``listener``."""

REFUSE = "goto refuse"
"""The verdict for a connection that nobody would answer: a TCP reset, or ICMP's port unreachable."""

_LISTENER_KEY = {"ip": "inet_proto . ipv4_addr . inet_service", "ip6": "inet_proto . ipv6_addr . inet_service"}
_WHOLE_KEY = {"ip": "ipv4_addr", "ip6": "ipv6_addr"}
_LOOK_UPS = tuple(
    f"ct state new meta l4proto . {family} daddr . th dport vmap @{VERDICTS}-{family}" for family in _LISTENER_KEY
) + tuple(
    f"ct state new meta l4proto {{ tcp, udp, sctp }} {family} daddr vmap @{VERDICTS}-all-{family}"
    for family in _WHOLE_KEY
)

BASE = Contents(
    sets=tuple(
        NamedSet(f"{VERDICTS}-{family}", f"type {key} : verdict;", kind="map") for family, key in _LISTENER_KEY.items()
    )
    + tuple(
        NamedSet(f"{VERDICTS}-all-{family}", f"type {key} : verdict;", kind="map") for family, key in _WHOLE_KEY.items()
    ),
    chains=(
        Chain("refuse", ("meta l4proto tcp reject with tcp reset", "reject with icmpx port-unreachable")),
        Chain("prerouting", _LOOK_UPS, f"type filter hook prerouting priority {PRIORITY}; policy accept;"),
        Chain("output", _LOOK_UPS, f"type filter hook output priority {PRIORITY}; policy accept;"),
        # Established connections do not survive a moment in which the network namespace has no chain of the type nat,
        # such as nftlb's start.
        Chain("keep-nat-prerouting", (), "type nat hook prerouting priority 100; policy accept;"),
        Chain("keep-nat-postrouting", (), "type nat hook postrouting priority 200; policy accept;"),
    ),
)


def listener(name: str, claim: objects.Claim, value: str) -> Element:
    """An element of one of the maps that are keyed by protocol, address and port, or by the address alone."""
    family = "ip6" if ipaddress.ip_address(claim.ip).version == 6 else "ip"
    if claim.protocol == "all":
        return Element(f"{name}-all-{family}", claim.ip, value)
    return Element(f"{name}-{family}", f"{claim.protocol} . {claim.ip} . {claim.port}", value)


def farm_contents(farm: objects.Farm | None) -> Contents:
    """What a farm has in the table: where it has no usable backend, its new connections are refused.

    nftlb would let them run into a timeout.
    """
    if farm is None or any(backend.state == "up" for backend in farm.backends.values()):
        return Contents()
    return Contents(elements=frozenset(listener(VERDICTS, claim, REFUSE) for claim in farm.claims()))


def only_refuses(contents: Contents) -> bool:
    """Whether there is nothing but listeners whose connections are refused."""
    return not (contents.chains or contents.sets) and all(entry.value == REFUSE for entry in contents.elements)


class _Held(NamedTuple):
    owner: str
    value: str


class OwnTable:
    """The table in the kernel, and what each owner is to have in it."""

    def __init__(self, nft: Nft) -> None:
        self._nft = nft
        self._owners: dict[str, Contents] = {}
        self._present: dict[tuple[str, str], _Held] = {}

    @property
    def state(self) -> State:
        """All that is to be in the table."""
        return combined([BASE, *self._owners.values()])

    def owned(self, owner: str) -> Contents:
        """What an owner has."""
        return self._owners.get(owner, Contents())

    async def create(self) -> None:
        """Make the table anew, with all that it is to have, in one transaction."""
        await self._nft.run(creation(TABLE, self.state))

    def expect(self, owners: Mapping[str, Contents]) -> None:
        """These are all owners there are, and this is what they are to have; the kernel is not touched."""
        self._owners, self._present = {}, {}
        for owner, contents in owners.items():
            self._hold(owner, contents)

    async def update(self, owners: Mapping[str, Contents]) -> None:
        """Give these owners these contents, in one transaction; none is sent where nothing changes."""
        changed = {owner: new for owner, new in owners.items() if self.owned(owner) != new}
        if not changed:
            return
        keys = {key for owner in changed for key in _keys(self.owned(owner)) | _keys(owners[owner])}
        before = self._part(keys, changed)
        for owner, contents in changed.items():
            self._release(owner)
            self._hold(owner, contents)
        try:
            await self._nft.run(changes(TABLE, before, self._part(keys, changed)))
        except errors.KernelError:
            # Somebody has touched the table: the difference cannot be applied, the whole can.
            await self.create()

    def _part(self, keys: Iterable[tuple[str, str]], owners: Iterable[str]) -> State:
        """What there is under these keys, and of these owners; all others cost nothing."""
        own = combined(self._owners[owner] for owner in owners if owner in self._owners)
        return State({key: self._present[key].value for key in keys if key in self._present}, own.chains, own.sets)

    def _hold(self, owner: str, contents: Contents) -> None:
        if contents:
            self._owners[owner] = contents
            for entry in contents.elements:
                self._present[entry.set, entry.key] = _Held(owner, entry.value)

    def _release(self, owner: str) -> None:
        for key in _keys(self._owners.pop(owner, Contents())):
            # Another owner may have taken it over already.
            if key in self._present and self._present[key].owner == owner:
                del self._present[key]


def _keys(contents: Contents) -> set[tuple[str, str]]:
    return {(entry.set, entry.key) for entry in contents.elements}
