"""The commands that run on a node, and the cluster and namespace that are meant."""

import json
import sys
from pathlib import Path

import pytest

from kube_nftlb import errors
from kube_nftlb.commands.cluster.on_nodes import ByCommand, InPods, run
from kube_nftlb.commands.cluster.queries import Target, connected, namespace_of
from kube_nftlb.kube.impersonation import Impersonation

AGENT = {
    "metadata": {"name": "agent-x", "namespace": "sys", "labels": {"app.kubernetes.io/component": "agent"}},
    "spec": {"nodeName": "n1"},
}


def test_a_command_runs_in_the_pod_of_the_agent() -> None:
    target = Target(Path("/config"), "here")
    assert InPods(target, [AGENT]).prefix("n1") == [
        *("kubectl", "--kubeconfig=/config", "--context=here", "--namespace", "sys"),
        *("exec", "agent-x", "--container", "agent", "--"),
    ]
    target = Target(impersonate=Impersonation("jane", "7", ("a", "b")))
    options = ["--as=jane", "--as-uid=7", "--as-group=a", "--as-group=b"]
    assert InPods(target, [AGENT]).prefix("n1")[:5] == ["kubectl", *options]
    with pytest.raises(errors.UsageError, match="--node-command"):
        InPods(target, [AGENT]).prefix("n2")


def test_no_command_runs_in_a_pod_that_has_ended() -> None:
    with pytest.raises(errors.UsageError, match="the agent has no pod there"):
        InPods(Target(), [{**AGENT, "status": {"phase": "Failed"}}]).prefix("n1")


def test_a_command_may_name_the_node_anywhere() -> None:
    assert ByCommand("ssh 'root@{node}' --").prefix("n1") == ["ssh", "root@n1", "--"]
    with pytest.raises(errors.UsageError, match="must contain"):
        ByCommand("ssh somewhere")
    with pytest.raises(errors.UsageError, match="cannot be read: no closing quotation"):
        ByCommand("ssh 'root@{node}")


async def test_what_goes_wrong_on_a_node_is_a_sentence() -> None:
    python = ByCommand(f"{sys.executable} -c 'import sys; sys.exit(sys.argv[1])' {{node}}")
    assert await run(python, "no such\ntable") == ("", "exit status 1: no such table")
    assert await run(ByCommand("/nowhere {node}"), "n1") == ("", "cannot run /nowhere: no such file or directory")
    assert await run(ByCommand("sh -c 'exit 7' {node}"), "n1") == ("", "exit status 7")
    assert await run(ByCommand("echo {node}"), "n1", "x y") == ("n1 x y\n", "")


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    contexts = [
        {"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "shop"}},
        {"name": "two", "context": {"cluster": "c", "user": "u"}},
    ]
    config = {
        "current-context": "one",
        "contexts": contexts,
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    path = tmp_path / "config"
    path.write_text(json.dumps(config))
    return path


def test_the_namespace_is_that_of_the_option_or_of_the_context(
    kubeconfig: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert namespace_of(Target(kubeconfig)) == "shop"
    assert namespace_of(Target(kubeconfig, "two")) == "default"
    assert namespace_of(Target(kubeconfig, "one", "mine")) == "mine"
    assert namespace_of(Target(kubeconfig.parent / "none")) == "default"
    assert caplog.records == [], "what the library logs reaches users"


@pytest.mark.parametrize("target", [Target(Path("/nowhere/config")), Target(context="unknown")])
async def test_a_cluster_that_is_not_known_is_a_sentence(
    kubeconfig: Path, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    with pytest.raises(errors.UnavailableError, match=r"has no context 'unknown', but one, two|there is no kubeconfig"):
        async with connected(target):
            pass
