"""NftlbPolicies: which clients are allowed and which are denied."""

import ipaddress
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from lab.addresses import CLIENT, Interfaces
from tests.builders.manifests import client_pod, farm, policy, service
from tests.functional.cluster import Cluster, eventually

pytestmark = pytest.mark.timeout(240)

VIPS = {"ipv4": "10.99.1.1", "ipv6": "fd00:99::1:1"}
ON_AN_INTERFACE = {"ipv4": "172.31.0.77", "ipv6": "fd00:31::77"}
NOBODY = "192.0.2.0/24"


class Sources:
    """The clients, by the place that they connect from, with their addresses."""

    def __init__(self, cluster: Cluster, namespace: str, family: str) -> None:
        self.pod, self.far_pod = f"{namespace}/client", f"{namespace}/far-client"
        self.node, self.far_node = cluster.nodes
        self.outside = "client"
        self._cidrs = {
            **{f"{namespace}/{name}": _pod_ip(cluster, name, namespace, family) for name in ("client", "far-client")},
            **{node.name: _of_family(node.addresses, family) for node in cluster.lab.nodes},
            self.outside: _of_family(CLIENT, family),
        }

    @property
    def all(self) -> set[str]:
        return set(self._cidrs)

    def cidrs(self, *places: str) -> list[str]:
        return [f"{ip}/{ipaddress.ip_address(ip).max_prefixlen}" for ip in (self._cidrs[place] for place in places)]


def _of_family(interfaces: Interfaces, family: str) -> str:
    return str(interfaces[family == "ipv6"].ip)


def _pod_ip(cluster: Cluster, name: str, namespace: str, family: str = "ipv4") -> str:
    ips = [entry["ip"] for entry in cluster.get("pod", name, namespace)["status"]["podIPs"]]
    return str(next(ip for ip in ips if (":" in ip) == (family == "ipv6")))


def backends(cluster: Cluster, namespace: str, family: str = "ipv4") -> list[dict[str, Any]]:
    pods = cluster.pods("web", namespace)
    return [{"name": pod, "ip": _pod_ip(cluster, pod, namespace, family), "port": 80} for pod in pods]


def gets_in(cluster: Cluster, where: str, host: str, port: int = 80) -> bool:
    """Return True if connections are answered, False if all of them are dropped."""
    counted = cluster.count(where, 3, host, port, "--timeout", "1")
    failed = {kind: number for kind, number in counted["failures"].items() if number}
    assert not failed or failed == {"timeout": 3}, counted
    return not failed


STEADY = ("--timeout", "0.1", "--threads", "30")
"""For a denied client: several hundred attempts a second."""


def all_get_in(cluster: Cluster, *ways: tuple[str, str]) -> list[bool]:
    """The same for several pairs of place and address, at once."""
    with ThreadPoolExecutor(len(ways)) as threads:
        return list(threads.map(lambda way: gets_in(cluster, *way), ways))


def only(cluster: Cluster, sources: Sources, places: set[str], host: str) -> None:
    found = all_get_in(cluster, *((place, host) for place in sources.all))
    assert {place for place, got_in in zip(sources.all, found, strict=True) if got_in} == places


@pytest.fixture
def sources(cluster: Cluster, namespace: str, client: str, family: str) -> Sources:  # noqa: ARG001 - the pod is there
    cluster.apply(client_pod("far-client", namespace, cluster.nodes[1]))
    cluster.wait("pod", "far-client", "Ready", namespace)
    return Sources(cluster, namespace, family)


@pytest.fixture(params=["ipv4", "ipv6"])
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def interface_address(cluster: Cluster, family: str) -> Iterator[str]:
    """An address that the first node has, too."""
    address = ON_AN_INTERFACE[family]
    cidr = f"{address}/{ipaddress.ip_address(address).max_prefixlen}"
    added = cluster.lab.exec(cluster.nodes[0], "ip", "address", "add", cidr, "dev", "eth0", "nodad")
    assert added.returncode == 0, added.stderr
    yield address
    cluster.lab.exec(cluster.nodes[0], "ip", "address", "del", cidr, "dev", "eth0")


@pytest.fixture
def web(cluster: Cluster, namespace: str) -> list[str]:
    """Pods to be backends of farms."""
    cluster.run("web", 2, namespace)
    return cluster.pods("web", namespace)


def serve(cluster: Cluster, namespace: str, name: str = "web", vip: str = VIPS["ipv4"], **spec: Any) -> None:
    """A farm written by hand, programmed."""
    family = spec.setdefault("family", "ipv4")
    addresses = spec.pop("addresses", [{"ip": vip, "ports": "80"}])
    cluster.apply(farm(name, namespace, addresses=addresses, backends=backends(cluster, namespace, family), **spec))
    programmed(cluster, name, namespace)


def programmed(cluster: Cluster, name: str, namespace: str) -> None:
    generation = cluster.farm(name, namespace)["metadata"]["generation"]

    def check() -> bool:
        found = condition(cluster, "farm", name, namespace)
        return (found.get("status"), found.get("observedGeneration")) == ("True", generation)

    eventually(check, f"all nodes have {name}")


def enforced(cluster: Cluster, name: str, namespace: str) -> None:
    """Wait until the policy's status says that all nodes have it as it is now."""
    generation = cluster.get("nftlbpolicy", name, namespace)["metadata"]["generation"]

    def check() -> bool:
        found = condition(cluster, "nftlbpolicy", name, namespace)
        return (found.get("status"), found.get("observedGeneration")) == ("True", generation)

    eventually(check, f"all nodes have the policy {name}")


def condition(cluster: Cluster, kind: str, name: str, namespace: str) -> dict[str, Any]:
    conditions = cluster.get(kind, name, namespace).get("status", {}).get("conditions", [])
    found: dict[str, Any] = {entry["type"]: entry for entry in conditions}.get("Programmed", {})
    return found


def give(cluster: Cluster, *policies: dict[str, Any]) -> None:
    """Create or replace policies, and wait for all nodes."""
    cluster.apply(*policies)
    for each in policies:
        enforced(cluster, each["metadata"]["name"], each["metadata"]["namespace"])


@pytest.mark.usefixtures("web")
@pytest.mark.parametrize("place", ["nowhere", "on an interface"])
def test_deny_lists_and_allow_lists_decide_who_gets_in(
    cluster: Cluster,
    namespace: str,
    family: str,
    sources: Sources,
    interface_address: str,
    place: str,
) -> None:
    vip = interface_address if place == "on an interface" else VIPS[family]
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


@pytest.fixture
def near_and_far(cluster: Cluster, namespace: str, client: str) -> Sources:  # noqa: ARG001 - the pod is there
    """The same for a test of IPv4 alone."""
    cluster.apply(client_pod("far-client", namespace, cluster.nodes[1]))
    cluster.wait("pod", "far-client", "Ready", namespace)
    return Sources(cluster, namespace, "ipv4")


@pytest.mark.usefixtures("web")
def test_a_policy_is_shared_goes_comes_back_and_concerns_no_other_farm(
    cluster: Cluster, namespace: str, near_and_far: Sources
) -> None:
    vips = ["10.99.1.1", "10.99.1.2", "10.99.1.3"]
    near, far = near_and_far.pod, near_and_far.far_pod
    give(cluster, policy("list", namespace, "deny", near_and_far.cidrs(near)))
    for name, vip in zip(("one", "two"), vips, strict=False):
        serve(cluster, namespace, name, vip, policies=["list"])
    serve(cluster, namespace, "open", vips[2])

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
        return "no NftlbPolicy 'list'" in condition(cluster, "farm", farm, namespace)["message"]

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


@pytest.mark.usefixtures("web")
def test_a_farm_whose_policy_does_not_exist_lets_nobody_in_until_it_does(
    cluster: Cluster, namespace: str, near_and_far: Sources
) -> None:
    vip, near = VIPS["ipv4"], near_and_far.pod
    with cluster.hammer(near, vip, 80, *STEADY) as hammered:
        listen = [{"ip": vip, "ports": "80"}]
        cluster.apply(
            farm("web", namespace, addresses=listen, backends=backends(cluster, namespace), policies=["later"])
        )
        eventually(
            lambda: "no NftlbPolicy 'later'" in condition(cluster, "farm", "web", namespace).get("message", ""),
            "the farm's condition names the policy",
        )
    assert hammered["answers"] == {}, "not for a moment"
    assert condition(cluster, "farm", "web", namespace)["status"] == "False"
    give(cluster, policy("later", namespace, "allow", near_and_far.cidrs(near)))
    only(cluster, near_and_far, {near}, vip)
    programmed(cluster, "web", namespace)


@pytest.mark.usefixtures("web")
def test_fifty_changes_fail_no_allowed_connection_and_admit_no_denied_one(
    cluster: Cluster, namespace: str, near_and_far: Sources
) -> None:
    near, far, vip = near_and_far.pod, near_and_far.far_pod, VIPS["ipv4"]

    def version(number: int) -> dict[str, Any]:
        others = [f"198.18.{number}.{host}/32" for host in range(200)]
        return policy("list", namespace, "allow", [*others, *near_and_far.cidrs(near)])

    give(cluster, version(0))
    serve(cluster, namespace, vip=vip, policies=["list"])
    with cluster.hammer(near, vip) as allowed, cluster.hammer(far, vip, 80, *STEADY) as denied:
        for number in range(1, 51):
            cluster.apply(version(number))
            # Time for attempts between two changes.
            time.sleep(0.2)
        enforced(cluster, "list", namespace)
    for node in cluster.nodes:
        assert "198.18.50." in cluster.nft(node, "list", "set", "inet", "kube-nftlb", f"policy-{namespace}.list-ip")
    assert allowed["attempts"] > 1000
    assert allowed["failures"] == []
    assert denied["attempts"] > 1000
    assert denied["answers"] == {}


@pytest.mark.usefixtures("web")
@pytest.mark.parametrize("component", ["agent", "nftlb"])
def test_a_restart_lets_nobody_in(cluster: Cluster, namespace: str, near_and_far: Sources, component: str) -> None:
    near, far, vip = near_and_far.pod, near_and_far.far_pod, VIPS["ipv4"]
    give(cluster, policy("list", namespace, "deny", near_and_far.cidrs(far)))
    serve(cluster, namespace, vip=vip, policies=["list"])
    with cluster.hammer(far, vip, 80, *STEADY) as denied:
        cluster.lab.restart(component)
        time.sleep(3)
        # The farm is changed, moved and deleted while no agent looks.
        cluster.lab.stop("agent")
        cluster.apply(
            farm("web", namespace, addresses=[{"ip": "10.99.1.2", "ports": "80"}], backends=[], policies=["list"])
        )
        cluster.lab.start("agent")
        programmed(cluster, "web", namespace)
        serve(cluster, namespace, vip=vip, policies=["list"])
        assert gets_in(cluster, near, vip)
        cluster.lab.stop("agent")
        cluster.delete("farm", "web", namespace)
        cluster.delete("nftlbpolicy", "list", namespace)
        cluster.lab.start("agent")
        eventually(lambda: cluster.node_farms(f"{namespace}.") == [], "the farm is gone")
    assert denied["attempts"] > 1000
    assert denied["answers"] == {}


@pytest.mark.usefixtures("web")
def test_a_policy_of_one_address_leaves_the_others_open(
    cluster: Cluster, namespace: str, near_and_far: Sources
) -> None:
    near, far = near_and_far.pod, near_and_far.far_pod
    give(
        cluster,
        policy("near", namespace, "allow", near_and_far.cidrs(near)),
        policy("not-outside", namespace, "deny", near_and_far.cidrs(near_and_far.outside)),
    )
    addresses: list[dict[str, Any]] = [
        {"ip": "10.99.1.1", "ports": "80"},
        {"ip": "10.99.1.2", "ports": "80", "policies": ["near"]},
    ]
    serve(cluster, namespace, addresses=addresses, policies=["not-outside"])
    only(cluster, near_and_far, near_and_far.all - {near_and_far.outside}, "10.99.1.1")
    only(cluster, near_and_far, {near}, "10.99.1.2")
    addresses[0]["policies"], addresses[1]["policies"] = ["near"], []
    serve(cluster, namespace, addresses=addresses)
    only(cluster, near_and_far, {near}, "10.99.1.1")
    assert gets_in(cluster, far, "10.99.1.2")


def test_a_denied_clients_open_connection_goes_on_and_udp_is_guarded_too(
    cluster: Cluster, namespace: str, near_and_far: Sources
) -> None:
    near, vip = near_and_far.pod, VIPS["ipv4"]
    cluster.run("web", 2, namespace, ports=[{"containerPort": 80, "protocol": protocol} for protocol in ("UDP", "TCP")])
    give(cluster, policy("list", namespace, "deny", [NOBODY]))
    serve(cluster, namespace, vip=vip, policies=["list"])
    serve(cluster, namespace, "dns", vip, protocol="UDP", policies=["list"])
    cluster.reaches(near, cluster.pods("web", namespace), vip, 80, "--udp")
    with cluster.streams(1, near, vip) as streams:
        give(cluster, policy("list", namespace, "deny", near_and_far.cidrs(near)))
        assert not gets_in(cluster, near, vip)
        # A new client could get the port of an earlier flow, which goes on.
        cluster.lab.exec(near_and_far.node, "conntrack", "-D", "-p", "udp", "-d", vip)
        assert cluster.count(near, 3, vip, 80, "--udp", "--timeout", "0.3")["answers"] == {}
    assert streams[0]["complete"]


def test_a_policy_has_ten_thousand_ranges(
    cluster: Cluster, namespace: str, web: list[str], near_and_far: Sources
) -> None:
    near, far, vip = near_and_far.pod, near_and_far.far_pod, VIPS["ipv4"]

    def many(*places: str) -> dict[str, Any]:
        first = int(ipaddress.ip_address("20.0.0.0"))
        ranges = [f"{ipaddress.ip_address(first + number * 512)}/24" for number in range(10_000)]
        return policy("many", namespace, "deny", [*ranges, *near_and_far.cidrs(*places)])

    give(cluster, many(near))
    serve(cluster, namespace, vip=vip, policies=["many"])
    assert (gets_in(cluster, near, vip), gets_in(cluster, far, vip)) == (False, True)
    began = time.monotonic()
    cluster.apply(many(far))
    cluster.reaches(near, web, vip, 80, "--timeout", "1")
    print(f"10,001 ranges changed within {time.monotonic() - began:.1f} s")
    enforced(cluster, "many", namespace)
    assert not gets_in(cluster, far, vip)


@pytest.mark.parametrize(
    "cidr",
    [
        "10.0.0.0/33",
        "10.0.0.0",
        "10.0.0.0/8, 0.0.0.0/0",
        "10.0.0.0/8 }; flush ruleset;",
        "10.0.0.0/255.0.0.0",
        "fd00::/129",
        "fe80::1%eth0/64",
        "::ffff:10.0.0.0/104",
        "",
    ],
)
def test_what_is_no_address_range_is_refused(cluster: Cluster, cidr: str) -> None:
    assert "must be an address range such as 10.0.0.0/8 or fd00::/64" in cluster.refused(
        policy("wrong", "default", "deny", [cidr])
    )


def test_a_policy_that_no_farm_could_refer_to_is_refused(cluster: Cluster) -> None:
    assert "must not contain a dot" in cluster.refused(policy("a.b", "default", "deny", []))


def test_policies_are_for_modes_whose_packets_pass_them(cluster: Cluster) -> None:
    listen = [{"ip": VIPS["ipv4"], "ports": "80"}]
    assert "policies require mode" in cluster.refused(
        farm("wrong", "default", addresses=listen, mode="dsr", policies=["list"])
    )


def test_the_policies_are_told_in_columns(cluster: Cluster, namespace: str) -> None:
    listen = [{"ip": VIPS["ipv4"], "ports": "80", "policies": ["list"]}]
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
    give(cluster, policy("list", namespace, "allow", near_and_far.cidrs(near)))
    cluster.apply(service("web", namespace, {"policies": "list"}))
    cluster.run("web", 2, namespace)
    cluster.farm_has("web--http", namespace, 2)
    vip = cluster.vip("web", namespace)
    only(cluster, near_and_far, {near}, vip)
    cluster.scale("web", 0, namespace)
    cluster.farm_has("web--http", namespace, 0)
    # A refusal may get lost between namespaces of one kernel; the SYN sent again after a second gets another.
    refused = {where: cluster.count(where, 3, vip, 80, "--timeout", "2")["failures"] for where in (near, far)}
    assert refused[near]["refused"] == 3, "nobody is there to answer"
    assert refused[far]["timeout"] == 3, "who is kept out does not even learn that"
