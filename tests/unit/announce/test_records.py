"""The Lease of an address: what is written is what is read, and nothing is written over what the writer did not see."""

from datetime import UTC, datetime
from typing import Any

import pytest

from kube_nftlb.announce.ownership import records
from kube_nftlb.announce.ownership.records import NOBODY, Record

IP, MAC = "192.0.2.10", "02:00:00:00:00:01"
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
HELD = Record("7", "a", MAC, leaving=False, transitions=3)


def merged(before: Record, patch: dict[str, Any]) -> Record:
    """What the API server has after a merge patch, with the next resourceVersion."""
    annotations = {records.MAC: before.mac, **({records.LEAVING: "true"} if before.leaving else {})}
    annotations |= patch["metadata"]["annotations"]
    spec = {"holderIdentity": before.holder, "leaseTransitions": before.transitions, **patch["spec"]}
    metadata = {"labels": {records.LABEL: "true"}, **patch["metadata"], "resourceVersion": "8"}
    metadata["annotations"] = {key: value for key, value in annotations.items() if value is not None}
    ip, record = records.parse({"metadata": metadata, "spec": spec})
    assert ip == IP
    return record


@pytest.mark.parametrize(
    ("before", "body", "after"),
    [
        (NOBODY, records.claimed(IP, NOBODY, "b", MAC, NOW), Record("8", "b", MAC)),
        (
            HELD,
            records.claimed(IP, HELD, "b", "02:00:00:00:00:02", NOW),
            Record("8", "b", "02:00:00:00:00:02", transitions=4),
        ),
        (HELD, records.leaving(IP, HELD), HELD._replace(version="8", leaving=True)),
        (HELD._replace(leaving=True), records.claimed(IP, HELD, "b", MAC, NOW), Record("8", "b", MAC, transitions=4)),
    ],
    ids=["first", "take over", "leave", "from one that leaves"],
)
def test_what_is_written_is_what_is_read(before: Record, body: dict[str, Any], after: Record) -> None:
    assert merged(before, body) == after
    assert body["metadata"].get("resourceVersion", "") == before.version, "compare and swap"


@pytest.mark.parametrize(
    ("ip", "name"),
    [(IP, "address-192-0-2-10"), ("2001:db8::a", "address-2001-0db8-0000-0000-0000-0000-0000-000a")],
)
def test_the_name_is_of_the_address(ip: str, name: str) -> None:
    assert records.name(ip) == name
    assert records.parse({"metadata": {"name": name}})[0] == ip, "whatever somebody has done to its annotations"


def test_a_claim_does_not_have_more_transitions_than_a_lease_can() -> None:
    spec = records.claimed(IP, HELD._replace(transitions=2**31 - 1), "b", MAC, NOW)["spec"]
    assert 0 <= spec["leaseTransitions"] < 2**31


@pytest.mark.parametrize("mac", ["", "x", "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00", "02:00:00:00:00", MAC + "\n"])
def test_a_link_layer_address_that_is_none_is_not_asked(mac: str) -> None:
    metadata = {"name": records.name(IP), "labels": {records.LABEL: "true"}, "annotations": {records.MAC: mac}}
    assert records.parse({"metadata": metadata}) == (IP, NOBODY)


@pytest.mark.parametrize(
    "lease",
    [
        {},
        {"metadata": {"name": "kube-nftlb-operator"}},
        {"metadata": {"name": "address-x", "annotations": {records.IP: IP}}},
        {"metadata": {"name": "another-192-0-2-10", "annotations": {records.IP: IP}}},
        {"metadata": {"name": "address-192-0-2", "annotations": {records.IP: IP}}},
        {"metadata": {"name": "address-2001-db8-0-0-0-0-0-a", "annotations": {records.IP: "2001:db8::a"}}},
    ],
)
def test_other_leases_are_not_ours(lease: dict[str, Any]) -> None:
    assert records.parse(lease)[0] == ""
