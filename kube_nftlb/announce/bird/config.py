"""The configuration of BIRD 2 on one node. Pure."""

import hashlib
import ipaddress
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from kube_nftlb.announce.bgp.routes import PROTOCOL, Metric
from kube_nftlb.announce.bird.files import detection_line, password_pattern
from kube_nftlb.api.address_pool import PoolRanges
from kube_nftlb.api.address_ranges import AddressRange
from kube_nftlb.api.bgp_peer import BGPPeer
from kube_nftlb.environment import IpNetwork

_GRACEFUL_SHUTDOWN: Final = (65535, 0)
"""RFC 8326: routers are to prefer others."""
_FAMILIES: Final = (4, 6)
_NONE: Final[Mapping[str, int]] = MappingProxyType({})


class Node(NamedTuple):
    """What a configuration depends on, beside peers and pools."""

    name: str
    ipv4: str
    """Its internal address, if it has one: it identifies the node among routers."""
    table: int


def render(
    node: Node, peers: Iterable[BGPPeer], pools: Sequence[PoolRanges], intervals_ms: Mapping[str, int] = _NONE
) -> str:
    """Return the configuration for a node, with these peers, and the pools that say more of their routes.

    ``intervals_ms`` are those of BFD that were negotiated, by the routers' addresses: routers may ask for longer ones.
    """
    peers = sorted(peers, key=lambda each: each.metadata.name)
    lines = [
        f"# Written by kube-nftlb's agent on {node.name}, and again whenever it changes.",
        detection_line(max((_detection_ms(peer, intervals_ms) for peer in peers), default=0)),
        "log stderr { info, remote, warning, error, auth, fatal, bug };",
        f"router id {node.ipv4 or _number(node.name)};",
        # How long a BIRD that was restarted waits for its peers before it tells them that it has told all.
        "graceful restart wait 5;",
        "protocol device {}",
        "protocol bfd {}",
        *(line for family in _FAMILIES for line in _table(family, node.table)),
    ]
    for peer in peers:
        lines += _peer(peer, pools)
    return "\n".join(lines) + "\n"


def protocol_name(peer: str) -> str:
    """Return BIRD's name for a peer, whose own may be longer than BIRD allows."""
    return f"peer_{hashlib.sha256(peer.encode()).hexdigest()[:16]}"


def _detection_ms(peer: BGPPeer, intervals_ms: Mapping[str, int]) -> int:
    bfd = peer.spec.bfd
    return max(bfd.interval_ms, intervals_ms.get(peer.spec.address, 0)) * bfd.multiplier if bfd else 0


def _number(name: str) -> str:
    """Return a router ID for a node without an IPv4 address."""
    return str(ipaddress.IPv4Address(zlib.crc32(name.encode()) or 1))


def _table(family: int, number: int) -> Iterator[str]:
    # The kernel tells of changes at once; the scan is for those that got lost.
    yield f"protocol kernel addresses{family} {{"
    yield f"  kernel table {number}; learn; scan time 20;"
    yield f"  ipv{family} {{ import filter {{ if krt_source = {PROTOCOL} then accept; reject; }}; export none; }};"
    yield "}"


def _peer(peer: BGPPeer, pools: Sequence[PoolRanges]) -> Iterator[str]:
    spec, name = peer.spec, protocol_name(peer.metadata.name)
    family = ipaddress.ip_address(spec.address).version
    yield f"# NftlbBGPPeer {peer.metadata.name}"
    yield f"filter to_{name} {{"
    yield f'  if proto != "addresses{family}" then reject;'
    for each in pools:
        yield from _pool(each, family)
    yield from (f"  {_add(each)}" for each in spec.communities)
    gone = "bgp_community.add(({}, {}));".format(*_GRACEFUL_SHUTDOWN)
    yield f"  if krt_metric = {int(Metric.GOES)} then {{ {gone} bgp_local_pref = 0; }}"
    yield "  accept;"
    yield "}"
    yield f"protocol bgp {name} {{"
    yield f"  local as {spec.my_asn};"
    yield f"  neighbor {spec.address} port {spec.port} as {spec.asn};"
    # BIRD would take a router of the same AS for one that is several hops away, and BFD then is another protocol.
    yield "  direct;"
    yield f"  hold time {spec.hold_time};"
    yield "  connect delay time 1; connect retry time 5; error wait time 1, 5;"
    yield "  graceful restart on;"
    if spec.bfd is not None:
        interval = f"interval {spec.bfd.interval_ms} ms"
        yield f"  bfd {{ {interval}; idle tx interval 1 s; multiplier {spec.bfd.multiplier}; }};"
    if spec.password_key:
        # What is included takes this back.
        yield "  disabled;"
        yield f'  description "the Secret has no usable password at {spec.password_key}";'
        yield f'include "{password_pattern(spec.password_key)}";'
    yield f"  ipv{family} {{ import none; export filter to_{name}; next hop self; }};"
    yield "}"


def _pool(of_pool: PoolRanges, family: int) -> Iterator[str]:
    pool, ranges = of_pool
    bgp = pool.spec.announce.bgp
    if bgp is None or not (bgp.communities or bgp.local_pref is not None):
        return
    prefixes = [f"{network}+" for each in ranges for network in _networks(each) if network.version == family]
    if not prefixes:
        return
    actions = [_add(each) for each in bgp.communities]
    if bgp.local_pref is not None:
        actions.append(f"bgp_local_pref = {bgp.local_pref};")
    yield f"  # NftlbAddressPool {pool.metadata.name}"
    yield f"  if net ~ [ {', '.join(prefixes)} ] then {{ {' '.join(actions)} }}"


def _networks(each: AddressRange) -> Iterator[IpNetwork]:
    first, _, last = str(each).partition("-")
    return ipaddress.summarize_address_range(ipaddress.ip_address(first), ipaddress.ip_address(last or first))


def _add(community: str) -> str:
    numbers = community.split(":")
    kind = "bgp_community" if len(numbers) == 2 else "bgp_large_community"
    return f"{kind}.add(({', '.join(str(int(each)) for each in numbers)}));"
