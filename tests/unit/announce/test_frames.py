"""ARP and NDP: what is sent is what the standards say, byte by byte, and what is read must be valid."""

import pytest

from kube_nftlb.announce.wire import arp, ndp
from kube_nftlb.announce.wire.heard import Asked, Heard, Statement
from tests.unit.announce.frames import ASKED4, ASKED6, CLIENT, CLIENT4, CLIENT6, MAC, OTHER, VIP4, VIP6

NO4, NO6 = bytes(4), bytes(16)
ALL = "ff" * 6
ARP = "0806 0001 0800 06 04"
ME, YOU, ZERO = MAC.hex(), CLIENT.hex(), "00" * 6
ASK_ARP = bytes.fromhex(f"{ALL} {CLIENT.hex()} {ARP} 0001 {CLIENT.hex()} {CLIENT4.hex()} {'00' * 6} {VIP4.hex()}")


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (arp.answer(MAC, VIP4, ASKED4), f"{YOU} {ME} {ARP} 0002 {ME} c000020a {YOU} c00002c8"),
        (arp.announcement(MAC, VIP4, reply=False), f"{ALL} {ME} {ARP} 0001 {ME} c000020a {ZERO} c000020a"),
        (arp.announcement(MAC, VIP4, reply=True), f"{ALL} {ME} {ARP} 0002 {ME} c000020a {ALL} c000020a"),
        (arp.question(MAC, VIP4), f"{ALL} {ME} {ARP} 0001 {ME} 00000000 {ZERO} c000020a"),
        (arp.question(MAC, VIP4, OTHER), f"{OTHER.hex()} {ME} {ARP} 0001 {ME} 00000000 {ZERO} c000020a"),
    ],
)
def test_an_arp_frame_has_the_bytes_of_the_standard(frame: bytes, expected: str) -> None:
    assert frame.hex() == expected.replace(" ", "")


def test_an_advertisement_has_the_bytes_of_the_standard() -> None:
    header = f"{CLIENT.hex()} {MAC.hex()} 86dd 6000 0000 0020 3a ff {VIP6.hex()} {CLIENT6.hex()}"
    frame = ndp.answer(MAC, VIP6, ASKED6).hex()
    assert frame[: -2 * 32] == header.replace(" ", "")
    assert frame[-2 * 32 :][:4] == "8800"
    assert frame[-2 * 28 :] == f"60000000{VIP6.hex()}0201{MAC.hex()}", "solicited, override, and our own address"


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (ASK_ARP, Heard(ASKED4, Statement(CLIENT4, CLIENT, to_all=True))),
        (ASK_ARP + bytes(18), Heard(ASKED4, Statement(CLIENT4, CLIENT, to_all=True))),
        (arp.question(OTHER, VIP4), Heard(Asked(VIP4, OTHER, NO4), None)),
        (arp.announcement(OTHER, VIP4, reply=False), Heard(None, Statement(VIP4, OTHER, to_all=True))),
        (arp.announcement(OTHER, VIP4, reply=True), Heard(None, Statement(VIP4, OTHER, to_all=True))),
        (arp.answer(OTHER, VIP4, ASKED4), Heard(None, Statement(VIP4, OTHER, to_all=False))),
        (ASK_ARP[:41], None),
        (ASK_ARP[:15] + b"\x06" + ASK_ARP[16:], None),
        (ASK_ARP[:22] + b"\xff" * 6 + ASK_ARP[28:], None),
        (ASK_ARP[:21] + b"\x03" + ASK_ARP[22:], None),
    ],
)
def test_arp_is_read(frame: bytes, expected: Heard | None) -> None:
    assert arp.read(frame) == expected


ASK_NDP = ndp.question(CLIENT, VIP6, CLIENT6, MAC)


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (ASK_NDP, Heard(ASKED6, Statement(CLIENT6, CLIENT, to_all=False))),
        (ASK_NDP + b"trailer", Heard(ASKED6, Statement(CLIENT6, CLIENT, to_all=False))),
        (ndp.probe(OTHER, VIP6), Heard(Asked(VIP6, OTHER, NO6), None)),
        (ndp.announcement(OTHER, VIP6), Heard(None, Statement(VIP6, OTHER, to_all=True))),
        (ndp.answer(OTHER, VIP6, ASKED6), Heard(None, Statement(VIP6, OTHER, to_all=False))),
        (ndp.answer(OTHER, VIP6, Asked(VIP6, CLIENT, NO6)), Heard(None, Statement(VIP6, OTHER, to_all=True))),
    ],
)
def test_ndp_is_read(frame: bytes, expected: Heard) -> None:
    assert ndp.read(frame) == expected


def sent_by(sender: bytes, frame: bytes) -> bytes:
    """The same frame with another address in the Ethernet header alone."""
    return frame[:6] + sender + frame[12:]


@pytest.mark.parametrize("mac", ["333300000001", "ff" * 6, ZERO, "010000000002"])
def test_what_says_that_an_address_is_at_no_host_is_not_read(mac: str) -> None:
    bad = bytes.fromhex(mac)
    for frame in (ndp.announcement(bad, VIP6), ndp.answer(bad, VIP6, ASKED6), ndp.question(bad, VIP6, CLIENT6, MAC)):
        assert ndp.read(sent_by(OTHER, frame)) is None
    for frame in (ndp.announcement(OTHER, VIP6), ndp.probe(OTHER, VIP6)):
        assert ndp.read(sent_by(bad, frame)) is None
    for frame in (arp.announcement(bad, VIP4, reply=True), arp.question(bad, VIP4)):
        assert arp.read(sent_by(OTHER, frame)) is None


HOPS, CHECKSUM, CODE, TARGET, OPTION_LENGTH = 14 + 7, 14 + 42, 14 + 41, 14 + 48, 14 + 65


@pytest.mark.parametrize("position", [HOPS, CHECKSUM, CODE, TARGET, OPTION_LENGTH])
def test_ndp_that_is_not_valid_is_not_read(position: int) -> None:
    broken = bytearray(ASK_NDP)
    broken[position] ^= 0xFF
    assert ndp.read(bytes(broken)) is None


@pytest.mark.parametrize("length", range(len(ASK_NDP)))
def test_what_is_cut_off_is_not_read(length: int) -> None:
    assert ndp.read(ASK_NDP[:length]) is None
    assert arp.read(ASK_ARP[: min(length, 41)]) is None


def test_a_solicitation_goes_to_the_group_of_its_target() -> None:
    assert ndp.group(VIP6).hex() == "ff0200000000000000000001ff0b000c"
    assert ndp.probe(MAC, VIP6)[:6].hex() == "3333ff0b000c"
