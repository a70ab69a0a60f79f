"""What must not be in the programs' logs."""

from typing import Any

import pytest

from lab import credentials
from tests import engine
from tests.builders.manifests import service
from tests.functional.cluster import Cluster, eventually
from tests.functional.features.test_log_lines import lines

TABLES = {"nftlb": ("ip", "nftlb"), "nftables": ("inet", "kube-nftlb-services")}


def test_a_change_that_touches_no_farm_is_no_line(cluster: Cluster, namespace: str) -> None:
    cluster.apply(service("web", namespace))
    cluster.serve("web", 1, namespace)
    cluster.farm_has("web--http", namespace, 1)

    def serve(sentinel: str) -> None:
        """What happened before this Service has come to the log."""
        cluster.apply(service(sentinel, namespace, selector={"app": "web"}))
        cluster.farm_has(f"{sentinel}--http", namespace, 1)

    def written() -> list[list[dict[str, Any]]]:
        logs = [lines(cluster, "operator"), *(lines(cluster, "agent", node) for node in cluster.nodes)]
        return [[line for line in log if "sentinel" not in line.get("farm", "")] for log in logs]

    serve("sentinel-1")
    before = written()
    for number in range(5):
        for kind, name in (("service", "web"), ("farm", "web--http")):
            annotations = {"example.com/number": str(number)}
            cluster.api.patch(kind, name, namespace, {"metadata": {"annotations": annotations}})
    serve("sentinel-2")
    assert written() == before


@pytest.mark.engines
def test_no_key_token_or_client_is_in_a_log(cluster: Cluster, namespace: str, client: str) -> None:
    """With persistence, UDP, drift, and an nftlb and an agent that are started anew: clients' addresses are handled."""
    node = cluster.nodes[0]
    port = [{"name": "dns", "port": 53, "protocol": "UDP"}]
    cluster.apply(service("web", namespace, {"persistence": "srcip"}), service("names", namespace, ports=port))
    cluster.serve("web", 2, namespace)
    cluster.serve("names", 2, namespace)
    cluster.farm_has("web--http", namespace, 2)
    cluster.farm_has("names--dns", namespace, 2)
    (address,) = {cluster.get("pod", "client", namespace)["status"]["podIP"]}
    cluster.count(client, 5, cluster.vip("web", namespace))
    cluster.count(client, 5, cluster.vip("names", namespace), 53, "--udp")
    assert address in cluster.nft(node, "list", "ruleset"), "the client is remembered"
    cluster.serve("web", 1, namespace)
    cluster.serve("names", 1, namespace)
    cluster.farm_has("web--http", namespace, 1)
    cluster.farm_has("names--dns", namespace, 1)
    cluster.nft(node, "delete", "table", *TABLES[engine.current()])
    cluster.reaches(client, cluster.pods("web", namespace), cluster.vip("web", namespace))
    keys = [cluster.nftlb_key(node)]
    cluster.lab.restart("nftlb", node)
    eventually(lambda: cluster.nftlb_key(node) not in keys, "nftlb has another key")
    keys.append(cluster.nftlb_key(node))
    cluster.lab.restart("agent", node)
    cluster.reaches(client, cluster.pods("web", namespace), cluster.vip("web", namespace))
    logs = {
        path: path.read_text(errors="replace")
        for path in [cluster.lab.log_path("operator"), *(cluster.lab.log_path("agent", each) for each in cluster.nodes)]
    }
    for path, text in logs.items():
        for secret in (*keys, *_tokens(cluster), address):
            assert secret not in text, path.name
        assert "Bearer" not in text


def _tokens(cluster: Cluster) -> list[str]:
    """The tokens of all users of the lab's API server."""
    table = cluster.lab.kubeconfig.parent / "secrets" / credentials.TOKENS
    tokens = [line.partition(",")[0] for line in table.read_text().splitlines()]
    assert tokens
    return tokens
