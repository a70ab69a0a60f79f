"""The agent's own table, ``inet kube-nftlb``: what nftlb has no way to say.

What all farms share is in ``BASE``; what a farm adds to it is a pure function's ``Contents``. ``OwnTable`` keeps the
contents of all owners and brings the kernel to them, each change in one transaction.
"""

import ipaddress
from collections.abc import Iterable, Mapping

from kube_nftlb import errors
from kube_nftlb.agent.nft import Nft
from kube_nftlb.agent.nftables import Chain, Contents, Element, NamedSet, State, changes, combined, creation
from kube_nftlb.api.base import Family
from kube_nftlb.nftlb import objects

TABLE = "kube-nftlb"

PRIORITY = -160
"""Before nftlb's own chains (-150), which would give the connection a mark."""

VERDICTS = "verdicts"
"""The maps from a listener to what happens to its new connections; each exists once per family, see ``listener``."""

REFUSE = "goto refuse"
"""The verdict for a connection that nobody would answer: a TCP reset, or ICMP's port unreachable."""

DROP = "drop"

RANGES = "ranges"
"""The maps from a listener to the chain that lets only some clients' connections pass; looked up before VERDICTS."""

MASQUERADE = "masquerade"
"""The maps from a listener (address and port, one map per protocol and family) to who is masqueraded on the way to its
backends; see ``masquerading``."""
ALWAYS = "goto masquerade-always"
FROM_OUTSIDE = "goto masquerade-from-outside"
"""All but this node's pods: those that backends would answer by another way."""
FROM_ITSELF = "goto masquerade-from-itself"
"""The node's own processes."""

HAIRPIN = "hairpin"
"""The sets of a backend's address twice: as client and as backend, which would never see an answer to itself."""
LOCAL_PODS = "local-pods"
"""The sets of the ranges of this node's pods."""
SERVICE_RANGES = "service-ranges"
"""The sets of the cluster's ranges for Services."""

_ADDRESS = {"ip": "ipv4_addr", "ip6": "ipv6_addr"}
_PROTOCOLS = ("tcp", "udp", "sctp")


def _base() -> Contents:
    sets: list[NamedSet] = []
    look_ups: list[str] = []
    not_served: list[str] = []
    outside: list[str] = []
    masquerading: list[str] = []
    for family, address in _ADDRESS.items():
        for name in (RANGES, VERDICTS):
            declaration = f"type inet_proto . {address} . inet_service : verdict;"
            sets.append(NamedSet(f"{name}-{family}", declaration, kind="map"))
            look_ups.append(f"ct state new meta l4proto . {family} daddr . th dport vmap @{name}-{family}")
        not_served.append(f"ct state new {family} daddr @{SERVICE_RANGES}-{family} goto refuse")
        outside.append(f"{family} saddr @{LOCAL_PODS}-{family} return")
        sets.append(NamedSet(f"{HAIRPIN}-{family}", f"type {address} . {address};"))
        masquerading.append(
            f"ct status dnat {family} saddr . {family} daddr @{HAIRPIN}-{family} goto masquerade-always"
        )
        for protocol in _PROTOCOLS:
            name = f"{MASQUERADE}-{protocol}-{family}"
            sets.append(NamedSet(name, f"type {address} . inet_service : verdict;", kind="map"))
            asked_for = f"ct original {family} daddr . ct original proto-dst"
            masquerading.append(f"ct status dnat meta l4proto {protocol} {asked_for} vmap @{name}")
    chains = (
        Chain("refuse", ("meta l4proto tcp reject with tcp reset", "reject with icmpx port-unreachable")),
        Chain("prerouting", tuple(look_ups), f"type filter hook prerouting priority {PRIORITY}; policy accept;"),
        Chain("output", tuple(look_ups), f"type filter hook output priority {PRIORITY}; policy accept;"),
        # What nobody has translated by now, nftlb or another proxy, goes to a port or an address without a service.
        Chain("forward", tuple(not_served), "type filter hook forward priority -5; policy accept;"),
        Chain("output-translated", tuple(not_served), "type filter hook output priority -90; policy accept;"),
        Chain("masquerade-always", ("masquerade fully-random",)),
        Chain("masquerade-from-outside", (*outside, "masquerade fully-random")),
        Chain("masquerade-from-itself", ("fib saddr type local masquerade fully-random",)),
        # Before nftlb's own chain (100), which masquerades connections of the mode snat.
        Chain("postrouting", tuple(masquerading), "type nat hook postrouting priority 90; policy accept;"),
        # Established connections do not survive a moment in which the network namespace has no chain of the type nat,
        # such as nftlb's start.
        Chain("keep-nat-prerouting", (), "type nat hook prerouting priority 100; policy accept;"),
        Chain("keep-nat-postrouting", (), "type nat hook postrouting priority 200; policy accept;"),
    )
    return Contents(sets=tuple(sets), chains=chains)


BASE = _base()

ENVIRONMENT = "environment"
"""The owner of what is known of the node and the cluster; no farm's name in nftlb is that of a word without dashes."""


def environment(local_pods: Mapping[Family, Iterable[str]], service_ranges: Mapping[Family, Iterable[str]]) -> Contents:
    """The ranges of this node's pods, and the cluster's ranges for Services."""
    return Contents(
        sets=tuple(
            NamedSet(f"{name}-{table}", f"type {_ADDRESS[table]}; flags interval; auto-merge;", tuple(sorted(ranges)))
            for name, by_family in ((LOCAL_PODS, local_pods), (SERVICE_RANGES, service_ranges))
            for table, ranges in (("ip", by_family.get("ipv4", ())), ("ip6", by_family.get("ipv6", ())))
        )
    )


def table_family(ip: str) -> str:
    """What nft calls the family of an address."""
    return "ip6" if ipaddress.ip_address(ip).version == 6 else "ip"


def listener(claim: objects.Claim, verdict: str, name: str = VERDICTS) -> Element:
    """What happens to new connections to a listener; ``name`` is RANGES or VERDICTS."""
    return Element(f"{name}-{table_family(claim.ip)}", f"{claim.protocol} . {claim.ip} . {claim.port}", verdict)


def masquerading(claim: objects.Claim, who: str) -> Element:
    """Who is masqueraded on the way from a listener to a backend: ALWAYS, FROM_OUTSIDE or FROM_ITSELF."""
    return Element(f"{MASQUERADE}-{claim.protocol}-{table_family(claim.ip)}", f"{claim.ip} . {claim.port}", who)


def hairpin(ip: str) -> Element:
    """A backend of this node is masqueraded when it is its own client."""
    return Element(f"{HAIRPIN}-{table_family(ip)}", f"{ip} . {ip}")


def only_refuses(contents: Contents) -> bool:
    """Whether there is nothing but listeners whose connections are refused."""
    return not (contents.chains or contents.sets) and all(entry.value == REFUSE for entry in contents.elements)


class OwnTable:
    """The table in the kernel, and what each owner is to have in it."""

    def __init__(self, nft: Nft) -> None:
        self._nft = nft
        self._owners: dict[str, Contents] = {}
        self._present: dict[tuple[str, str], dict[str, str]] = {}
        self.expect({})

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
        for owner, contents in {ENVIRONMENT: environment({}, {}), **owners}.items():
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
        values = {key: self._present[key] for key in keys if key in self._present}
        # Where several owners have one element, it is as the last of them wants it, and stays until the last has gone.
        return State({key: list(held.values())[-1] for key, held in values.items()}, own.chains, own.sets)

    def _hold(self, owner: str, contents: Contents) -> None:
        if contents:
            self._owners[owner] = contents
            for entry in contents.elements:
                self._present.setdefault((entry.set, entry.key), {})[owner] = entry.value

    def _release(self, owner: str) -> None:
        for key in _keys(self._owners.pop(owner, Contents())):
            del self._present[key][owner]
            if not self._present[key]:
                del self._present[key]


def _keys(contents: Contents) -> set[tuple[str, str]]:
    return {(entry.set, entry.key) for entry in contents.elements}
