"""MetalLB in a lab: what its programs get, and what is taken from its manifest."""

import re
from pathlib import Path

import pytest
import yaml

from kube_nftlb import errors
from lab import metallb_rights
from lab.addresses import plan_nodes
from lab.components import Blueprint
from lab.metallb import build, plan
from lab.state import LabFiles

NODES = plan_nodes(2)
KINDS = ("CustomResourceDefinition", "ClusterRole", "ServiceAccount", "Namespace", "Deployment", "DaemonSet")


def test_its_version_is_pinned_by_its_sum() -> None:
    pinned = Path(build.__file__).with_name("go.sum").read_text()
    assert re.search(rf"^go.universe.tf/metallb {re.escape(build.version())} h1:", pinned, re.MULTILINE)


def test_rights_are_taken_from_its_manifest_and_workloads_are_not() -> None:
    manifest = yaml.safe_dump_all({"kind": kind, "metadata": {"name": kind}} for kind in KINDS)
    found = [body["kind"] for body in metallb_rights.objects(f"{manifest}---\n")]
    assert found == ["Namespace", "ServiceAccount", "ClusterRole"]


def test_speakers_find_each_other_by_their_pods() -> None:
    controller, *speakers = plan.pods(NODES)
    assert (controller["metadata"]["name"], controller["spec"]["hostNetwork"]) == (plan.CONTROLLER, False)
    for node, pod in zip(NODES, speakers, strict=True):
        given = plan.speaker(node, "/secret")
        assert given["METALLB_POD_NAME"] == pod["metadata"]["name"]
        assert (pod["spec"]["nodeName"], pod["spec"]["hostNetwork"]) == (node.name, True)
        assert given["METALLB_ML_BIND_ADDR"] == str(node.addresses[0].ip)
        labels = dict(pair.split("=") for pair in given["METALLB_ML_LABELS"].split(","))
        assert labels == pod["metadata"]["labels"]


def test_it_runs_beside_kube_proxy_in_a_lab_that_has_its_programs() -> None:
    programs = {
        name: Path("/bin", name)
        for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-proxy", plan.CONTROLLER, plan.SPEAKER)
    }
    made = Blueprint(LabFiles(Path("/lab")), NODES, "kube-proxy-nftables+metallb", programs)
    assert [
        (each.name, each.node) for each in (*made.operators_and_daemons(), *made.proxies(), *made.announcers())
    ] == [
        ("kube-proxy", "node-1"),
        ("kube-proxy", "node-2"),
        (plan.CONTROLLER, None),
        (plan.SPEAKER, "node-1"),
        (plan.SPEAKER, "node-2"),
    ]
    assert "--proxy-mode=nftables" in made.proxies()[0].argv
    controller, speaker, _ = made.announcers()
    assert controller.environment["KUBECONFIG"] != speaker.environment["KUBECONFIG"]


def test_what_was_built_is_not_built_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert not build.there(tmp_path)
    (tmp_path / "metallb" / build.version()).mkdir(parents=True)

    def fail(*_: object) -> Path:
        raise errors.LabError("no Go is needed")

    monkeypatch.setattr("lab.go.find", fail)
    assert build.programs(tmp_path, lambda _: None).keys() == {plan.CONTROLLER, plan.SPEAKER}
    assert build.there(tmp_path)
