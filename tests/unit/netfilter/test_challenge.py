"""The packets by which clients are challenged."""

import struct
from ipaddress import ip_address

import pytest

from kube_nftlb.netfilter.challenge import packet


@pytest.mark.parametrize(
    ("server", "client", "header"), [("10.96.0.10", "10.244.1.7", 20), ("fd00:96::a", "fd00:244:1::7", 40)]
)
def test_a_packet_is_the_second_of_a_handshake_and_its_checksum_is_right(server: str, client: str, header: int) -> None:
    source, destination = (ip_address(each).packed for each in (server, client))
    made = packet((source, 80), (destination, 40000), 0xFFFFFFFF, 1)
    assert len(made) == header + 20
    assert made[header - 2 * len(source) : header] == source + destination
    from_port, to_port, sequence, acknowledged, flags = struct.unpack(">HHIIH", made[header : header + 14])
    assert (from_port, to_port, sequence, acknowledged, flags) == (80, 40000, 0xFFFFFFFF, 1, 0x5012)
    covered = source + destination + struct.pack(">II", 20, 6) + made[header:]
    total = sum(struct.unpack(f">{len(covered) // 2}H", covered))
    # The carries of a right sum are all ones (RFC 1071).
    assert (total & 0xFFFF) + (total >> 16) == 0xFFFF
