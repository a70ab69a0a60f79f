"""The columns of kubectl get, and the conditions."""

import pytest

from tests.builders.manifests import farm, policy, service
from tests.functional.cluster import Cluster, eventually

pytestmark = pytest.mark.timeout(120)


def test_the_farms_are_told_in_columns(cluster: Cluster, namespace: str) -> None:
    cluster.apply(service("web", namespace, {"scheduler": "weight"}))
    cluster.run("web", 3, namespace)
    cluster.wait("farm", "web--http", "Programmed", namespace)
    eventually(lambda: _row(cluster, namespace, "web--http").get("BACKENDS") == "3/3", "all backends are ready")
    row = _row(cluster, namespace, "web--http")
    assert row["VIP"] == cluster.vip("web", namespace)
    assert (row["PORTS"], row["PROTO"], row["MODE"], row["SCHEDULER"]) == ("80", "TCP", "snat", "weight")
    eventually(lambda: _row(cluster, namespace, "web--http").get("NODES") == "2/2", "all nodes have it")
    assert _row(cluster, namespace, "web--http")["READY"] == "True"
    assert "AGE" in row


def test_describe_gives_conditions_with_reasons(cluster: Cluster, namespace: str) -> None:
    cluster.apply(service("web", namespace))
    cluster.wait("farm", "web--http", "Programmed", namespace)
    told = cluster.kubectl("describe", "farm", "web--http", "-n", namespace)
    for word in ("Accepted", "Programmed", "Valid", "AllNodes", "NoReadyBackends"):
        assert word in told


def test_a_farm_is_not_ready_while_a_node_does_not_have_it(cluster: Cluster, namespace: str) -> None:
    node = cluster.nodes[1]
    cluster.lab.stop("agent", node)
    try:
        cluster.apply(service("web", namespace))
        eventually(lambda: _row(cluster, namespace, "web--http").get("NODES") == "1/2", "one of two nodes has it")
        eventually(
            lambda: node in cluster.farm("web--http", namespace).get("status", {}).get("reason", ""),
            "the reason names the other",
        )
        assert _row(cluster, namespace, "web--http")["READY"] == "False"
    finally:
        cluster.lab.start("agent", node)
    cluster.wait("farm", "web--http", "Programmed", namespace)


def test_the_nodes_are_told_in_columns(cluster: Cluster) -> None:
    header, *rows = (line.split() for line in cluster.kubectl("get", "nftlbnodes").splitlines())
    nodes = {row[0]: dict(zip(header, row, strict=True)) for row in rows}
    assert set(nodes) == set(cluster.nodes)
    assert all(row["READY"] == "True" for row in nodes.values())
    owners = cluster.get("nftlbnode", cluster.nodes[0])["metadata"]["ownerReferences"]
    assert [(owner["kind"], owner["name"]) for owner in owners] == [("Node", cluster.nodes[0])]


def test_all_of_ours_is_one_category(cluster: Cluster) -> None:
    told = cluster.kubectl("get", "kube-nftlb", "-A")
    assert "nftlbfarm" in told
    assert "nftlbnode" in told


@pytest.mark.engine("nftlb", "the farm is one of nftlb's")
def test_nftlb_is_asked_beside_the_agent_with_its_key(cluster: Cluster, namespace: str) -> None:
    cluster.apply(service("web", namespace))
    cluster.wait("farm", "web--http", "Programmed", namespace)
    assert f'"name": "{namespace}.web--http"' in cluster.nftlb(cluster.nodes[0], "GET", f"/farms/{namespace}.web--http")


def test_the_key_of_nftlb_is_nowhere_to_be_read(cluster: Cluster) -> None:
    for node in cluster.nodes:
        environ = (f"/proc/{cluster.lab.pid('nftlb', node)}/environ", f"/proc/{cluster.lab.pid('nftlb', node)}/cmdline")
        with open(environ[0], "rb") as file:  # noqa: PTH123 - proc files have no size
            pairs = dict(entry.split(b"=", 1) for entry in file.read().split(b"\0") if b"=" in entry)
        key = pairs[b"NFTLB_SERVER_KEY"]
        assert len(key) >= 32
        with open(environ[1], "rb") as file:  # noqa: PTH123 - as above
            assert key not in file.read()
        for component in ("nftlb", "agent"):
            assert key not in cluster.lab.log_path(component, node).read_bytes()


def _row(cluster: Cluster, namespace: str, name: str) -> dict[str, str]:
    done = cluster.try_kubectl("get", "farms", "-n", namespace)
    lines = done.stdout.splitlines()
    if not lines:
        return {}
    starts = [lines[0].index(word) for word in lines[0].split()]
    ends = [*starts[1:], None]
    for line in lines[1:]:
        cells = [line[start:end].strip() for start, end in zip(starts, ends, strict=True)]
        if cells[0] == name:
            return dict(zip(lines[0].split(), cells, strict=True))
    return {}


@pytest.mark.parametrize(
    ("short", "kind"),
    [
        ("farm", "NftlbFarm"),
        ("farms", "NftlbFarm"),
        ("farmpolicy", "NftlbPolicy"),
        ("farmpolicies", "NftlbPolicy"),
        ("farmnode", "NftlbNode"),
        ("farmnodes", "NftlbNode"),
    ],
)
def test_each_kind_has_short_names(cluster: Cluster, short: str, kind: str) -> None:
    explained = cluster.kubectl("explain", short).splitlines()
    assert any(line.split() == ["KIND:", kind] for line in explained)


def test_farms_are_sorted_by_what_their_columns_show(cluster: Cluster, namespace: str) -> None:
    for name, replicas in (("few", 1), ("more", 2), ("none", 0)):
        cluster.apply(service(name, namespace))
        cluster.run(name, replicas, namespace)
        cluster.farm_has(f"{name}--http", namespace, replicas)

    def sorted_by(path: str) -> list[str]:
        options = ("--sort-by", path, "--no-headers")
        return [line.split()[0] for line in cluster.kubectl("get", "farm", "-n", namespace, *options).splitlines()]

    assert sorted_by(".status.readyBackends") == ["none--http", "few--http", "more--http"]
    assert sorted_by(".metadata.name") == ["few--http", "more--http", "none--http"]
    vips = {f"{name}--http": cluster.vip(name, namespace) for name in ("few", "more", "none")}
    assert sorted_by(".spec.addresses[0].ip") == sorted(vips, key=lambda name: vips[name])


def test_wide_columns_say_why(cluster: Cluster, namespace: str) -> None:
    cluster.apply(farm("guarded", namespace, addresses=[{"ip": "10.99.98.1", "ports": "80"}], policies=["nowhere"]))
    cluster.apply(policy("office", namespace, "allow", ["192.0.2.0/24"]))
    eventually(
        lambda: (
            "PolicyMissing: there is no NftlbPolicy" in cluster.kubectl("get", "farm", "-n", namespace, "-o", "wide")
        ),
        "the farm's line says why",
    )
    header = cluster.kubectl("get", "farm", "-n", namespace, "-o", "wide").splitlines()[0].split()
    assert {"FAMILY", "PERSISTENCE", "POLICY", "ACCEPTED", "REASON"} <= set(header)
    cluster.wait("farmpolicy", "office", "Programmed", namespace)
    assert "all nodes (2) have it" in cluster.kubectl("get", "farmpolicy", "-n", namespace, "-o", "wide")
    nodes = cluster.kubectl("get", "farmnodes", "-o", "wide").splitlines()
    assert {"NFTLB", "AGENT", "KERNEL", "MESSAGE"} <= set(nodes[0].split())
    assert "the agent programs farms" in nodes[1]


def test_kubectl_waits_for_a_farm_that_is_mended(cluster: Cluster, namespace: str) -> None:
    cluster.apply(farm("guarded", namespace, addresses=[{"ip": "10.99.98.2", "ports": "80"}], policies=["later"]))
    wait = ("wait", "--for=condition=Programmed", "farm/guarded", "-n", namespace)
    assert cluster.try_kubectl(*wait, "--timeout=3s").returncode != 0
    message = eventually_message(cluster, namespace, "guarded")
    assert "PolicyMissing: an NftlbPolicy that it refers to does not exist; until it does, nobody gets in" in message
    cluster.apply(policy("later", namespace, "allow", ["192.0.2.0/24"]))
    cluster.kubectl(*wait, "--timeout=30s")


def eventually_message(cluster: Cluster, namespace: str, name: str) -> str:
    """The message of the condition Programmed, once it reports a failed node."""

    def condition() -> dict[str, str]:
        conditions = (cluster.farm(name, namespace) or {}).get("status", {}).get("conditions", [])
        return next((each for each in conditions if each["type"] == "Programmed"), {})

    eventually(lambda: condition().get("reason") == "Failed", f"{name} says that a node failed")
    return condition()["message"]
