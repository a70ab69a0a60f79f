"""EndpointSlices by Service, within the budget of their namespace."""

from typing import Any

from kube_nftlb.endpointslices.index import SliceIndex, SliceKey
from kube_nftlb.endpointslices.slices import ServiceKey, Slice
from tests.builders import endpoint, endpoint_slice

WEB, OTHER = ServiceKey("default", "web"), ServiceKey("default", "other")
KEY: SliceKey = ("default", "web-1")


def some(count: int, **fields: Any) -> Slice:
    return endpoint_slice(*(endpoint(f"10.244.0.{number}") for number in range(1, count + 1)), **fields)


def elsewhere(count: int) -> Slice:
    return some(count)._replace(namespace="elsewhere")


def ips(index: SliceIndex, service: ServiceKey = WEB) -> list[str]:
    return [each.ip for slice_ in index.of(service) for each in slice_.endpoints]


def test_a_slice_is_added_replaced_and_removed() -> None:
    index = SliceIndex()
    assert index.put(KEY, some(1)) == {WEB}
    assert (index.get(KEY), ips(index), len(index)) == (some(1), ["10.244.0.1"], 1)
    assert index.put(KEY, some(2)) == {WEB}
    assert ips(index) == ["10.244.0.1", "10.244.0.2"]
    assert index.put(KEY, None) == {WEB}
    assert (index.get(KEY), ips(index), len(index)) == (None, [], 0)


def test_a_slice_that_stays_the_same_affects_nothing() -> None:
    index = SliceIndex(endpoints_max=3)
    index.put(KEY, some(2))
    assert index.put(KEY, some(2)) == set()
    assert index.put(("default", "unknown"), None) == set()
    index.put(KEY, some(5))
    assert index.put(KEY, some(5)) == set(), "nor does one that is cut to the same"


def test_a_slice_that_moves_to_another_service_affects_both() -> None:
    index = SliceIndex()
    index.put(KEY, some(1))
    assert index.put(KEY, some(1, service="other")) == {WEB, OTHER}
    assert (ips(index), ips(index, OTHER)) == ([], ["10.244.0.1"])


def test_services_of_one_name_in_two_namespaces_are_two() -> None:
    index = SliceIndex()
    index.put(KEY, some(1))
    assert index.put(("elsewhere", "web-1"), elsewhere(2)) == {ServiceKey("elsewhere", "web")}
    assert (len(ips(index)), len(ips(index, ServiceKey("elsewhere", "web")))) == (1, 2)


def test_what_a_list_does_not_have_is_missing() -> None:
    index = SliceIndex()
    for name in ("web-1", "web-2"):
        index.put(("default", name), some(1, name=name))
    assert index.missing({KEY}) == [("default", "web-2")]
    assert index.missing([KEY, ("default", "web-2"), ("default", "web-3")]) == []


def test_a_namespace_with_too_many_endpoints_loses_the_last_ones() -> None:
    index = SliceIndex(endpoints_max=3)
    index.put(KEY, some(2))
    index.put(("default", "other-1"), some(2, service="other"))
    index.put(("default", "other-2"), some(2, service="other", name="other-2"))
    assert (len(ips(index)), ips(index, OTHER)) == (2, ["10.244.0.1"])
    assert (index.is_cut(WEB), index.is_cut(OTHER), index.is_cut(ServiceKey("default", "none"))) == (False, True, False)


def test_another_namespace_has_a_budget_of_its_own() -> None:
    index = SliceIndex(endpoints_max=2)
    index.put(KEY, some(5))
    index.put(("elsewhere", "web-1"), elsewhere(2))
    assert (len(ips(index)), len(ips(index, ServiceKey("elsewhere", "web")))) == (2, 2)
    assert (index.is_cut(WEB), index.is_cut(ServiceKey("elsewhere", "web"))) == (True, False)


def test_a_slice_that_is_replaced_or_removed_gives_its_room_back() -> None:
    index = SliceIndex(endpoints_max=3)
    index.put(KEY, some(3))
    index.put(KEY, some(3, name="again"))
    assert not index.is_cut(WEB), "its own endpoints do not count twice"
    index.put(KEY, some(4))
    assert index.is_cut(WEB)
    index.put(KEY, some(1))
    assert not index.is_cut(WEB)
    index.put(KEY, None)
    index.put(("default", "other-1"), some(3, service="other"))
    assert (len(ips(index, OTHER)), index.is_cut(OTHER)) == (3, False)


def test_slices_that_were_cut_are_to_be_read_again_while_their_namespace_has_room() -> None:
    index = SliceIndex(endpoints_max=3)
    cut: SliceKey = ("default", "other-1")
    index.put(KEY, some(3))
    index.put(cut, some(2, service="other"))
    assert index.cut_with_room() == []
    index.put(KEY, some(2))
    assert index.cut_with_room() == [cut]
    index.put(cut, some(2, service="other"))
    assert (ips(index, OTHER), index.is_cut(OTHER), index.cut_with_room()) == (["10.244.0.1"], True, []), "it is full"
    index.put(KEY, None)
    index.put(cut, some(2, service="other"))
    assert (len(ips(index, OTHER)), index.is_cut(OTHER), index.cut_with_room()) == (2, False, [])
