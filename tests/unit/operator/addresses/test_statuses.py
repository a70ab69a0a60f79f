"""What pools and Services say of addresses, and since when."""

from typing import Any

import pytest

from kube_nftlb import names
from kube_nftlb.api.address_pool import COUNT_MAX
from kube_nftlb.api.address_ranges import ip_of
from kube_nftlb.api.kubernetes.service import Service
from kube_nftlb.operator.addresses import pool_status, service_status
from kube_nftlb.operator.addresses.allocate import Outcome
from kube_nftlb.operator.addresses.book import Book
from kube_nftlb.operator.addresses.cluster import ClusterAddresses
from kube_nftlb.operator.addresses.pools import parse
from tests.builders.pools import raw_balanced, raw_pool

BEFORE, NOW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
ONE = Outcome((ip_of("192.0.2.1"),), "Assigned", "")
NONE = Outcome((), "PoolExhausted", "", waits=True)


def of_pool(raw: dict[str, Any], before: tuple[str, str] | None = None) -> Any:
    if before is not None:
        kind, value = before
        raw["status"] = {"conditions": [{"type": kind, "status": value, "reason": "x", "lastTransitionTime": BEFORE}]}
    pool, book = parse(raw), Book()
    book.put_pools([pool], ClusterAddresses([], []))
    return pool_status.status(pool, book, 0, NOW)


def test_a_pool_with_more_addresses_than_json_can_count_says_the_highest_number() -> None:
    status = of_pool(raw_pool("pool", "2001:db8::/32"))
    assert (status.ipv6.size, status.ipv6.free, status.ipv4.size) == (COUNT_MAX, COUNT_MAX, 0)


@pytest.mark.parametrize(
    ("raw", "before", "expected"),
    [
        (raw_pool(), None, [("Accepted", "True", "Valid", NOW), ("AddressesFree", "True", "AddressesFree", NOW)]),
        (raw_pool("pool", "127.0.0.0/8"), None, [("Accepted", "False", "Invalid", NOW)]),
        (raw_pool("pool", "127.0.0.0/8"), ("Accepted", "False"), [("Accepted", "False", "Invalid", BEFORE)]),
        (raw_pool("pool", "127.0.0.0/8"), ("Accepted", "True"), [("Accepted", "False", "Invalid", NOW)]),
        (
            raw_pool(reserved=["192.0.2.1-192.0.2.3"]),
            ("AddressesFree", "False"),
            [("Accepted", "True", "Valid", NOW), ("AddressesFree", "False", "PoolExhausted", BEFORE)],
        ),
    ],
)
def test_conditions_of_a_pool_keep_their_time_while_their_status_is_the_same(
    raw: dict[str, Any], before: tuple[str, str] | None, expected: list[tuple[str, ...]]
) -> None:
    conditions = of_pool(raw, before).conditions
    assert [(each.type, each.status, each.reason, each.last_transition_time) for each in conditions] == expected


def with_condition(status: str, *given: str) -> Service:
    raw = raw_balanced("web", *given)
    condition = {"type": names.ADDRESS_CONDITION, "status": status, "reason": "x", "lastTransitionTime": BEFORE}
    raw["status"]["conditions"] = [condition]
    return Service.model_validate(raw)


@pytest.mark.parametrize(("before", "since"), [("True", BEFORE), ("False", NOW)])
def test_the_condition_of_a_service_keeps_its_time_likewise(before: str, since: str) -> None:
    (condition,) = service_status.status(with_condition(before), ONE, NOW)["conditions"]
    assert (condition["status"], condition["lastTransitionTime"]) == ("True", since)


@pytest.mark.parametrize(
    ("change", "written"),
    [
        ({}, True),
        ({"ip": "192.0.2.2"}, False),
        ({"ipMode": "Proxy"}, False),
        ({"hostname": "lb.example.com"}, False),
    ],
)
def test_a_status_that_is_as_decided_is_not_written_again(change: dict[str, str], written: bool) -> None:
    raw = raw_balanced("web", "192.0.2.1", assigned=True)
    raw["status"]["loadBalancer"]["ingress"][0].update(change)
    assert service_status.is_written(Service.model_validate(raw), ONE) is written


def test_a_service_without_our_condition_is_written() -> None:
    assert not service_status.is_written(Service.model_validate(raw_balanced("web", "192.0.2.1")), ONE)
    assert not service_status.is_written(with_condition("False"), NONE), "another reason"
