"""Addresses, as the kernel's messages have them."""

import pytest

from kube_nftlb.netfilter import rtnetlink


class Entry:
    def __init__(self, **attributes: str) -> None:
        self.get_attr = attributes.get


@pytest.mark.parametrize(
    ("entry", "own"),
    [
        pytest.param(Entry(IFA_ADDRESS="192.0.2.1", IFA_LOCAL="192.0.2.1"), "192.0.2.1", id="IPv4"),
        pytest.param(Entry(IFA_ADDRESS="2001:db8::1"), "2001:db8::1", id="IPv6"),
        pytest.param(Entry(IFA_ADDRESS="192.0.2.9", IFA_LOCAL="192.0.2.1"), "192.0.2.1", id="with a peer"),
    ],
)
def test_the_own_address_is_not_that_of_the_peer(entry: Entry, own: str) -> None:
    assert rtnetlink.own_address(entry) == own
