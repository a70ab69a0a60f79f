"""The rendered chart with some sets of values, and the golden files that were reviewed last.

``python -m tests.chart.render`` writes the latter anew: look at the difference before you commit it.
"""

import functools
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from lab import programs
from tests import documents

CHART = Path(__file__).parents[2] / "charts/kube-nftlb"
GOLDEN = Path(__file__).parent / "golden"
NAMESPACE = "kube-nftlb-system"

SPREAD = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
EXTRAS: dict[str, Any] = {
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://192.0.2.9"}],
    "extraVolumes": [{"name": "more", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
}

BGP: dict[str, Any] = {"enabled": True, "table": 5000, "bird": {"passwordSecret": "bgp"}}

VALUES: dict[str, dict[str, Any]] = {
    "default": {},
    "replacing-kube-proxy": {
        "apiServer": {"host": "192.0.2.10", "port": 443},
        "profile": "kube-proxy",
        "operator": {"hostNetwork": True},
        "image": {"repository": "registry.example/kube-nftlb", "tag": "1.2.3", "pullSecrets": ["mine"]},
    },
    "everything": {
        "image": {"digest": "sha256:" + "0123456789abcdef" * 4, "pullPolicy": "Always"},
        "apiServer": {"hosts": ["192.0.2.10", "192.0.2.11", "2001:db8::12"]},
        "externalIPs": {"ranges": ["192.0.2.0/24", "2001:db8::/64"]},
        "annotations": {
            "sourceAddressRanges": ["198.51.100.0/24"],
            "marks": ["0x10000-0xf0000", 0x1000000],
            "queues": ["all"],
            "helpers": [],
        },
        "nodePortAddresses": ["10.0.0.0/8", "fd00::/8"],
        "podCIDRs": ["10.244.0.0/16"],
        "conntrack": {"tcpCloseWaitSeconds": 0, "tcpBeLiberal": True},
        "log": {"level": "DEBUG", "format": "console"},
        "commonLabels": {"team": "net"},
        "revisionHistoryLimit": 3,
        "resourceQuota": {"enabled": True},
        "dsr": {"enabled": True},
        "operator": {
            "replicas": 3,
            "relistSeconds": 60,
            "notProgrammedSeconds": 90,
            "statusesPerSecond": 100,
            "agentSilentSeconds": 600,
            "nodeSelector": {"role": "infra"},
            "tolerations": [],
            "affinity": {"nodeAffinity": {}},
            "priorityClassName": "high",
            "podAnnotations": {"a": "operator"},
            "topologySpreadConstraints": [SPREAD],
            "serviceAccountAnnotations": {"c": "operator"},
            "networkPolicy": {
                "enabled": True,
                "metricsFrom": [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}],
            },
            "podLabels": {"b": "operator"},
            **EXTRAS,
            "resources": {"limits": {"memory": "1Gi", "cpu": 2}, "requests": None},
        },
        "agent": {
            "syncOverdueSeconds": 30,
            "reportSeconds": 1.5,
            "proxyMode": True,
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "affinity": {"nodeAffinity": {}},
            "updateStrategy": {"maxUnavailable": 3},
            "serviceAccountAnnotations": {"c": "agent"},
            "podAnnotations": {"a": "agent"},
            "podLabels": {"b": "agent"},
            **EXTRAS,
        },
        "readinessGate": {"enabled": True, "admissionPolicy": True},
        "serviceStatus": {"enabled": True},
        "addresses": {"enabled": True, "withoutClass": True, "bgp": BGP},
        "gateway": {"enabled": True, "engine": "auto"},
        "userRoles": {"aggregateFarmEditor": True},
        "metrics": {"perFarm": {"enabled": True, "farms": 50, "backends": 0, "selector": "team in (a,b),!quiet"}},
        "podMonitor": {"enabled": True, "interval": "10s", "labels": {"release": "prometheus"}},
        "serviceMonitor": {"enabled": True, "interval": "10s", "labels": {"release": "prometheus"}},
        "prometheusRule": {
            "enabled": True,
            "runbooks": "https://git.example/kube-nftlb/",
            "labels": {"release": "prometheus"},
        },
        "dashboard": {"enabled": True},
    },
    "little": {
        "externalIPs": {"enabled": False},
        "crds": {"enabled": False},
        "userRoles": {"enabled": False},
        "operator": {"replicas": 1, "podDisruptionBudget": False},
        "agent": {"metricsOnLoopback": True},
    },
}
"""The sets of values to compare."""

_COPIED = ("CustomResourceDefinition", "PrometheusRule")
"""Kinds that only contain a file of the chart: only their metadata is compared."""


@functools.cache
def _program() -> str:
    return str(programs.helm(print))


def helm(*arguments: str, values: Mapping[str, Any] | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run Helm with ``values`` on standard input."""
    given = ("--values", "-") if values is not None else ()
    return subprocess.run(
        [_program(), *arguments, *given],
        input=yaml.safe_dump(values) if values is not None else None,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        **options,
    )


def render(values: Mapping[str, Any], chart: Path = CHART, namespace: str = NAMESPACE) -> list[dict[str, Any]]:
    """Return the chart's objects with these values."""
    done = helm("template", "kube-nftlb", str(chart), "--namespace", namespace, values=values)
    assert done.returncode == 0, done.stderr
    return documents.parse_all(done.stdout)


def by_key(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """Return objects by identity, regardless of order; each must occur once."""
    found = {f"{body['kind']} {body['metadata']['name']}": body for body in objects}
    assert len(found) == len(objects)
    return found


def comparable(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the same, without the contents of files of the chart."""
    slim = [
        {key: body[key] for key in ("apiVersion", "kind", "metadata")} if body["kind"] in _COPIED else body
        for body in objects
    ]
    found = by_key(slim)
    if dashboard := found.get("ConfigMap kube-nftlb-dashboard"):
        dashboard["data"] = sorted(dashboard["data"])
    return found


def golden(name: str) -> Path:
    return GOLDEN / f"{name}.yaml"


def renew() -> None:
    """Write all golden files."""
    for name, values in VALUES.items():
        golden(name).write_text(yaml.safe_dump(comparable(render(values)), width=120))


if __name__ == "__main__":
    renew()
