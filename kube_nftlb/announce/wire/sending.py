"""The frames that are sent without being asked: announcements, probes, questions. Pure; times are monotonic seconds."""

from functools import lru_cache
from ipaddress import ip_address
from typing import Final, NamedTuple

from kube_nftlb.announce.wire import arp, ndp
from kube_nftlb.announce.wire.heard import is_host
from kube_nftlb.announce.wire.messages import Peer, Place
from kube_nftlb.announce.wire.pacing import Pacer, Urgency

ANNOUNCE_S: Final = (0.0, 0.2, 1.0)
PROBE_S: Final = (0.0, 0.05, 0.1)
"""As many as RFC 5227 has, in less time: who has the address is noticed afterwards too, and its clients wait."""
IPV4_BYTES: Final = 4


class LinkAddresses(NamedTuple):
    """What a link has of its own."""

    mac: bytes
    source: bytes = b""
    """Its link-local IPv6 address; empty if there is none."""


# Each state has hundreds of addresses, nearly all of which the one before had, and clients wait while it is read.
@lru_cache(maxsize=1 << 14)
def packed(ip: str) -> bytes:
    """Return an address as it is in frames. Raises ValueError."""
    return ip_address(ip).packed


def mac_text(mac: bytes) -> str:
    """Return a link-layer address as people write it."""
    return mac.hex(":")


@lru_cache(maxsize=1 << 10)
def mac_bytes(text: str) -> bytes:
    """Return a link-layer address of a host as it is in frames. Raises ValueError."""
    mac = bytes.fromhex(text.replace(":", ""))
    if not is_host(mac):
        raise ValueError(f"{text!r} is no Ethernet address of a host")
    return mac


class Sending:
    """The links that can be used, and what waits to be sent on each."""

    def __init__(self) -> None:
        self.links: dict[str, LinkAddresses] = {}
        self._pacers: dict[str, Pacer] = {}

    def set_link(self, link: str, addresses: LinkAddresses | None) -> bool:
        """Take the addresses of a link; None if it cannot be used. Return whether all must be announced again."""
        before = self.links.pop(link, None)
        if addresses is None:
            self._pacers.pop(link, None)
            return False
        self.links[link] = addresses
        if before is not None and before.mac == addresses.mac:
            return False
        self._pacers[link] = Pacer()
        return True

    def is_own(self, mac: bytes) -> bool:
        """Return whether a link-layer address is one of this node's."""
        return any(link.mac == mac for link in self.links.values())

    def announce(self, place: Place, now: float) -> None:
        """Say that the address is here, three times within a second."""
        if (own := self.links.get(place.link)) is None:
            return
        ip = packed(place.ip)
        for number, after in enumerate(ANNOUNCE_S):
            if len(ip) == IPV4_BYTES:
                frame = arp.announcement(own.mac, ip, reply=number == 1)
            else:
                frame = ndp.announcement(own.mac, ip)
            urgency = Urgency.REPEAT if number else Urgency.TAKE
            self._pacers[place.link].add(place, frame, now + after, urgency)

    def probe(self, place: Place, now: float) -> None:
        """Ask whether anybody has the address, three times."""
        if (own := self.links.get(place.link)) is None:
            return
        frame = _question(own.mac, packed(place.ip))
        for after in PROBE_S:
            self._pacers[place.link].add(place, frame, now + after, Urgency.ASK)

    def can_ask(self, peer: Peer) -> bool:
        """Return whether another node can be asked whether it has an address: IPv6 takes an address of our own."""
        own = self.links.get(peer.link)
        return own is not None and (bool(own.source) or len(packed(peer.ip)) == IPV4_BYTES)

    def ask(self, peer: Peer, now: float, urgency: Urgency) -> None:
        """Ask another node whether it has the address."""
        if not self.can_ask(peer):
            return
        own, ip, mac = self.links[peer.link], packed(peer.ip), mac_bytes(peer.mac)
        ipv4 = len(ip) == IPV4_BYTES
        frame = arp.question(own.mac, ip, mac) if ipv4 else ndp.question(own.mac, ip, own.source, mac)
        self._pacers[peer.link].add(peer, frame, now, urgency)

    def ask_all(self, peer: Peer, now: float) -> None:
        """Ask all hosts who has the address, in doubt whether the node is there that is watched."""
        if (own := self.links.get(peer.link)) is not None:
            self._pacers[peer.link].add(peer, _question(own.mac, packed(peer.ip)), now, Urgency.WATCH)

    def cancel(self, place: Place) -> None:
        """Send nothing of what waits for this address."""
        if (pacer := self._pacers.get(place.link)) is not None:
            pacer.cancel(place)

    def waits(self, place: Place | Peer) -> bool:
        """Return whether something waits to be sent for this address, or its link cannot be used."""
        pacer = self._pacers.get(place.link)
        return pacer is None or pacer.waits(place)

    def due(self, now: float) -> list[tuple[str, bytes]]:
        """Return the frames to send now, with their links."""
        return [(link, frame) for link, pacer in self._pacers.items() for frame in pacer.due(now)]

    def wake(self) -> float | None:
        """Return when the next frame may be sent; None if there is none."""
        return min((at for pacer in self._pacers.values() if (at := pacer.wake()) is not None), default=None)


def _question(mac: bytes, ip: bytes) -> bytes:
    return arp.question(mac, ip) if len(ip) == IPV4_BYTES else ndp.probe(mac, ip)
