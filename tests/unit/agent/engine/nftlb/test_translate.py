import pytest

from tests.builders import farm, raw_backend
from tests.views import translated


def test_a_farm_with_all_its_defaults_says_every_option() -> None:
    wire = translated(farm()).wire()
    assert next(iter(wire)) == "name"
    assert wire["name"] == "web--http"
    options = {key: value for key, value in wire.items() if key not in ("name", "addresses", "backends")}
    assert options == {
        "mode": "snat",
        "scheduler": "rr",
        "sched-param": "none",
        "persistence": "none",
        "persist-ttl": "60",
        "intra-connect": "on",
        "state": "up",
    }
    (address,) = wire["addresses"]
    assert {**address, "name": ""} == {
        "name": "",
        "family": "ipv4",
        "ip-addr": "10.96.0.10",
        "ports": "80",
        "protocol": "tcp",
    }
    assert wire["backends"] == [
        {"name": "pod-a", "ip-addr": "10.244.1.2", "port": "8080", "weight": "1", "mark": "0x2", "state": "up"}
    ]


def test_a_farm_of_another_namespace_carries_it_in_its_name() -> None:
    assert translated(farm(namespace="shop")).name == "shop.web--http"


def test_a_backend_that_is_not_ready_is_left_out() -> None:
    backends = [raw_backend("a", "10.244.1.2", ready=False), raw_backend("b", "10.244.1.3")]
    assert list(translated(farm(backends=backends)).backends) == ["b"]


def test_each_part_of_a_list_of_ports_is_an_address_of_its_own() -> None:
    seen = translated(farm(addresses=[{"ip": "10.96.0.10", "ports": "80,443,8000-8002"}]))
    assert [address.ports for address in seen.addresses.values()] == ["80", "443", "8000-8002"]


def test_the_scheduler_hash_uses_the_source_address_by_default() -> None:
    assert translated(farm(scheduler="hash")).options["sched-param"] == "srcip"
    assert translated(farm(scheduler="hash", schedParam="srcip srcport")).options["sched-param"] == "srcip srcport"


def test_marks_are_those_that_nftlb_has_already() -> None:
    before = translated(farm(backends=[raw_backend("a", "10.244.1.2"), raw_backend("b", "10.244.1.3")]))
    after = translated(farm(backends=[raw_backend("b", "10.244.1.3"), raw_backend("c", "10.244.1.4")]), before)
    assert after.backends["b"].mark == before.backends["b"].mark
    assert after.backends["c"].mark not in {backend.mark for backend in before.backends.values()}


@pytest.mark.parametrize("length", [63, 64, 253])
def test_long_names_of_backends_are_shortened_and_stay_distinct(length: int) -> None:
    names = ["p" * (length - 1) + end for end in "ab"]
    seen = translated(farm(backends=[raw_backend(name, f"10.244.1.{n}") for n, name in enumerate(names, 2)]), None)
    assert len(seen.backends) == 2
    assert all(len(name) <= 63 for name in seen.backends)
