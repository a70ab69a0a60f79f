"""Services without a farm: which ones should have one, and what the operator has told of them."""

from datetime import UTC, datetime
from typing import Any

import pytest

from kube_nftlb import names
from kube_nftlb.commands.cluster.service_findings import find, no_farm, note, unserved, why_not_served
from kube_nftlb.commands.view import ClusterView
from tests.builders import raw_service, raw_service_farm

NOW = datetime(2030, 1, 1, tzinfo=UTC)
PORTS = [{"name": "http", "port": 80}, {"name": "https", "port": 443}]


def warning(message: str, at: str, uid: str | None = None) -> dict[str, Any]:
    about = {"kind": "Service", "uid": uid or raw_service()["metadata"]["uid"]}
    return {"involvedObject": about, "reason": "TooManyFarms", "message": message, "lastTimestamp": at}


def conditioned(reason: str, status: str = "False") -> dict[str, Any]:
    told = {"type": names.SERVICE_CONDITION, "status": status, "reason": reason, "message": "said so"}
    return raw_service(status={"conditions": [told]})


def found(service: dict[str, Any], *farms: dict[str, Any], events: tuple[Any, ...] = ()) -> list[tuple[str, str]]:
    view = ClusterView(farms, unserved=unserved([service], farms), events=events)
    return [(each.reason, each.message) for each in find(view, NOW)]


@pytest.mark.parametrize(
    ("service", "why"),
    [
        (raw_service(), ""),
        (raw_service(clusterIP="None"), "headless"),
        (raw_service(type="ExternalName", clusterIP=""), "of the type ExternalName"),
        (raw_service(labels={names.LABEL_PROXY_NAME: "x"}), "of another proxy"),
        (raw_service(clusterIP="", clusterIPs=[]), "no cluster IP"),
        (raw_service(ports=[]), "no ports"),
        (raw_service(ports=[{"port": "x"}]), "cannot read it"),
    ],
)
def test_it_says_why_nobody_makes_farms_of_a_service(service: dict[str, Any], why: str) -> None:
    assert why in why_not_served(service)
    assert bool(why) == bool(why_not_served(service))
    assert bool(why) == (unserved([service], []) == [])


def test_a_service_with_its_farms_is_served() -> None:
    assert found(raw_service(), raw_service_farm()) == []


def test_the_newest_warning_says_why_it_has_none() -> None:
    events = (
        warning("old", "2029-12-31T00:00:00Z"),
        warning("new", "2029-12-31T01:00:00Z"),
        warning("of another", "2029-12-31T02:00:00Z", "uid-other"),
    )
    assert found(raw_service(), events=events) == [("NoFarm", "it has no farm: TooManyFarms: new")]
    assert note(raw_service(), events) == "TooManyFarms: new"


def test_the_condition_says_it_too() -> None:
    assert found(conditioned("FarmRefused")) == [("NoFarm", "it has no farm: FarmRefused: said so")]
    assert "the operator has not made any yet" in found(conditioned("Pending"))[0][1]


def test_ports_without_a_farm_are_named() -> None:
    ((_, message),) = found(raw_service(ports=PORTS), raw_service_farm())
    assert message.startswith("it has no farm for the ports https: ")


def test_a_service_that_is_not_served_as_it_asks_is_named() -> None:
    served = raw_service_farm()
    assert found(conditioned("InvalidSourceRange", "True"), served) == [("InvalidSourceRange", "said so")]
    assert found(conditioned("AllNodes", "True"), served) == []


def test_the_operator_has_a_moment_to_make_farms() -> None:
    young = raw_service(created="2029-12-31T23:59:45Z")
    assert found(young) == []
    assert no_farm(young, ()).reason == "NoFarm"
