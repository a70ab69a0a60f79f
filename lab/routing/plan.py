"""The routers of a lab, their addresses and the files of FRR. Computation only."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Interface, IPv4Network, IPv6Interface, IPv6Network
from typing import Final

from kube_nftlb import errors
from lab.addresses import SEGMENT_PREFIX, Interfaces, NodePlan

MAX_ROUTERS: Final = 4
ROUTERS_ASN: Final = 65000
NODES_ASN: Final = 65001
_FIRST_INTERNAL: Final = 3
"""The number of the first router of the nodes' own AS, with which they speak iBGP."""
PASSWORD: Final = "lab"  # noqa: S105 - everybody may know it
"""Of the sessions with the first router; the others have none."""

OUTSIDE: Final = (IPv4Network("172.32.0.0/24"), IPv6Network("fd00:32::/64"))
"""The network behind the routers."""
SWITCH_OUTSIDE: Final = (IPv4Interface("172.32.0.254/24"), IPv6Interface("fd00:32::fe/64"))
CLIENT_OUTSIDE: Final = (IPv4Interface("172.32.0.200/24"), IPv6Interface("fd00:32::c8/64"))

DAEMONS: Final = ("zebra", "bfdd", "bgpd")


@dataclass(frozen=True)
class RouterPlan:
    """One router; they are counted from 1."""

    number: int

    @property
    def name(self) -> str:
        """The name of its network namespace."""
        return f"router-{self.number}"

    @cached_property
    def inside(self) -> Interfaces:
        """Its addresses on the network of the nodes."""
        host = 230 + self.number
        return IPv4Interface(f"172.31.0.{host}/{SEGMENT_PREFIX}"), IPv6Interface(f"fd00:31::{host:x}/64")

    @cached_property
    def outside(self) -> Interfaces:
        """Its addresses on the client's network."""
        return IPv4Interface(f"172.32.0.{self.number}/24"), IPv6Interface(f"fd00:32::{self.number:x}/64")

    @property
    def bfd_profile(self) -> str:
        """How often it wants packets of BFD: one of the nodes' own AS less often than nodes send them."""
        return "slow" if self.number >= _FIRST_INTERNAL else "fast"

    @property
    def asn(self) -> int:
        """The number of its AS."""
        return NODES_ASN if self.number >= _FIRST_INTERNAL else ROUTERS_ASN

    @property
    def password(self) -> str:
        """The password of its sessions; empty for none."""
        return PASSWORD if self.number == 1 else ""

    @property
    def run(self) -> str:
        """The folder of its sockets, whose paths have to be short: the lab's /run is its own."""
        return f"/run/{self.name}"


def plan_routers(count: int) -> list[RouterPlan]:
    """Return the routers of a lab. Raises LabError for an unsupported number."""
    if not 0 <= count <= MAX_ROUTERS:
        raise errors.LabError(f"a lab has up to {MAX_ROUTERS} routers, not {count}")
    return [RouterPlan(number) for number in range(1, count + 1)]


def files(router: RouterPlan, nodes: Iterable[NodePlan]) -> dict[str, str]:
    """Return FRR's configuration files by their names."""
    return {"zebra.conf": "", "bfdd.conf": _BFDD, "bgpd.conf": "\n".join(_bgpd(router, list(nodes)))}


_BFDD = """bfd
 profile fast
  receive-interval 300
  transmit-interval 300
  detect-multiplier 3
 profile slow
  receive-interval 2000
  transmit-interval 300
  detect-multiplier 3
"""


def _bgpd(router: RouterPlan, nodes: list[NodePlan]) -> Iterable[str]:
    pairs = [(str(four.ip), str(six.ip)) for four, six in (node.addresses for node in nodes)]
    neighbors = [(address, family) for pair in pairs for family, address in enumerate(pair)]
    yield f"router bgp {router.asn}"
    yield f" bgp router-id {router.inside[0].ip}"
    yield " no bgp ebgp-requires-policy"
    yield " no bgp default ipv4-unicast"
    for address, _ in neighbors:
        yield f" neighbor {address} remote-as {NODES_ASN}"
        yield f" neighbor {address} bfd profile {router.bfd_profile}"
        yield f" neighbor {address} timers connect 1"
        if router.password:
            yield f" neighbor {address} password {router.password}"
    for number, family in enumerate(("ipv4", "ipv6")):
        yield f" address-family {family} unicast"
        yield "  maximum-paths 16"
        yield "  maximum-paths ibgp 16"
        yield from (f"  neighbor {address} activate" for address, of in neighbors if of == number)
        yield " exit-address-family"
    yield ""


def command(router: RouterPlan, daemon: str, program: str, folder: str) -> tuple[str, ...]:
    """Return the command of a daemon of FRR, with its files in a folder."""
    # A daemon that starts before zebra listens tries again after seconds, and has no interfaces until then: bgpd takes
    # routes for malformed, and forgets them.
    wait = "" if daemon == "zebra" else f"until [ -S {router.run}/zserv ]; do sleep 0.05; done && "
    # FRR looks for a group that Debian's package makes when it is installed, and for root in it.
    prepare = f'mkdir -p {router.run} && mount --bind "{folder}/group" /etc/group && {wait}exec "$@"'
    own = ("--bfdctl", f"{router.run}/bfdd.sock") if daemon == "bfdd" else ()
    return (
        *("unshare", "--mount", "sh", "-c", prepare, "sh"),
        *(program, "-u", "root", "-g", "root", "-P", "0", "--log", "stdout"),
        *("-f", f"{folder}/{daemon}.conf", "-i", f"{router.run}/{daemon}.pid", "-z", f"{router.run}/zserv"),
        *("--vty_socket", router.run, *own),
    )


GROUP: Final = "root:x:0:\nfrr:x:986:\nfrrvty:x:985:root\n"
"""What FRR's daemons have as /etc/group."""
