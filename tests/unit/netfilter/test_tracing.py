import struct

from kube_nftlb.netfilter.netlink import attribute, text
from kube_nftlb.netfilter.tracing import events, table
from kube_nftlb.netfilter.tracing.events import Addresses, Event
from kube_nftlb.netfilter.tracing.packets import Packets

IPV4 = bytes.fromhex("4500003c1c464000400600000af401020a60000a")
IPV6 = bytes.fromhex("6000000000280640") + bytes.fromhex(
    "fd0001000000000000000000000000aafd0000960000000000000000000000bb"
)
TCP = struct.pack(">HH", 37392, 80)
DROP, GOTO = 0, -4


def message(family: int, *attributes: bytes, kind: int = events.NEW_TRACE) -> bytes:
    payload = b"".join(attributes)
    return struct.pack("=IHHIIBBH", 20 + len(payload), kind, 0, 0, 0, family, 0, 0) + payload


def number(kind: int, value: int, size: int = 4) -> bytes:
    return attribute(kind, value.to_bytes(size, "big"))


def verdict(code: int, chain: str = "") -> bytes:
    return attribute(5, attribute(1, struct.pack(">i", code)) + (text(2, chain) if chain else b""), nested=True)


def named(table_: str, chain: str) -> bytes:
    return text(1, table_) + text(2, chain) + number(6, 7)


def test_rules_policies_and_the_ends_of_chains_are_told_apart() -> None:
    datagram = (
        message(2, named("nftlb", "filter"), number(4, 3), number(3, 4, 8), verdict(GOTO, "filter-web"))
        + message(2, number(4, 3), kind=10 << 8 | 6)
        + message(1, named("kube-nftlb", "refuse"), number(4, 3), number(3, 9, 8), verdict(DROP))
        + message(10, named("nftlb", "filter"), number(4, 1), number(16, 1))
    )
    assert list(events.parse(datagram)) == [
        Event(7, "ip", "nftlb", "filter", "rule", "goto", "filter-web", 4),
        Event(7, "inet", "kube-nftlb", "refuse", "rule", "drop", "", 9),
        Event(7, "ip6", "nftlb", "filter", "policy", "accept"),
    ]


def test_addresses_are_read_in_both_families() -> None:
    (four,) = events.parse(message(1, named("t", "c"), number(4, 3), attribute(8, IPV4), attribute(9, TCP)))
    (six,) = events.parse(message(1, named("t", "c"), number(4, 3), attribute(8, IPV6), attribute(9, TCP)))
    assert four.addresses == Addresses("10.244.1.2", 37392, "10.96.0.10", 80)
    assert six.addresses == Addresses("fd00:100::aa", 37392, "fd00:96::bb", 80)


def test_a_queue_is_recognized_by_the_lower_bits() -> None:
    (event,) = events.parse(message(1, named("t", "c"), number(4, 3), verdict(5 << 16 | 3)))
    assert event.verdict == "queue"


TRACE = table.name(1)


OTHER_TRACE = table.name(2)


def first(id_: int, port: int, own: str = TRACE, client: str = "c") -> Event:
    return Event(id_, "inet", own, "first", "rule", "continue", "", 7, Addresses(client, port, "v", 80))


def test_the_packets_of_a_trace_are_told_apart_though_the_kernel_uses_their_ids_again() -> None:
    packets = Packets(TRACE)
    for event in (
        first(1, 1000),
        Event(1, "inet", TRACE, "state", "rule", "goto", table.STATE_NEW, 9),
        first(2, 2000),
        # On its way to another interface, a packet gets another id.
        Event(3, "ip", "nftlb", "postrouting", "rule", "accept", "", 14, Addresses("c", 2000, "b", 8080)),
        Event(3, "inet", TRACE, table.SENT_ON, "rule", "continue", "", 0, Addresses("n", 4000, "b", 8080)),
        Event(1, "inet", "kube-nftlb", "refuse", "rule", "drop", "", 2),
        first(1, 3000),
    ):
        packets.add(event)
    assert [each.addresses.source_port for each in packets.all] == [1000, 2000, 3000]
    assert [len(each.events) for each in packets.all] == [3, 3, 1]
    assert [each.ended for each in packets.all] == [True, True, False]
    assert [each.opens for each in packets.all] == [True, True, True]


def test_what_is_no_packets_is_ignored() -> None:
    packets = Packets(TRACE)
    packets.add(Event(1, "ip", "nftlb", "filter", "policy", "accept"))
    assert packets.all == []


def test_packets_of_another_trace_are_not_of_this_one() -> None:
    packets = Packets(TRACE)
    for event in (
        first(1, 1000),
        first(2, 2000, OTHER_TRACE, "d"),
        Event(2, "inet", TRACE, "translated", "policy", "accept", "", 0, Addresses("d", 2000, "b", 8080)),
        Event(2, "inet", "kube-nftlb", "refuse", "rule", "drop", "", 2),
        # Its rule comes after ours, whose chain tells nothing of it; the packet gets another id on its way.
        first(3, 3000, OTHER_TRACE, "d"),
        Event(4, "inet", TRACE, table.SENT_ON, "policy", "accept", "", 0, Addresses("d", 3000, "b", 8080)),
        Event(4, "inet", OTHER_TRACE, table.SENT_ON, "policy", "accept", "", 0, Addresses("d", 3000, "b", 8080)),
        # The other's rule comes before ours, whose chain tells that it has no rule for the packet.
        first(5, 5000, OTHER_TRACE, "d"),
        Event(5, "inet", TRACE, "first", "policy", "accept", "", 0, Addresses("d", 5000, "v", 80)),
        Event(5, "inet", "kube-nftlb", "refuse", "rule", "drop", "", 2),
        # The other's gets another id once its source is translated.
        first(6, 6000, OTHER_TRACE, "d"),
        Event(6, "inet", OTHER_TRACE, "translated", "policy", "accept", "", 0, Addresses("d", 6000, "b", 8080)),
        Event(7, "inet", TRACE, table.SENT_ON, "policy", "accept", "", 0, Addresses("n", 7000, "b", 8080)),
    ):
        packets.add(event)
    (packet,) = packets.all
    assert packet.addresses.source_port == 1000
    assert packet.events == [first(1, 1000)]
    assert not packet.ended


def test_two_traces_of_the_same_flow_have_the_same_packet() -> None:
    for tables in ((TRACE, OTHER_TRACE), (OTHER_TRACE, TRACE)):
        packets = Packets(TRACE)
        for event in (
            *(first(1, 1000, each) for each in tables),
            *(Event(1, "inet", each, "state", "rule", "goto", table.STATE_NEW, 9) for each in tables),
            *(Event(1, "inet", each, table.SENT_ON, "policy", "accept") for each in tables),
        ):
            packets.add(event)
        (packet,) = packets.all
        assert {each.table for each in packet.events} == {TRACE}
        assert (len(packet.events), packet.opens, packet.ended) == (3, True, True)
