from hypothesis import given
from hypothesis import strategies as st

from kube_nftlb import names
from kube_nftlb.nftlb import objects

_LABEL = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", fullmatch=True)
_FARM = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,251}[a-z0-9])?", fullmatch=True)


def test_farms_are_called_as_the_ancestor_called_them() -> None:
    assert names.farm_name("my-service", "http", "ipv4") == "my-service--http"
    assert names.farm_name("my-service", None, "ipv4") == "my-service--default"
    assert names.farm_name("my-service", "http", "ipv6") == "my-service--http--ipv6"


def test_nftlb_has_the_namespace_in_front_unless_it_is_default() -> None:
    assert names.node_farm_name("default", "web--http") == "web--http"
    assert names.node_farm_name("shop", "web--http") == "shop.web--http"


@given(_LABEL, _FARM, _LABEL, _FARM)
def test_no_two_farms_have_one_name_in_nftlb(space: str, farm: str, other_space: str, other_farm: str) -> None:
    first, second = names.node_farm_name(space, farm), names.node_farm_name(other_space, other_farm)
    assert (first == second) == ((space, farm) == (other_space, other_farm))
    assert len(first) <= names.NODE_FARM_NAME_MAX


@given(_FARM, _FARM)
def test_the_farms_of_a_namespace_and_those_of_default_do_not_meet(farm: str, other: str) -> None:
    assert names.node_farm_name("default", farm) != names.node_farm_name("shop", other)


def test_an_address_has_another_name_when_it_is_another_address() -> None:
    seen = {
        objects.address_name("f", ip, "tcp", ports)
        for ip in ("10.0.0.1", "10.0.0.2")
        for ports in ("80", "81", "80-81")
    }
    assert len(seen) == 6
    assert all(len(objects.address_name("f" * 100, ip, "tcp", "80")) <= 100 for ip in ("10.0.0.1", "fd00::1"))
