"""Agent, nftlb and operator of an older commit are replaced by these, and these by the older, under load.

KUBE_NFTLB_FAULT_OLDER names the commit; by default it is the last tag, or without one the 30th before this.
"""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import kube_nftlb
from lab.lab import Lab
from tests import engine
from tests.builders.manifests import service
from tests.functional.cluster import Cluster, eventually
from tests.functional.faults import suite
from tests.functional.faults.load import PODS, Web

ROOT = Path(__file__).parents[3]
BEFORE = "HEAD~30"
OLDER_VERSION = "0.0.1"
PROGRAMS = ("operator", "nftlb", "agent")


def git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        suite.missing("versions", f"git {arguments[0]}: {done.stderr.strip()}")
        pytest.skip(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


@pytest.fixture
def older(tmp_path: Path) -> Iterator[Path]:
    """The tree of the older commit, which gives its version as OLDER_VERSION."""
    tags = git("tag", "--merged", "HEAD~1", "--sort=-creatordate").split()
    commit = git("rev-parse", "--verify", os.environ.get("KUBE_NFTLB_FAULT_OLDER") or next(iter(tags), BEFORE))
    tree = tmp_path / "older"
    git("worktree", "add", "--detach", str(tree), commit)
    try:
        module = tree / "kube_nftlb/__init__.py"
        module.write_text(module.read_text().replace(f'"{_version(module)}"', f'"{OLDER_VERSION}"'))
        yield tree
    finally:
        git("worktree", "remove", "--force", str(tree))


def _version(module: Path) -> str:
    return next(line.split('"')[1] for line in module.read_text().splitlines() if line.startswith("__version__"))


def running(cluster: Cluster) -> set[str]:
    nodes = cluster.get("nftlbnode")["items"]
    return {node["status"].get("versions", {}).get("agent", "") for node in nodes}


def replace(cluster: Cluster, link: Path, tree: Path, version: str) -> None:
    new = link.with_suffix(".new")
    new.symlink_to(tree)
    new.replace(link)
    for program in PROGRAMS:
        cluster.lab.restart(program)
    eventually(lambda: running(cluster) == {version}, f"all agents are of {version}", 60)


def serve(web: Web, name: str) -> None:
    cluster, namespace = web.cluster, web.namespace
    cluster.apply(
        service(name, namespace, {"scheduler": "weight"}, selector={"app": "web"}, sessionAffinity="ClientIP")
    )
    cluster.farm_has(f"{name}--http", namespace, PODS)
    eventually(lambda: bool(cluster.answers(web.client, cluster.vip(name, namespace))), f"{name} is served")


@pytest.mark.long
@pytest.mark.skipif(not suite.LONG, reason="the long form has it: `make faults`")
@pytest.mark.timeout(600)
def test_versions_are_replaced_under_load(tmp_path: Path, older: Path) -> None:
    link = tmp_path / "tree"
    link.symlink_to(older)
    # What is run is found where the link leads, and not in the folder of the lab's first process.
    path = {"PYTHONPATH": str(link), "PYTHONSAFEPATH": "1"}
    settings = {"agent": path, "nftlb": path, "operator": {**engine.OPERATOR, **path}}
    lab = Lab.up(f"versions-{os.getpid()}", nodes=2, settings=settings)
    try:
        with contextlib.closing(Cluster(lab)) as cluster, cluster.namespace() as namespace:
            assert running(cluster) == {OLDER_VERSION}
            web = Web.start(cluster, namespace)
            serve(web, "before")
            for way, tree, version in (("upgrade", ROOT, kube_nftlb.__version__), ("downgrade", older, OLDER_VERSION)):
                with web.loaded() as load:
                    replace(cluster, link, tree, version)
                    serve(web, way)
                    for name in ("web", "before"):
                        assert cluster.answers(web.client, cluster.vip(name, namespace))
                print(way, load)
                for metric, value in (
                    ("connections", load.tcp),
                    ("failed connections", load.tcp_failed),
                    ("datagrams", load.udp),
                    ("lost datagrams", load.udp_lost),
                ):
                    suite.record("versions", metric, "", value, change=way)
                suite.record("versions", "longest gap", "ms", load.longest_gap_ms, change=way)
                assert load.broken == load.tcp_failed == 0, load
                if engine.DEFAULT == "nftables":
                    assert load.udp_lost == 0, load
                assert load.longest_gap_ms < 5000, load
    finally:
        lab.down()
