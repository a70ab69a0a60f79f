"""Protocols with more than one connection, and what a kernel may lack for a farm."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.builders.manifests import farm
from tests.functional.cluster import Cluster, eventually
from tests.functional.farms import backends, unique
from tests.functional.features.test_limits import FAMILIES, listening

pytestmark = pytest.mark.engines

FTP = str(Path(__file__).with_name("ftp.py"))
HELPERS = [
    ("amanda", "UDP"),
    ("ftp", "TCP"),
    ("h323", "TCP"),
    ("h323", "UDP"),
    ("irc", "TCP"),
    ("netbios-ns", "UDP"),
    ("pptp", "TCP"),
    ("sane", "TCP"),
    ("sip", "TCP"),
    ("sip", "UDP"),
    ("snmp", "UDP"),
    ("tftp", "UDP"),
]


def condition(cluster: Cluster, name: str, namespace: str) -> dict[str, str]:
    return cluster.condition("farm", name, "Programmed", namespace)


def programmed(cluster: Cluster, name: str, namespace: str) -> dict[str, str]:
    """The condition Programmed once it is known; skips the test where the kernel lacks what the farm needs."""
    eventually(
        lambda: (
            condition(cluster, name, namespace).get("status") == "True"
            or any(
                word in condition(cluster, name, namespace).get("message", "")
                for word in ("KernelFeatureMissing", "Unsupported")
            )
        ),
        f"{name} is programmed or not",
    )
    return condition(cluster, name, namespace)


@pytest.fixture
def ftp_pod(cluster: Cluster, namespace: str) -> Iterator[dict[str, str]]:
    """The addresses of a pod with an FTP server, on the second node."""
    server = cluster.lab.popen(f"{namespace}/server-2", sys.executable, FTP, "serve")
    assert server.stdout is not None, "it is a pipe"
    assert server.stdout.readline() == "ready\n"
    ips = [entry["ip"] for entry in cluster.get("pod", "server-2", namespace)["status"]["podIPs"]]
    yield {"ipv6" if ":" in ip else "ipv4": ip for ip in ips}
    server.terminate()
    server.communicate(timeout=10)


def fetch(cluster: Cluster, client: str, host: str, mode: str) -> dict[str, Any]:
    done = cluster.lab.exec(client, sys.executable, FTP, "fetch", host, "21", mode)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@FAMILIES
@pytest.mark.parametrize("mode", ["active", "passive"])
def test_an_ftp_session_in_either_mode_goes_through_the_farm(
    cluster: Cluster, namespace: str, client: str, ftp_pod: dict[str, str], family: str, mode: str
) -> None:
    server, vip, other_vip = {"name": "ftp", "ip": ftp_pod[family], "port": 21}, unique(family), unique(family)
    cluster.apply(
        farm("ftp", namespace, **listening(vip, family, "21"), helper="ftp", backends=[server]),
        farm("bare", namespace, **listening(other_vip, family, "21"), backends=[server]),
    )
    if (found := programmed(cluster, "ftp", namespace))["status"] != "True":
        pytest.skip(found["message"])
    cluster.farm_has("bare", namespace, 1)
    client_ips = {entry["ip"] for entry in cluster.get("pod", "client", namespace)["status"]["podIPs"]}
    helped = fetch(cluster, client, vip, mode)
    assert helped["complete"]
    if mode == "passive":
        assert helped["data"] == vip, "the client is told the farm's address, not the pod's"
        if family == "ipv6":
            # An address is not told with IPv6, only a port, at which nobody listens without the helper.
            done = cluster.lab.exec(client, sys.executable, FTP, "fetch", other_vip, "21", mode)
            assert done.returncode != 0
        else:
            bare = fetch(cluster, client, other_vip, mode)
            assert bare["data"] == ftp_pod[family], "without the helper it is the pod's"
    else:
        bare = fetch(cluster, client, other_vip, mode)
        assert helped["data"] not in client_ips, "the server is told the node's address, as it sees the client"
        assert bare["data"] in client_ips, "without the helper it is the client's own"


def test_every_helper_is_programmed_or_what_is_missing_is_named(cluster: Cluster, namespace: str, client: str) -> None:
    cluster.serve("web", 1, namespace)
    every, vip = backends(cluster, "web", namespace), unique()
    names = {f"{helper}-{protocol.lower()}": (helper, protocol) for helper, protocol in HELPERS}
    cluster.apply(
        *(
            farm(
                name,
                namespace,
                addresses=[{"ip": vip, "ports": str(3000 + number)}],
                protocol=protocol,
                helper=helper,
                backends=every,
            )
            for number, (name, (helper, protocol)) in enumerate(names.items())
        )
    )
    for number, (name, (helper, protocol)) in enumerate(names.items()):
        found = programmed(cluster, name, namespace)
        if found["status"] == "True" and helper == "snmp":
            # The kernel reads what it is to translate, and drops what is no SNMP.
            assert not cluster.answers(client, vip, 3000 + number, "--udp", "--timeout", "0.5", number=1)
        elif found["status"] == "True":
            udp = ["--udp"] if protocol == "UDP" else []
            assert cluster.answers(client, vip, 3000 + number, *udp, number=2), name
        else:
            assert f"the helper {helper} needs a kernel with CONFIG_" in found["message"]


def test_a_farm_that_needs_a_missing_feature_says_so_and_hurts_nobody(
    cluster: Cluster, namespace: str, client: str
) -> None:
    spec, option = {"queue": 3}, "CONFIG_NFT_QUEUE"
    cluster.serve("web", 1, namespace)
    every, vip, other_vip = backends(cluster, "web", namespace), unique(), unique()
    cluster.apply(farm("plain", namespace, **listening(other_vip, "ipv4"), backends=every))
    cluster.farm_has("plain", namespace, 1)
    recoveries = cluster.recoveries()
    with cluster.hammer(client, other_vip) as bystander:
        cluster.apply(farm("web", namespace, **listening(vip, "ipv4"), **spec, backends=every))
        found = programmed(cluster, "web", namespace)
    if found["status"] == "True":
        pytest.skip(f"this kernel has what {option} brings")
    eventually(lambda: option in condition(cluster, "web", namespace)["message"], "both nodes have said why")
    assert cluster.recoveries() == recoveries
    assert bystander["failures"] == []
    cluster.api.patch("farm", "web", namespace, {"spec": dict.fromkeys(spec)})
    cluster.farm_has("web", namespace, 1)
    assert cluster.answers(client, vip)
    cluster.api.patch("farm", "web", namespace, {"spec": spec})
    eventually(lambda: option in condition(cluster, "web", namespace).get("message", ""), "it is told again")
    assert cluster.answers(client, vip), "what it was before goes on"
