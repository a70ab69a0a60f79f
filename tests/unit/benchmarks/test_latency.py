import struct

from benchmarks import latency, taps

MS = 1_000_000


def test_the_parts_of_the_way_add_up():
    seen = taps.Seen(
        objects={"endpointslices/web": 12 * MS, "nftlbfarms/web": 30 * MS},
        transactions=[(33 * MS, "python"), (41 * MS, "nftlb")],
        posts=[35 * MS],
    )
    parts = latency.segments(seen, "web", 5 * MS, 10 * MS, 43 * MS, farm_write_ms=4)
    assert parts == [
        ("API: the Service", 5),
        ("controller: the slice", 2),
        ("operator", 14),
        ("API: the farm", 4),
        ("agent", 5),
        ("nftlb and the kernel", 6),
        ("until a packet is answered", 2),
    ]
    assert sum(length for _, length in parts) == 43 - 5


def test_kube_proxy_works_until_its_last_transaction_before_the_answer():
    seen = taps.Seen(
        objects={"endpointslices/web": 12 * MS},
        transactions=[(3 * MS, "nft"), (20 * MS, "nft"), (1000 * MS, "nft"), (1010 * MS, "nft")],
    )
    assert latency.segments(seen, "web", 5 * MS, 10 * MS, 1002 * MS, farm_write_ms=0) == [
        ("API: the Service", 5),
        ("controller: the slice", 2),
        ("kube-proxy and the kernel", 988),
        ("until a packet is answered", 2),
    ]


def test_what_is_seen_late_makes_no_part_negative():
    seen = taps.Seen(objects={"endpointslices/web": 90 * MS, "nftlbfarms/web": 30 * MS}, posts=[31 * MS])
    parts = latency.segments(seen, "web", 0, 10 * MS, 40 * MS, farm_write_ms=1)
    assert all(length >= 0 for _, length in parts)
    assert sum(length for _, length in parts) == 40


def test_writes_of_farms_are_told_from_those_of_their_statuses():
    def line(kind, value, **labels):
        names = {"resource": "nftlbfarms", "scope": "resource", "subresource": "", "verb": "APPLY", **labels}
        inner = ",".join(f'{name}="{text}"' for name, text in names.items())
        return f"apiserver_request_duration_seconds_{kind}{{{inner}}} {value}\n"

    metrics = "".join(
        (
            line("sum", 0.5),
            line("count", 10),
            line("sum", 9, subresource="status"),
            line("count", 9, subresource="status"),
            line("sum", 9, verb="LIST"),
            line("count", 9, resource="services"),
        )
    )
    assert latency.parse_farm_writes(metrics).mean_ms == 50
    assert latency.parse_farm_writes("").mean_ms == 0


def test_each_service_has_a_vip_of_its_own():
    vips = {latency.vip(f"{kind}-{number}") for kind in ("web", "ruled") for number in range(1500)}
    assert len(vips) == 3000


def test_the_program_that_made_a_transaction_is_read():
    def message(kind, attributes):
        return struct.pack("=IHHIIBBH", 20 + len(attributes), kind, 0, 0, 0, 0, 0, 0) + attributes

    generation = struct.pack("=HHI", 8, 1, 7)
    name = struct.pack("=HH8s", 10, 3, b"nftlb\0")
    datagram = message(10 << 8 | 6, b"\0" * 40) + message(10 << 8 | 15, generation + name)
    assert taps.programs_in(datagram) == ["nftlb"]
