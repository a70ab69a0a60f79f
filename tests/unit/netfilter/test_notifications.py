import struct

from kube_nftlb.netfilter import notifications


def test_the_program_that_made_a_transaction_is_read() -> None:
    def message(kind: int, attributes: bytes) -> bytes:
        return struct.pack("=IHHIIBBH", 20 + len(attributes), kind, 0, 0, 0, 0, 0, 0) + attributes

    generation = struct.pack("=HHI", 8, 1, 7)
    name = struct.pack("=HH8s", 10, 3, b"nftlb\0")
    datagram = message(10 << 8 | 6, b"\0" * 40) + message(10 << 8 | 15, generation + name)
    assert notifications.programs(datagram) == ["nftlb"]
