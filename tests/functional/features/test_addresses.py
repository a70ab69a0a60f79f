"""Addresses from NftlbAddressPools: Services get them, keep them, and say why they have none."""

import json
import os
import re
import signal
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kube_nftlb import names
from tests.builders.manifests import service
from tests.functional import commands
from tests.functional.cluster import Cluster, eventually, running
from tests.functional.conftest import Used
from tests.functional.faults import suite

OPERATORS = ("operator", "operator-2")
ENGINE = "nftables"
_OPERATOR = {"KUBE_NFTLB_DEFAULT_ENGINE": ENGINE, "KUBE_NFTLB_ADDRESSES": "on"}
KILLS = suite.by_form(4, 20)
MANY = suite.by_form(300, 1000)
WRITERS = 8


@pytest.fixture(scope="module")
def _lab() -> Iterator[Used]:
    settings = dict.fromkeys(OPERATORS, _OPERATOR)
    with running("addresses", nodes=1, operators=len(OPERATORS), settings=settings) as cluster:
        yield Used(cluster, [])


@pytest.fixture
def here(cluster: Cluster) -> Iterator[str]:
    """A namespace; the pools of the test go with it."""
    with cluster.namespace() as namespace:
        yield namespace
        for pool in cluster.get("nftlbaddresspool")["items"]:
            cluster.delete("nftlbaddresspool", pool["metadata"]["name"])


def pool(name: str, *ranges: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kube-nftlb.io/v1alpha1",
        "kind": "NftlbAddressPool",
        "metadata": {"name": name},
        "spec": {"ranges": list(ranges), **spec},
    }


def balanced(name: str, namespace: str, annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    chosen = {"type": "LoadBalancer", "loadBalancerClass": names.LOAD_BALANCER_CLASS, **spec}
    return service(name, namespace, annotations, allocateLoadBalancerNodePorts=False, **chosen)


def ingress(raw: dict[str, Any]) -> list[str]:
    return [each["ip"] for each in raw["status"]["loadBalancer"].get("ingress", [])]


def addresses(cluster: Cluster, name: str, namespace: str) -> list[str]:
    return ingress(cluster.get("service", name, namespace))


def all_addresses(cluster: Cluster, namespace: str) -> dict[str, list[str]]:
    return {raw["metadata"]["name"]: ingress(raw) for raw in cluster.get("service", None, namespace)["items"]}


def condition(cluster: Cluster, name: str, namespace: str) -> dict[str, Any]:
    return cluster.condition("service", name, names.ADDRESS_CONDITION, namespace)


def gets(cluster: Cluster, name: str, namespace: str, *expected: str) -> None:
    eventually(lambda: addresses(cluster, name, namespace) == list(expected), f"{name} has {expected}")


def lacks(cluster: Cluster, name: str, namespace: str, reason: str) -> str:
    """Wait until a Service says why it lacks an address, and return its message."""
    eventually(lambda: condition(cluster, name, namespace).get("reason") == reason, f"{name} says {reason}")
    return str(condition(cluster, name, namespace)["message"])


def test_one_pool_is_enough_and_a_service_has_its_address_at_once(cluster: Cluster, here: str) -> None:
    cluster.apply(pool("office", "192.0.2.0/26", "2001:db8:2::/120"))
    cluster.wait("nftlbaddresspool", "office", "Accepted")
    took = []
    for number in range(20):
        cluster.apply(balanced(f"web-{number}", here))
        began = time.monotonic()
        while not addresses(cluster, f"web-{number}", here):
            assert time.monotonic() - began < 10, "no address after 10 s"
            time.sleep(0.002)
        took.append(time.monotonic() - began)
        suite.record_of(ENGINE, "allocated", "Service created until it has its address", "ms", took[-1] * 1000)
    print(f"Service → address: median {statistics.median(took) * 1000:.0f} ms, longest {max(took) * 1000:.0f} ms")
    first = cluster.get("service", "web-0", here)
    assert first["status"]["loadBalancer"] == {"ingress": [{"ip": "192.0.2.0", "ipMode": "VIP"}]}
    assert "nodePort" not in first["spec"]["ports"][0]
    assert condition(cluster, "web-0", here)["message"] == "192.0.2.0 of the address pool office"
    wanted = {"type": "LoadBalancer", "ip": "192.0.2.0", "ports": "80"}
    eventually(lambda: wanted in _listeners(cluster, "web-0--http", here), "the farm has the address")
    counts = {"size": 64, "used": 20, "free": 44}
    eventually(lambda: _pool_status(cluster, "office")["ipv4"] == counts, "the pool has its numbers")
    status = _pool_status(cluster, "office")
    assert (status["services"], status["ipv6"]) == (20, {"size": 256, "used": 0, "free": 256})


def _listeners(cluster: Cluster, farm: str, namespace: str) -> list[dict[str, Any]]:
    found = (cluster.farm(farm, namespace) or {"spec": {"addresses": []}})["spec"]["addresses"]
    return [{key: each[key] for key in ("type", "ip", "ports")} for each in found]


def _pool_status(cluster: Cluster, name: str) -> dict[str, Any]:
    status: dict[str, Any] = cluster.get("nftlbaddresspool", name).get("status", {})
    return status or {"ipv4": {}, "conditions": []}


def _pool_reasons(cluster: Cluster, name: str) -> dict[str, str]:
    return {each["type"]: each["reason"] for each in _pool_status(cluster, name)["conditions"]}


def test_services_of_two_families_get_two_addresses(cluster: Cluster, here: str) -> None:
    cluster.apply(pool("four", "192.0.2.64/28"))
    cluster.apply(balanced("both", here, ipFamilyPolicy="RequireDualStack"))
    assert "no accepted address pool with IPv6 addresses" in lacks(cluster, "both", here, "NoPool")
    assert addresses(cluster, "both", here) == []
    cluster.apply(balanced("six", here, ipFamilies=["IPv6"], ipFamilyPolicy="PreferDualStack"))
    gets(cluster, "six", here, "192.0.2.64")
    cluster.apply(pool("six", "2001:db8:64::/120"))
    eventually(lambda: all(len(ips) == 2 for ips in all_addresses(cluster, here).values()), "both have two")
    found = all_addresses(cluster, here)
    assert found["six"][1] == "192.0.2.64"
    assert found["both"][0] == "192.0.2.65"
    assert {found["six"][0], found["both"][1]} == {"2001:db8:64::", "2001:db8:64::1"}


def test_the_api_server_refuses_an_address_for_an_older_state_of_a_service(cluster: Cluster, here: str) -> None:
    cluster.apply(balanced("web", here, loadBalancerClass="example.com/other"))
    read = cluster.get("service", "web", here)
    cluster.kubectl("-n", here, "label", "service", "web", "changed=yes")
    metadata = {key: read["metadata"][key] for key in ("name", "namespace", "uid", "resourceVersion")}
    status = {"loadBalancer": {"ingress": [{"ip": "192.0.2.70", "ipMode": "VIP"}]}}
    written = json.dumps({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "status": status})
    by_force = ("--server-side", "--force-conflicts", f"--field-manager={names.FIELD_MANAGER_ADDRESSES}")
    done = cluster.try_kubectl("apply", *by_force, "--subresource=status", "-f", "-", stdin=written)
    assert "the object has been modified" in done.stderr
    assert addresses(cluster, "web", here) == []


def test_a_service_without_an_address_says_why_and_gets_the_next_that_is_freed(cluster: Cluster, here: str) -> None:
    cluster.apply(pool("little", "192.0.2.80/32"))
    cluster.apply(balanced("first", here))
    gets(cluster, "first", here, "192.0.2.80")
    # By its name, as the operator may not have heard yet that pools of an earlier test are gone.
    cluster.apply(balanced("second", here, {"address-pool": "little"}))
    message = "no IPv4 address is free in the address pool little"
    assert lacks(cluster, "second", here, "PoolExhausted") == message
    eventually(lambda: [each["message"] for each in cluster.events("Service", "second", here)] == [message], "an Event")
    reasons = {"Accepted": "Valid", "AddressesFree": "PoolExhausted"}
    eventually(lambda: _pool_reasons(cluster, "little") == reasons, "the pool says so, too")
    cluster.apply(balanced("third", here, loadBalancerIP="192.0.2.80"))
    assert lacks(cluster, "third", here, "AddressTaken") == "another Service has 192.0.2.80"
    why = commands.run(cluster, "why", "-n", here, "third", COLUMNS="200")
    wanted = f"service {here}/third for .*: AddressTaken: another Service has 192.0.2.80 → ask for another address"
    assert re.search(wanted, why.stdout), why.stdout
    assert why.returncode == 1
    cluster.delete("service", "third", here)
    cluster.delete("service", "first", here)
    gets(cluster, "second", here, "192.0.2.80")
    assert condition(cluster, "second", here)["status"] == "True"


def test_an_address_stays_when_its_pool_is_edited_or_deleted_and_the_operator_restarts(
    cluster: Cluster, here: str
) -> None:
    cluster.apply(pool("edited", "192.0.2.96/28"))
    cluster.apply(balanced("web", here))
    gets(cluster, "web", here, "192.0.2.96")
    cluster.apply(pool("edited", "192.0.2.112/28"))
    cluster.apply(balanced("new", here))
    gets(cluster, "new", here, "192.0.2.112")
    cluster.delete("nftlbaddresspool", "edited")
    for operator in OPERATORS:
        cluster.lab.restart(operator)
    cluster.apply(balanced("late", here))
    lacks(cluster, "late", here, "NoPool")
    assert addresses(cluster, "web", here) == ["192.0.2.96"]
    assert addresses(cluster, "new", here) == ["192.0.2.112"]
    message = "192.0.2.96, which is in no accepted address pool"
    eventually(lambda: condition(cluster, "web", here)["message"] == message, "the condition names no pool any more")


def test_addresses_that_another_program_gave_are_adopted(cluster: Cluster, here: str) -> None:
    raw = balanced("web", here)
    cluster.apply(raw)
    lacks(cluster, "web", here, "NoPool")
    # As MetalLB does, which knows no server-side apply.
    given = {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.133"}]}}}
    cluster.api.patch("service", "web/status", here, given)
    # It may see the pool first, as it watches Services and pools apart, and reserve an address that it does not give.
    eventually(lambda: "192.0.2.133" in condition(cluster, "web", here)["message"], "the operator has seen it")
    cluster.apply(pool("adopting", "192.0.2.128/28"))
    cluster.apply(balanced("new", here))
    gets(cluster, "new", here, "192.0.2.128")
    eventually(lambda: condition(cluster, "web", here).get("status") == "True", "it is adopted")
    assert addresses(cluster, "web", here) == ["192.0.2.133"]


def test_an_address_goes_when_a_service_is_no_longer_of_our_type_or_proxy(cluster: Cluster, here: str) -> None:
    cluster.apply(pool("leaving", "192.0.2.144/32"))
    cluster.apply(balanced("web", here))
    gets(cluster, "web", here, "192.0.2.144")
    cluster.kubectl("label", "service", "web", "-n", here, f"{names.LABEL_PROXY_NAME}=other")
    gets(cluster, "web", here)
    eventually(lambda: not condition(cluster, "web", here), "the condition is removed")
    cluster.kubectl("label", "service", "web", "-n", here, f"{names.LABEL_PROXY_NAME}-")
    gets(cluster, "web", here, "192.0.2.144")
    cluster.api.patch("service", "web", here, {"spec": {"type": "ClusterIP", "loadBalancerClass": None}})
    eventually(lambda: not condition(cluster, "web", here), "the condition is removed")
    assert addresses(cluster, "web", here) == []


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ("192.0.02.0/24", "must be an address range in canonical form"),
        ("192.0.2.1/24", "must be an address range in canonical form"),
        ("192.0.2.1-2001:db8::1", "must be an address range in canonical form"),
    ],
)
def test_the_api_server_refuses_ranges_of_another_form(cluster: Cluster, ranges: str, message: str) -> None:
    assert message in cluster.refused(pool("malformed", ranges))


def test_a_pool_with_addresses_of_the_cluster_is_refused(cluster: Cluster, here: str) -> None:
    (node,) = cluster.get("node")["items"]
    ip = next(each["address"] for each in node["status"]["addresses"] if each["type"] == "InternalIP")
    vip = cluster.vip("kubernetes", "default")
    cluster.apply(pool("node", f"{ip}/32"), pool("services", f"{vip}/32"), pool("older", "192.0.2.160/28"))
    cluster.wait("nftlbaddresspool", "older", "Accepted")
    time.sleep(1.1)  # creationTimestamp has seconds
    cluster.apply(pool("another", "192.0.2.175-192.0.2.180"))
    for name, what in (
        ("node", f"overlaps with {ip}, an address of the node"),
        ("services", "the range of cluster IPs"),
        ("another", "overlaps with the address pool older, which is older"),
    ):
        eventually(lambda name=name, what=what: what in _refusal(cluster, name), f"{name} is refused")  # type: ignore[misc]
    cluster.apply(balanced("web", here, {"address-pool": "node"}))
    assert lacks(cluster, "web", here, "NoPool") == "the address pool node is not accepted"


def _refusal(cluster: Cluster, name: str) -> str:
    conditions = _pool_status(cluster, name)["conditions"]
    return next((each["message"] for each in conditions if (each["type"], each["status"]) == ("Accepted", "False")), "")


def test_a_tenant_cannot_take_the_address_of_another(cluster: Cluster, here: str) -> None:
    key = {"address-sharing-key": "secret"}
    cluster.apply(pool("shared", "192.0.2.176/28"))
    cluster.apply(balanced("victim", here, key))
    gets(cluster, "victim", here, "192.0.2.176")
    with cluster.namespace() as other:
        wanted = {**key, "addresses": "192.0.2.176"}
        cluster.apply(balanced("thief", other, wanted, ports=[{"name": "http", "port": 81}]))
        assert lacks(cluster, "thief", other, "AddressTaken") == "another Service has 192.0.2.176"
        cluster.apply(service("outside", other, externalIPs=["192.0.2.177"]))
        eventually(lambda: "address pool shared" in str(cluster.events("Service", "outside", other)), "it is refused")
    cluster.apply(balanced("friend", here, key, ports=[{"name": "http", "port": 81}]))
    gets(cluster, "friend", here, "192.0.2.176")


@pytest.mark.timeout(900)
@pytest.mark.long
def test_a_thousand_services_have_addresses_of_their_own(cluster: Cluster, here: str) -> None:
    cluster.apply(pool("many", "198.18.0.0/22"))
    began = time.monotonic()
    _create_many(cluster, here)
    created = time.monotonic() - began
    took = created + _all_have_addresses_of_their_own(cluster, here)
    many = {"Services": MANY, "writers": WRITERS}
    suite.record_of(ENGINE, "allocated", "created and with an address within", "s", took, **many)
    print(f"{MANY} Services: created in {created:.1f} s, with addresses {took - created:.1f} s later")


@pytest.mark.timeout(900)
@pytest.mark.long
def test_a_thousand_services_that_wait_have_addresses_once_there_is_a_pool(cluster: Cluster, here: str) -> None:
    _create_many(cluster, here)

    def wait() -> bool:
        services = cluster.get("service", None, here)["items"]
        return all("NoPool" in str(each["status"].get("conditions")) for each in services)

    eventually(wait, "all say that there is no pool", 300)
    cluster.apply(pool("late", "198.18.4.0/22"))
    took = _all_have_addresses_of_their_own(cluster, here)
    suite.record_of(ENGINE, "allocated", "waiting Services with an address within", "s", took, Services=MANY)
    print(f"{MANY} Services that waited: with addresses {took:.1f} s after their pool came")


def _create_many(cluster: Cluster, namespace: str) -> None:
    with ThreadPoolExecutor(WRITERS) as writers:
        list(writers.map(lambda number: cluster.apply(balanced(f"s{number}", namespace)), range(MANY)))


def _all_have_addresses_of_their_own(cluster: Cluster, namespace: str) -> float:
    """Wait until all of the many Services have addresses, and return the seconds."""
    took = eventually(lambda: all(all_addresses(cluster, namespace).values()), "all have addresses", 120)
    found = [ip for ips in all_addresses(cluster, namespace).values() for ip in ips]
    assert (len(found), len(set(found))) == (MANY, MANY)
    return took


@pytest.mark.timeout(suite.by_form(600, 2400))
@pytest.mark.long
def test_no_address_changes_while_operators_die_and_take_over(cluster: Cluster, here: str) -> None:
    cluster.apply(pool("surviving", "198.18.8.0/24"))
    seen: dict[str, list[str]] = {}
    changes = []
    for kill in range(KILLS):
        for number in range(8):
            cluster.apply(balanced(f"web-{kill}-{number}", here))
            if number == 4:
                for operator in OPERATORS:
                    os.kill(cluster.lab.pid(operator), signal.SIGKILL)
        eventually(lambda: all(all_addresses(cluster, here).values()), "all have addresses", 90)
        found = all_addresses(cluster, here)
        changes += [name for name, ips in seen.items() if found[name] != ips]
        seen = found
    suite.record_of(ENGINE, "allocated", "addresses that changed", "", len(changes), Services=8 * KILLS, kills=KILLS)
    assert changes == []
    given = [ip for ips in seen.values() for ip in ips]
    assert len(set(given)) == len(given) == 8 * KILLS
    print(f"{KILLS} kills of both operators: {len(changes)} of {len(given)} addresses changed")
