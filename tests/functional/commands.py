"""The commands of kube-nftlb, called in this process: to start Python for each takes a second of CPU time."""

import json
import os
import shlex
import subprocess
from typing import Any

from typer.testing import CliRunner

from kube_nftlb.cli import app
from lab.lab import Lab
from tests.functional.cluster import Cluster


def run(
    cluster: Cluster, *arguments: str, where: str | None = None, **environment: Any
) -> subprocess.CompletedProcess[str]:
    """Run ``kube-nftlb`` with these arguments, on a node or in a pod if ``where`` names it.

    Returns its exit status and what it printed. ``environment`` is set beside KUBECONFIG.
    """
    kubeconfig = cluster.lab.inside_kubeconfig if where else cluster.lab.kubeconfig
    variables = {"KUBECONFIG": str(kubeconfig), **environment}

    def call() -> subprocess.CompletedProcess[str]:
        result = CliRunner().invoke(app, arguments, env=variables, prog_name="kubectl nftlb")
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return subprocess.CompletedProcess(arguments, result.exit_code, result.stdout, result.stderr)

    return cluster.lab.inside(where, call) if where else call()


def node_command(lab: Lab) -> str:
    """Return the value of --node-command for a lab: straight into its nodes, without ``kube-nftlb lab exec``."""
    node = lab.nodes[0].name
    variables = [f"{name}={value}" for name, value in lab.environment(node).items() if os.environ.get(name) != value]
    return shlex.join(["env", *variables, *lab.command(node)]).replace(node, "{node}")


class Kubectl:
    """``kubectl nftlb`` in a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return run(self._cluster, *arguments, **environment)

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "-o", "json").stdout)
