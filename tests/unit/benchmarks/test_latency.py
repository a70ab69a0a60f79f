from benchmarks import latency


def test_each_service_has_a_vip_of_its_own() -> None:
    vips = {latency.vip(f"{kind}-{number}") for kind in ("web", "ruled") for number in range(1500)}
    assert len(vips) == 3000
