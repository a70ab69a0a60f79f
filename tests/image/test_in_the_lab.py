"""The image's programs in place of the lab's own: the same cluster, rights and node; another Debian and nftables."""

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from lab import components
from lab.state import LabFiles
from tests import labs
from tests.builders.manifests import client_pod, service
from tests.functional.cluster import Cluster, eventually
from tests.image import build

pytestmark = [pytest.mark.timeout(1800), pytest.mark.long]

NODE = "node-1"
ROOT, NOBODY = "0:0", "65532:65532"
_IN_ROOT = """
mount --bind "$1" "$1"; mount -o remount,ro,bind "$1"; mount -t proc proc "$1/proc"; mount --rbind /dev "$1/dev"
mount --bind "$2" "$1/mnt"; mount --bind "$3" "$1/run"
exec chroot --userspec="$4" "$1" kube-nftlb "$5"
"""


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with what the image's programs say."""
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, logs: Path) -> Iterator[Cluster]:
    """A cluster of one node, on which all of kube-nftlb is the image's."""
    if os.geteuid() != 0:
        pytest.skip("needs root: debootstrap, and chroot isolation")
    folder = tmp_path_factory.mktemp("image")
    root, secrets = folder / "root", folder / "secrets"
    secrets.mkdir()
    secrets.chmod(0o755)
    build.build().unpack(root)
    name = f"image-{os.getpid()}"
    lab = labs.up(name, nodes=1)
    with ExitStack() as stack:
        stack.callback(lab.down)
        files = LabFiles.of(name)
        for component, node in ((components.OPERATOR, None), (components.AGENT, NODE)):
            config = json.loads(files.kubeconfig_of(component, node).read_text())
            authority = config["clusters"][0]["cluster"]
            (secrets / "ca.crt").write_bytes(Path(authority["certificate-authority"]).read_bytes())
            authority["certificate-authority"] = "/mnt/ca.crt"
            (secrets / component).write_text(json.dumps(config))
        for component in (components.OPERATOR, components.AGENT, components.NFTLB):
            lab.stop(component)
        operator = {
            "KUBECONFIG": "/mnt/operator",
            "KUBE_NFTLB_METRICS_ADDRESS": "127.0.0.1:9295",
            "KUBE_NFTLB_HEALTH_ADDRESS": "127.0.0.1:9296",
        }
        for command, user, environment in (
            ("nftlb-daemon", ROOT, {}),
            ("agent", ROOT, {"KUBECONFIG": "/mnt/agent", "KUBE_NFTLB_NODE_NAME": NODE}),
            ("operator", NOBODY, operator),
        ):
            settings = ["KUBE_NFTLB_RUN_DIR=/run"] + [f"{key}={value}" for key, value in environment.items()]
            path = "PATH=/opt/kube-nftlb/bin:/usr/sbin:/usr/bin:/sbin:/bin"
            shell = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", _IN_ROOT, "sh"]
            argv = ["env", "-i", path, "HOME=/", "PYTHONDONTWRITEBYTECODE=1", *settings, *shell]
            log = stack.enter_context((logs / f"{command}.log").open("wb"))
            process = subprocess.Popen(
                [*lab.command(NODE, *argv), str(root), str(secrets), str(files.run(NODE)), user, command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
        for program, word in (("operator", "operator started"), ("agent", "adopted farms")):
            # Compiled anew each time, as a read-only root wants it.
            eventually(partial(_contains, logs / f"{program}.log", word), f"the {program} works", 180)
        with contextlib.closing(Cluster(lab)) as cluster:
            yield cluster
    for file in logs.glob("*.log"):
        print(f"--- {file.name}\n{file.read_text(errors='replace')[-3000:]}")
    subprocess.run(["rm", "-rf", str(root)], check=True)


def _contains(file: Path, word: str) -> bool:
    return word in file.read_text()


def test_operator_and_agent_out_of_the_built_root_serve_a_service(cluster: Cluster) -> None:
    with cluster.namespace() as name:
        cluster.apply(client_pod("client", name, NODE), service("web", name))
        cluster.wait("pod", "client", "Ready", name)
        cluster.run("web", 2, name)
        cluster.farm_has("web--http", name, 2)
        client, vip = f"{name}/client", cluster.vip("web", name)
        assert cluster.answers(client, vip, 80) == set(cluster.pods("web", name))
        cluster.scale("web", 3, name)
        cluster.rolled_out("web", 3, name)
        cluster.farm_has("web--http", name, 3)
        assert cluster.answers(client, vip, 80) == set(cluster.pods("web", name))
    running = {entry["component"] for entry in cluster.lab.status() if entry["pid"]}
    assert not running & {components.OPERATOR, components.AGENT, components.NFTLB}, "the lab's own stay away"


@pytest.mark.usefixtures("cluster")
def test_nothing_went_wrong_meanwhile(logs: Path) -> None:
    for name in ("operator", "agent"):
        lines = [json.loads(line) for line in (logs / f"{name}.log").read_text().splitlines() if line.startswith("{")]
        assert lines
        assert [line for line in lines if line["level"] in ("warning", "error")] == []
