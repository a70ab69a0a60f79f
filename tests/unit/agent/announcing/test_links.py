"""The node's interfaces and addresses, as the kernel lists them; if it does not, that is an error to retry after."""

from errno import EBUSY
from typing import Any, Self

import pytest
from pyroute2.netlink.exceptions import NetlinkError

from kube_nftlb.agent.announcing.links import interfaces
from kube_nftlb.announce.ownership.interfaces import Interface, interface_of
from kube_nftlb.netfilter import rtnetlink

ETHERNET, LOOPBACK, NONE = 1, 772, 0xFFFE
UP, RUNNING = 0x1, 0x41
MAC = "02:00:00:00:00:01"


class Refusing:
    """A connection to a kernel that lists nothing."""

    def __init__(self, **_options: bool) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def get_links(self) -> Any:
        raise NetlinkError(EBUSY, "Device or resource busy")


def test_interfaces_that_the_kernel_does_not_list_are_an_error_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rtnetlink, "IPRoute", Refusing)
    with pytest.raises(OSError, match="resource busy") as caught:
        interfaces()
    assert caught.value.errno == EBUSY


class Message(dict[str, Any]):
    def __init__(self, attributes: dict[str, str], **fields: int) -> None:
        super().__init__(fields)
        self.get_attr = attributes.get


def link(index: int, name: str, kind: int, flags: int) -> Message:
    return Message({"IFLA_IFNAME": name, "IFLA_ADDRESS": MAC}, index=index, ifi_type=kind, flags=flags)


def address(index: int, own: str, length: int, peer: str = "") -> Message:
    attributes = {"IFA_ADDRESS": peer or own} | ({} if ":" in own else {"IFA_LOCAL": own})
    return Message(attributes, index=index, prefixlen=length)


class Listing(Refusing):
    """A connection to the kernel of a node with interfaces of all kinds."""

    def get_links(self) -> Any:
        kinds = [
            ("lo", LOOPBACK, RUNNING),
            ("eth0", ETHERNET, RUNNING),
            ("eth1", ETHERNET, UP),
            ("tun0", NONE, RUNNING),
        ]
        return [link(index, *each) for index, each in enumerate(kinds, 1)]

    def get_addr(self) -> Any:
        return [
            address(1, "127.0.0.1", 8),
            address(1, "192.0.2.10", 32),
            address(2, "192.0.2.1", 24),
            address(2, "192.0.2.11", 32, peer="198.51.100.1"),
            address(2, "192.0.2.2", 24, peer="192.0.2.254"),
            address(3, "2001:db8::10", 64),
            address(4, "203.0.113.1", 24, peer="203.0.113.2"),
            address(9, "203.0.113.9", 24),
        ]


def test_all_addresses_are_the_nodes_and_what_cannot_announce_has_no_mac_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rtnetlink, "IPRoute", Listing)
    found = interfaces()
    assert found == (
        Interface("eth0", MAC, ("192.0.2.1/24", "192.0.2.11/32", "192.0.2.2/24")),
        Interface("eth1", "", ("2001:db8::10/64",)),
        Interface("lo", "", ("127.0.0.1/8", "192.0.2.10/32")),
        Interface("tun0", "", ("203.0.113.1/24",)),
    )
    assert {ip: interface_of(ip, found) for ip in ("192.0.2.99", "198.51.100.1", "2001:db8::11", "203.0.113.3")} == {
        "192.0.2.99": found[0],
        **dict.fromkeys(("198.51.100.1", "2001:db8::11", "203.0.113.3")),
    }
