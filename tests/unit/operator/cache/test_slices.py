"""What is taken for an address."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_nftlb.operator.cache.slices import canonical_ip


@given(st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,3}){2,4}", fullmatch=True) | st.ip_addresses(v=4).map(str) | st.text())
def test_an_ipv4_address_is_what_the_standard_library_takes_for_one(text: str) -> None:
    try:
        address = ipaddress.IPv4Address(text)
    except ValueError:
        assert canonical_ip(text, "ipv4") is None
    else:
        connectable = not address.is_unspecified and not address.is_multicast and text != "255.255.255.255"
        assert canonical_ip(text, "ipv4") == (str(address) if connectable else None)
    assert canonical_ip(text, "ipv6") is None or ":" in text


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("2001:DB8:0::1", "2001:db8::1"),
        ("::", None),
        ("ff02::1", None),
        ("fe80::1%eth0", None),
        ("::ffff:10.0.0.1", None),
        ("2001:db8::g", None),
    ],
)
def test_an_ipv6_address_is_written_in_one_way(text: str, canonical: str | None) -> None:
    assert canonical_ip(text, "ipv6") == canonical
    assert canonical_ip(text, "ipv4") is None
