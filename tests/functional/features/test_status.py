"""The columns of kubectl get, and the conditions. ``tests/unit/operator/status`` has what the operator writes."""

from functools import partial

from tests.builders.manifests import farm, policy, service
from tests.functional.cluster import Cluster, eventually
from tests.functional.farms import unique


def test_farms_are_told_in_columns_and_sorted_by_them(cluster: Cluster, namespace: str) -> None:
    for name, replicas in (("few", 1), ("more", 3), ("none", 0)):
        cluster.serve(name, replicas, namespace)
        cluster.apply(service(name, namespace, {"scheduler": "weight"}))
    for name, replicas in (("few", 1), ("more", 3), ("none", 0)):
        cluster.farm_has(f"{name}--http", namespace, replicas)

    def has(name: str, column: str, text: str) -> bool:
        return _row(cluster, namespace, name).get(column) == text

    for name, text in (("none", "0/0"), ("few", "1/1"), ("more", "3/3")):
        eventually(partial(has, f"{name}--http", "BACKENDS", text), "all backends are ready")
    eventually(partial(has, "more--http", "NODES", "2/2"), "all nodes have it")
    row = _row(cluster, namespace, "more--http")
    vips = {f"{name}--http": cluster.vip(name, namespace) for name in ("few", "more", "none")}
    assert row["VIP"] == vips["more--http"]
    assert (row["PORTS"], row["PROTO"], row["MODE"], row["SCHEDULER"]) == ("80", "TCP", "snat", "weight")
    assert row["READY"] == "True"
    assert "AGE" in row

    def sorted_by(path: str) -> list[str]:
        options = ("--sort-by", path, "--no-headers")
        return [line.split()[0] for line in cluster.kubectl("get", "farm", "-n", namespace, *options).splitlines()]

    assert sorted_by(".status.readyBackends") == ["none--http", "few--http", "more--http"]
    assert sorted_by(".spec.addresses[0].ip") == sorted(vips, key=lambda name: vips[name])
    shown = cluster.kubectl("describe", "farm", "none--http", "-n", namespace)
    for word in ("Accepted", "Programmed", "Valid", "AllNodes", "NoReadyBackends"):
        assert word in shown


def test_nodes_are_told_in_columns_and_all_of_ours_is_one_category(cluster: Cluster, namespace: str) -> None:
    cluster.apply(service("web", namespace))
    cluster.wait("farm", "web--http", "Programmed", namespace)
    header, *rows = (line.split() for line in cluster.kubectl("get", "farmnodes").splitlines())
    nodes = {row[0]: dict(zip(header, row, strict=True)) for row in rows}
    assert set(nodes) == set(cluster.nodes)
    assert all(row["READY"] == "True" for row in nodes.values())
    owners = cluster.get("nftlbnode", cluster.nodes[0])["metadata"]["ownerReferences"]
    assert [(owner["kind"], owner["name"]) for owner in owners] == [("Node", cluster.nodes[0])]
    shown = cluster.kubectl("get", "kube-nftlb", "-A", "-o", "name")
    assert "nftlbfarm" in shown
    assert "nftlbnode" in shown


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


def test_wide_columns_say_why_and_kubectl_waits_until_it_is_mended(cluster: Cluster, namespace: str) -> None:
    cluster.apply(farm("guarded", namespace, addresses=[{"ip": unique(), "ports": "80"}], policies=["office"]))

    def wide(kind: str) -> str:
        return cluster.kubectl("get", kind, "-n", namespace, "-o", "wide")

    sentence = "NftlbPolicy 'office' not found; all clients' packets are dropped until it exists"
    eventually(lambda: "PolicyMissing: NftlbPolicy 'office' not found" in wide("farm"), "the farm's line says why")
    assert {"FAMILY", "PERSISTENCE", "POLICY", "ACCEPTED", "REASON"} <= set(wide("farm").splitlines()[0].split())
    eventually(lambda: sentence in _programmed(cluster, "guarded", namespace)["message"], "its condition says why")
    wait = ("wait", "--for=condition=Programmed", "farm/guarded", "-n", namespace)
    assert cluster.try_kubectl(*wait, "--timeout=1s").returncode != 0
    cluster.apply(policy("office", namespace, "allow", ["192.0.2.0/24"]))
    cluster.kubectl(*wait, "--timeout=30s")
    cluster.wait("farmpolicy", "office", "Programmed", namespace)
    assert "all nodes (2) have it" in wide("farmpolicy")
    nodes = wide("farmnodes").splitlines()
    assert {"NFTLB", "AGENT", "KERNEL", "MESSAGE"} <= set(nodes[0].split())
    assert "the agent programs farms" in nodes[1]


def _programmed(cluster: Cluster, name: str, namespace: str) -> dict[str, str]:
    return cluster.condition("farm", name, "Programmed", namespace) or {"message": ""}


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
