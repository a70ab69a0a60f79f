"""The chart's objects as a plain manifest, for clusters without Helm: the base of ``charts/manifest``.

``python -m tests.chart.manifest`` writes it anew.
"""

from typing import Any

import yaml

from tests.chart.render import CHART, NAMESPACE, render

FOLDER = CHART.parent / "manifest"
FILE = FOLDER / "kube-nftlb.yaml"

_HEADER = "# Generated from the chart by `python -m tests.chart.manifest`. Do not edit.\n"
_OF_HELM = ("app.kubernetes.io/managed-by", "helm.sh/")
"""Prefixes of the labels and annotations that say who installed an object, and how to remove it."""
_WITHOUT = {"crds": {"enabled": False}}
"""The definitions are in crds/ already, from where kustomization.yaml takes them."""


def objects() -> list[dict[str, Any]]:
    """Return what Helm installs by default, but for the definitions and the hooks, and the namespace before it."""
    made = [body for body in render(_WITHOUT) if "helm.sh/hook" not in body["metadata"].get("annotations", {})]
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        # As docs/install.md asks for: the agents are on the host network.
        "metadata": {"name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "privileged"}},
    }
    return [namespace, *map(without_helm, made)]


def without_helm(body: dict[str, Any]) -> dict[str, Any]:
    """Return an object, and the pods that it makes, without Helm's labels and annotations."""
    for metadata in (body["metadata"], body.get("spec", {}).get("template", {}).get("metadata", {})):
        for key in ("labels", "annotations"):
            kept = {name: value for name, value in metadata.get(key, {}).items() if not name.startswith(_OF_HELM)}
            metadata.pop(key, None)
            if kept:
                metadata[key] = kept
    return body


def text() -> str:
    """Return the manifest."""
    return _HEADER + yaml.safe_dump_all(objects(), width=120, sort_keys=False)


if __name__ == "__main__":
    FILE.write_text(text())
