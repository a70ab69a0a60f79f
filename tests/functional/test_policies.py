"""NftlbPolicies: which clients are allowed and which are denied. ``disturbing`` has them while programs restart."""

import ipaddress
import os
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.builders.manifests import farm, policy, service
from tests.functional.clients import (
    STEADY,
    Sources,
    all_get_in,
    enforced,
    gets_in,
    give,
    only,
    programmed,
    serve,
)
from tests.functional.cluster import Cluster, eventually
from tests.functional.farms import backends, node_port, service_ip, unique

NOBODY = "192.0.2.0/24"


@pytest.fixture
def near_and_far(cluster: Cluster, namespace: str) -> Sources:
    return Sources(cluster, namespace, "ipv4")


@pytest.fixture(params=["nowhere", "on an interface"])
def vip(request: pytest.FixtureRequest, cluster: Cluster, family: str) -> Iterator[str]:
    """An address that no node has, or one that the first node has, too."""
    if request.param == "nowhere":
        yield unique(family)
        return
    host = 100 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    address = f"172.31.0.{host}" if family == "ipv4" else f"fd00:31::{host}"
    cidr = f"{address}/{ipaddress.ip_address(address).max_prefixlen}"
    flags = ("nodad",) if family == "ipv6" else ()
    added = cluster.lab.exec(cluster.nodes[0], "ip", "address", "add", cidr, "dev", "eth0", *flags)
    assert added.returncode == 0, added.stderr
    yield address
    cluster.lab.exec(cluster.nodes[0], "ip", "address", "del", cidr, "dev", "eth0")


@pytest.mark.engines
@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_deny_lists_and_allow_lists_decide_who_gets_in(cluster: Cluster, namespace: str, family: str, vip: str) -> None:
    sources = Sources(cluster, namespace, family)
    serve(cluster, namespace, vip=vip, family=family)
    only(cluster, sources, sources.all, vip)
    give(
        cluster,
        policy("not-you", namespace, "deny", [NOBODY, *sources.cidrs(sources.pod, sources.far_node, sources.outside)]),
        policy("you", namespace, "allow", sources.cidrs(sources.pod, sources.far_pod, sources.far_node)),
    )
    serve(cluster, namespace, vip=vip, family=family, policies=["not-you"])
    only(cluster, sources, {sources.far_pod, sources.node}, vip)
    serve(cluster, namespace, vip=vip, family=family, policies=["you"])
    only(cluster, sources, {sources.pod, sources.far_pod, sources.far_node}, vip)
    serve(cluster, namespace, vip=vip, family=family, policies=["you", "not-you"])
    only(cluster, sources, {sources.far_pod}, vip)
    serve(cluster, namespace, vip=vip, family=family)
    only(cluster, sources, sources.all, vip)


def test_a_policy_is_shared_goes_comes_back_and_concerns_no_other_farm(
    cluster: Cluster, namespace: str, near_and_far: Sources
) -> None:
    vips = [unique() for _ in range(3)]
    near, far = near_and_far.pod, near_and_far.far_pod
    give(cluster, policy("list", namespace, "deny", near_and_far.cidrs(near)))
    for name, vip in zip(("one", "two"), vips, strict=False):
        serve(cluster, namespace, name, vip=vip, policies=["list"])
    serve(cluster, namespace, "open", vip=vips[2])

    def who() -> list[tuple[bool, bool]]:
        found = all_get_in(cluster, *((place, vip) for vip in vips for place in (near, far)))
        return list(zip(found[::2], found[1::2], strict=True))

    assert who() == [(False, True), (False, True), (True, True)]
    give(cluster, policy("list", namespace, "allow", near_and_far.cidrs(near)))
    assert who() == [(True, False), (True, False), (True, True)]
    give(cluster, policy("list", namespace, "deny", []))
    assert who() == [(True, True)] * 3
    give(cluster, policy("list", namespace, "allow", []))
    assert who() == [(False, False), (False, False), (True, True)]

    def names_the_policy(farm: str) -> bool:
        return "NftlbPolicy 'list' not found" in cluster.condition("farm", farm, "Programmed", namespace)["message"]

    with cluster.hammer(near, vips[2]) as bystander:
        cluster.delete("nftlbpolicy", "list", namespace)
        for name in ("one", "two"):
            eventually(partial(names_the_policy, name), "the farm's condition names the policy")
        assert who() == [(False, False), (False, False), (True, True)]
        give(cluster, policy("list", namespace, "deny", near_and_far.cidrs(far)))
        assert who() == [(True, False), (True, False), (True, True)]
        for name in ("one", "two"):
            programmed(cluster, name, namespace)
    assert bystander["failures"] == []


def test_a_farm_whose_policy_does_not_exist_lets_nobody_in_until_it_does(
    cluster: Cluster, namespace: str, near_and_far: Sources
) -> None:
    # Refused before it has a farm. At an address that leads nowhere conntrack takes up who tries too early, and sends
    # whoever comes from the same port later to nowhere, too.
    vip, near = service_ip(), near_and_far.pod
    cluster.serve("web", 2, namespace)
    with cluster.hammer(near, vip, 80, *STEADY) as hammered:
        listen = [{"ip": vip, "ports": "80"}]
        before = backends(cluster, "web", namespace)
        cluster.apply(farm("web", namespace, addresses=listen, backends=before, policies=["later"]))
        eventually(
            lambda: (
                "NftlbPolicy 'later' not found"
                in cluster.condition("farm", "web", "Programmed", namespace).get("message", "")
            ),
            "the farm's condition names the policy",
        )
    assert hammered["answers"] == {}, "not for a moment"
    assert cluster.condition("farm", "web", "Programmed", namespace)["status"] == "False"
    give(cluster, policy("later", namespace, "allow", near_and_far.cidrs(near)))
    only(cluster, near_and_far, {near}, vip)
    programmed(cluster, "web", namespace)


def test_fifty_changes_fail_no_allowed_connection_and_admit_no_denied_one(
    cluster: Cluster, namespace: str, near_and_far: Sources
) -> None:
    near, far, vip = near_and_far.pod, near_and_far.far_pod, unique()

    def version(number: int) -> dict[str, Any]:
        others = [f"198.18.{number}.{host}/32" for host in range(200)]
        return policy("list", namespace, "allow", [*others, *near_and_far.cidrs(near)])

    give(cluster, version(0))
    serve(cluster, namespace, vip=vip, policies=["list"])
    with cluster.hammer(near, vip) as allowed, cluster.hammer(far, vip, 80, *STEADY) as denied:
        for number in range(1, 51):
            cluster.apply(version(number))
            # Time for attempts between two changes.
            time.sleep(0.1)
        enforced(cluster, "list", namespace)
    for node in cluster.nodes:
        assert "198.18.50." in cluster.nft(node, "list", "set", "inet", "kube-nftlb", f"allowed-{namespace}.list-ip")
    assert allowed["attempts"] > 100
    assert allowed["failures"] == []
    assert denied["attempts"] > 100
    assert denied["answers"] == {}


def test_a_policy_of_one_address_leaves_the_others_open(
    cluster: Cluster, namespace: str, near_and_far: Sources
) -> None:
    near, far = near_and_far.pod, near_and_far.far_pod
    first, second = unique(), unique()
    give(
        cluster,
        policy("near", namespace, "allow", near_and_far.cidrs(near)),
        policy("not-outside", namespace, "deny", near_and_far.cidrs(near_and_far.outside)),
    )
    addresses: list[dict[str, Any]] = [
        {"ip": first, "ports": "80"},
        {"ip": second, "ports": "80", "policies": ["near"]},
    ]
    serve(cluster, namespace, addresses=addresses, policies=["not-outside"])
    only(cluster, near_and_far, near_and_far.all - {near_and_far.outside}, first)
    only(cluster, near_and_far, {near}, second)
    addresses[0]["policies"], addresses[1]["policies"] = ["near"], []
    serve(cluster, namespace, addresses=addresses)
    only(cluster, near_and_far, {near}, first)
    assert gets_in(cluster, far, second)


@pytest.mark.engines
def test_the_allow_list_of_another_address_admits_nobody_to_a_node_port(
    cluster: Cluster, namespace: str, near_and_far: Sources
) -> None:
    vip, port = unique(), node_port()
    give(
        cluster,
        policy("near", namespace, "allow", near_and_far.cidrs(near_and_far.pod)),
        policy("all", namespace, "allow", ["0.0.0.0/0"]),
    )
    addresses: list[dict[str, Any]] = [
        {"type": "NodePort", "ports": str(port), "policies": ["near"]},
        {"type": "LoadBalancer", "ip": vip, "ports": "80", "policies": ["all"]},
    ]
    serve(cluster, namespace, addresses=addresses)
    only(cluster, near_and_far, near_and_far.all, vip)
    for node in cluster.lab.nodes:
        assert gets_in(cluster, near_and_far.pod, str(node.addresses[0].ip), port)
        assert not gets_in(cluster, near_and_far.far_pod, str(node.addresses[0].ip), port)


def test_a_denied_clients_open_connection_goes_on_and_udp_is_guarded_too(
    cluster: Cluster, namespace: str, near_and_far: Sources
) -> None:
    near, vip = near_and_far.pod, unique()
    give(cluster, policy("list", namespace, "deny", [NOBODY]))
    serve(cluster, namespace, vip=vip, policies=["list"])
    serve(cluster, namespace, "dns", vip=vip, protocol="UDP", policies=["list"])
    cluster.reaches(near, cluster.pods("web", namespace), vip, 80, "--udp")
    with cluster.streams(1, near, vip) as streams:
        give(cluster, policy("list", namespace, "deny", near_and_far.cidrs(near)))
        assert not gets_in(cluster, near, vip)
        # A new client could get the port of an earlier flow, which goes on.
        cluster.lab.exec(near_and_far.node, "conntrack", "-D", "-p", "udp", "-d", vip)
        assert cluster.count(near, 3, vip, 80, "--udp", "--timeout", "0.3")["answers"] == {}
    assert streams[0]["complete"]


@pytest.mark.long
def test_a_policy_has_ten_thousand_ranges(cluster: Cluster, namespace: str, near_and_far: Sources) -> None:
    near, far, vip = near_and_far.pod, near_and_far.far_pod, unique()

    def many(*places: str) -> dict[str, Any]:
        first = int(ipaddress.ip_address("20.0.0.0"))
        ranges = [f"{ipaddress.ip_address(first + number * 512)}/24" for number in range(10_000)]
        return policy("many", namespace, "deny", [*ranges, *near_and_far.cidrs(*places)])

    give(cluster, many(near))
    serve(cluster, namespace, vip=vip, policies=["many"])
    assert (gets_in(cluster, near, vip), gets_in(cluster, far, vip)) == (False, True)
    began = time.monotonic()
    cluster.apply(many(far))
    cluster.reaches(near, cluster.pods("web", namespace), vip, 80, "--timeout", "1")
    print(f"10,001 ranges changed within {time.monotonic() - began:.1f} s")
    enforced(cluster, "many", namespace)
    assert not gets_in(cluster, far, vip)


def test_what_is_no_address_range_is_refused(cluster: Cluster) -> None:
    assert "must be an address range such as 10.0.0.0/8 or fd00::/64" in cluster.refused(
        policy("wrong", "default", "deny", ["10.0.0.0/8 }; flush ruleset;"])
    )


def test_the_policies_are_told_in_columns(cluster: Cluster, namespace: str) -> None:
    listen = [{"ip": unique(), "ports": "80", "policies": ["list"]}]
    cluster.apply(farm("web", namespace, addresses=listen))
    give(cluster, policy("list", namespace, "allow", ["10.0.0.1/8", "10.0.0.0/8", "fd00::/64"]))
    eventually(
        lambda: (
            cluster.kubectl("get", "nftlbpolicies", "-n", namespace).splitlines()[1].split()[:6]
            == ["list", "allow", "3", "1", "2/2", "True"]
        ),
        "type, ranges, farms and nodes are told",
    )


def test_a_service_has_the_policies_that_its_annotation_names(
    cluster: Cluster, namespace: str, near_and_far: Sources
) -> None:
    near, far = near_and_far.pod, near_and_far.far_pod
    cluster.serve("web", 2, namespace)
    give(cluster, policy("list", namespace, "allow", near_and_far.cidrs(near)))
    cluster.apply(service("web", namespace, {"policies": "list"}))
    cluster.farm_has("web--http", namespace, 2)
    vip = cluster.vip("web", namespace)
    only(cluster, near_and_far, {near}, vip)
    cluster.serve("web", 0, namespace)
    cluster.farm_has("web--http", namespace, 0)
    # A refusal may get lost between namespaces of one kernel; the SYN sent again after a second gets another.
    refused = {where: cluster.count(where, 3, vip, 80, "--timeout", "2")["failures"] for where in (near, far)}
    assert refused[near]["refused"] == 3, "nobody is there to answer"
    assert refused[far]["timeout"] == 3, "who is kept out does not even learn that"
