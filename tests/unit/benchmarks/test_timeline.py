from benchmarks import taps, timeline

MS = 1_000_000


def test_the_segments_add_up() -> None:
    seen = taps.Seen(
        objects={"endpointslices/web": 12 * MS, "nftlbfarms/web": 30 * MS},
        transactions=[(33 * MS, "python"), (41 * MS, "nftlb")],
        posts=[35 * MS],
    )
    parts = timeline.segments(seen, "web", 5 * MS, 10 * MS, 43 * MS, farm_write_ms=4)
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


def test_kube_proxy_ends_with_its_last_transaction_before_the_reply() -> None:
    seen = taps.Seen(
        objects={"endpointslices/web": 12 * MS},
        transactions=[(3 * MS, "nft"), (20 * MS, "nft"), (1000 * MS, "nft"), (1010 * MS, "nft")],
    )
    assert timeline.segments(seen, "web", 5 * MS, 10 * MS, 1002 * MS, farm_write_ms=0) == [
        ("API: the Service", 5),
        ("controller: the slice", 2),
        ("kube-proxy and the kernel", 988),
        ("until a packet is answered", 2),
    ]


def test_late_observations_make_no_segment_negative() -> None:
    seen = taps.Seen(objects={"endpointslices/web": 90 * MS, "nftlbfarms/web": 30 * MS}, posts=[31 * MS])
    parts = timeline.segments(seen, "web", 0, 10 * MS, 40 * MS, farm_write_ms=1)
    assert all(length >= 0 for _, length in parts)
    assert sum(length for _, length in parts) == 40


def test_status_writes_are_not_counted_as_farm_writes() -> None:
    def line(kind: str, value: float, **labels: str) -> str:
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
    assert timeline.parse_farm_writes(metrics).mean_ms == 50
    assert timeline.parse_farm_writes("").mean_ms == 0
