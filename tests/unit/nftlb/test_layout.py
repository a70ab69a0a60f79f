import pytest

from kube_nftlb.nftlb import encoding, layout, objects
from kube_nftlb.nftlb.layout import FarmRules, MapEntry, Target


def farm(*backends: objects.Backend, **options: str) -> objects.Farm:
    address = objects.Address("f-1", "ipv4", "10.96.0.10", "80", "tcp")
    return objects.Farm("f", {"state": "up", **options}, {"f-1": address}, {b.name: b for b in backends})


def backend(name: str, mark: int, state: objects.BackendState = "up") -> objects.Backend:
    return objects.Backend(name, mark, state, {"ip-addr": f"10.244.1.{mark}", "port": "8080"})


def test_listeners_in_prerouting_and_with_intra_connect_on_the_node() -> None:
    maps = {listener.map for listener in layout.expected(farm()).listeners}
    assert maps == {"filter-proto-services", "nat-proto-services"}
    maps = {listener.map for listener in layout.expected(farm(**{"intra-connect": "on"})).listeners}
    assert maps == {name for name in layout.MAPS if name.endswith("-proto-services")}


def test_down_backends_are_absent_and_off_ones_not_scheduled() -> None:
    rules = layout.expected(farm(backend("a", 2), backend("b", 3, "off"), backend("c", 4, "down")))
    assert rules.scheduled == {2}
    assert rules.targets == {Target(2, "10.244.1.2", 8080), Target(3, "10.244.1.3", 8080)}


def test_a_farm_that_is_down_has_no_rules() -> None:
    assert layout.expected(farm(backend("a", 2), state="down")) == FarmRules(frozenset(), frozenset(), frozenset())


@pytest.mark.parametrize("ip", ["10.96.0.10", "fd00:96::a"])
def test_a_key_is_read_as_it_is_written(ip: str) -> None:
    listener = MapEntry("nat-proto-services", 17, ip, 5353, "nat-f")
    assert encoding.parse_listener(listener.map, encoding.listener_key(listener), "nat-f") == listener


def test_the_bit_that_asks_for_masquerading_is_not_part_of_a_mark() -> None:
    assert encoding.parse_mark((0x80000ABC).to_bytes(4, "little")) == 0xABC


def test_a_difference_is_told_in_words() -> None:
    wanted = layout.expected(farm(backend("a", 2)))
    assert wanted.drift(wanted) is None
    lost = FarmRules(wanted.listeners, wanted.scheduled, frozenset())
    assert wanted.drift(lost) == "target 2 10.244.1.2 8080 is missing in the kernel"
    assert "should not be" in (lost.drift(wanted) or "")


@pytest.mark.parametrize(
    ("persistence", "family", "key", "text"),
    [
        ("srcip", "ip", bytes([10, 0, 0, 1]), "10.0.0.1"),
        ("srcip", "ip6", bytes.fromhex("fd00" + "00" * 13 + "01"), "fd00::1"),
        ("srcport", "ip", bytes([0, 80]), "80"),
        ("srcmac", "ip6", bytes([2, 0, 0, 0, 0, 1]), "02:00:00:00:00:01"),
        ("srcip srcport", "ip", bytes([10, 0, 0, 1, 0, 80, 0, 0]), "10.0.0.1 . 80"),
        ("srcip dstport", "ip", bytes([10, 0, 0, 1, 1, 187, 0, 0]), "10.0.0.1 . 443"),
        (
            "srcip srcport srcmac",
            "ip",
            bytes([10, 0, 0, 1, 0, 80, 0, 0, 2, 0, 0, 0, 0, 1, 0, 0]),
            "10.0.0.1 . 80 . 02:00:00:00:00:01",
        ),
        (
            "srcport srcmac dstmac",
            "ip6",
            bytes([0, 80, 0, 0, 2, 0, 0, 0, 0, 1, 0, 0, 2, 0, 0, 0, 0, 2, 0, 0]),
            "80 . 02:00:00:00:00:01 . 02:00:00:00:00:02",
        ),
    ],
)
def test_a_session_is_spelled_as_nft_does(persistence: str, family: layout.TableFamily, key: bytes, text: str) -> None:
    assert encoding.session_text(persistence, family, key) == text
