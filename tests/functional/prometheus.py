"""A real Prometheus beside a lab, with the configuration of examples/ and the rules of the chart."""

import contextlib
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import yaml

from lab import addresses, programs
from tests.functional.cluster import Cluster, eventually

ROOT = Path(__file__).parents[2]
CONFIGURATION = ROOT / "examples" / "prometheus" / "prometheus.yaml"
RULES = ROOT / "charts" / "kube-nftlb" / "alerts" / "kube-nftlb.yaml"
DASHBOARD = ROOT / "charts" / "kube-nftlb" / "dashboards" / "kube-nftlb.json"

WHERE = "client"
_PORT = 9090
_SCRAPE_S = 1
_META = "__meta_kubernetes_"


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard_queries() -> list[str]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def dashboard_variables() -> list[str]:
    """The queries for the values that a user can choose from."""
    variables = json.loads(DASHBOARD.read_text())["templating"]["list"]
    return [each["definition"] for each in variables if each["type"] == "query"]


def series_of(query: str) -> set[str]:
    """The series that a query names."""
    return {
        re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"\b(?:kube_nftlb|process)_[a-z_]+", query)
    }


class Prometheus:
    """Asked over its API."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def api(self, path: str, **arguments: str) -> Any:
        asked = f"/api/v1/{path}?{urlencode(arguments)}"
        reply = self._cluster.http_get("127.0.0.1", asked, _PORT, WHERE)
        assert reply is not None, f"Prometheus does not answer {asked}"
        answer = reply[1]
        assert answer["status"] == "success", (arguments, answer)
        return answer["data"]

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each result."""
        return [(entry["metric"], float(entry["value"][1])) for entry in self.api("query", query=expression)["result"]]

    def value(self, expression: str) -> float:
        """The sum of the results; 0 where there are none."""
        return sum(value for _, value in self.query(expression))

    def becomes(self, expression: str, value: float) -> None:
        self._eventually(lambda: self.value(expression) == value, expression, f"is {value}")

    def becomes_more(self, expression: str, value: float) -> None:
        self._eventually(lambda: self.value(expression) > value, expression, f"is more than {value}")

    def _eventually(self, check: Callable[[], bool], expression: str, what: str) -> None:
        # The process that counts traffic yields to all others: on a busy machine it begins late.
        try:
            eventually(check, f"{expression} {what}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it has {self.query(expression)}") from None


def configuration(cluster: Cluster) -> dict[str, Any]:
    """The configuration of examples/, with static targets: Debian's Prometheus has no Kubernetes discovery."""
    written: dict[str, Any] = yaml.safe_load(CONFIGURATION.read_text())
    (job,) = written["scrape_configs"]
    (discovery,) = job.pop("kubernetes_sd_configs")
    assert discovery == {"role": "pod", "namespaces": {"names": ["kube-nftlb-system"]}}
    hosts = {"operator": ("operator", addresses.API_HOST, "node-1")} | {
        f"agent-{node.name}": ("agent", str(node.addresses[0].ip), node.name) for node in cluster.lab.nodes
    }
    pods = [_pod(name, *place) for name, place in hosts.items()]
    # To be left out: other ports of these Pods, and other Pods.
    pods.append(_pod("operator", "operator", addresses.API_HOST, "node-1", port="health"))
    pods.append(_pod("web", "agent", addresses.API_HOST, "node-1", app="web"))
    return {
        **written,
        "global": {"scrape_interval": f"{_SCRAPE_S}s", "evaluation_interval": f"{_SCRAPE_S}s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{**job, "static_configs": pods}],
    }


def _pod(name: str, component: str, host: str, node: str, port: str = "metrics", app: str = "kube-nftlb") -> Any:
    labels = {
        "pod_label_app_kubernetes_io_name": app,
        "pod_label_app_kubernetes_io_component": component,
        "pod_container_port_name": port,
        "namespace": "kube-nftlb-system",
        "pod_name": name,
        "pod_node_name": node,
    }
    return {"targets": [f"{host}:9195"], "labels": {_META + key: value for key, value in labels.items()}}


@contextlib.contextmanager
def running(cluster: Cluster, folder: Path) -> Iterator[Prometheus]:
    """Prometheus at work, once it has scraped everything."""
    binary = str(programs.prometheus(print)["prometheus"])
    config = folder / "prometheus.yaml"
    config.write_text(yaml.safe_dump(configuration(cluster)))
    arguments = (
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{_PORT}",
    )
    log = (folder / "prometheus.log").open("w")
    process = subprocess.Popen(
        cluster.lab.command(WHERE, binary, *arguments), env=cluster.lab.environment(WHERE), stdout=log, stderr=log
    )
    prometheus = Prometheus(cluster)
    try:
        eventually(lambda: _answers(prometheus), "Prometheus answers", seconds=60)
        prometheus.becomes("up", 1 + len(cluster.nodes))
        yield prometheus
    finally:
        process.terminate()
        process.wait(timeout=20)
        log.close()


def _answers(prometheus: Prometheus) -> bool:
    try:
        return prometheus.value("vector(1)") == 1
    # Before it serves it says so, in plain text.
    except (AssertionError, json.JSONDecodeError):
        return False


def promtool(*arguments: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    binary = programs.prometheus(print)["promtool"]
    return subprocess.run([binary, *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=False)
