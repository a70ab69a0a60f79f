"""An address is announced on the link whose subnet has it."""

import ipaddress
from typing import Any

import pytest

from kube_nftlb.announce.ownership.interfaces import Interface, interface_of

MAC = "02:00:00:00:00:01"
HERE = (
    Interface("lo", "", ("127.0.0.1/8", "::1/128")),
    Interface("eth0", MAC, ("192.0.2.1/24", "2001:db8::1/64", "fe80::1/64")),
    Interface("eth1", MAC, ("198.51.100.1/25", "192.0.2.129/28")),
    Interface("cni0", MAC, ("10.244.1.1/24",)),
    Interface("vip0", MAC, ("203.0.113.1/32",)),
    Interface("tun0", "", ("203.0.113.2/24",)),
)


@pytest.mark.parametrize(
    ("ip", "allowed", "expected"),
    [
        ("192.0.2.10", (), "eth0"),
        ("192.0.2.130", (), "eth1"),
        ("192.0.2.130", ("eth0",), "eth0"),
        ("198.51.100.7", (), "eth1"),
        ("198.51.100.7", ("eth*",), "eth1"),
        ("198.51.100.7", ("bond*",), None),
        ("198.51.100.200", (), None),
        ("2001:db8::a", (), "eth0"),
        ("2001:db8:1::a", (), None),
        ("203.0.113.1", (), None),
    ],
)
def test_the_link_is_the_one_whose_subnet_has_the_address(
    ip: str, allowed: tuple[str, ...], expected: str | None
) -> None:
    found = interface_of(ip, HERE, allowed)
    assert (found.name if found else None) == expected


def test_the_subnets_of_an_interface_are_read_once_for_all_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []
    ip_network = ipaddress.ip_network

    def noted(address: str, *, strict: bool) -> Any:
        read.append(address)
        return ip_network(address, strict=strict)

    monkeypatch.setattr(ipaddress, "ip_network", noted)
    bond = Interface("bond0", MAC, ("192.0.2.65/26", "2001:db8:2::1/64"))
    assert {interface_of(f"192.0.2.{number}", [bond]) for number in range(66, 120)} == {bond}
    assert sorted(read) == sorted(bond.addresses)
