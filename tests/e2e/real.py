"""A cluster of containers, and kube-nftlb in it as a user installs it."""

import json
import os
import socket
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyroute2.netlink.nfnetlink import nfgen_msg
from pyroute2.netlink.nfnetlink.nftsocket import NFT_MSG_GETTABLE, NFTSocket

from lab import addresses
from lab.lab import Lab
from lab.readiness import is_true
from tests.builders.manifests import deployment
from tests.functional.cluster import Cluster, eventually

CHECKOUT = Path(__file__).parents[2]
CHART = CHECKOUT / "charts/kube-nftlb"
RELEASE = "kube-nftlb"
SYSTEM = "kube-nftlb-system"
PORT = 8080
TRAFFIC = ("python3", "-m", "lab.traffic")
_PATIENCE_S = 240
_CHECKOUT_IN_CONTAINERS = "/checkout"
_GRACE_S = 30  # as without saying so

# The lab's pods answer so as well; here each is a container with the same server.
_SERVER = f"""
import asyncio, os, signal, socket
from lab.kubelet.servers import PodServer
async def serve():
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    server = PodServer(os.environ["HOSTNAME"])
    await server.serve(socket.create_server(("::", {PORT}), family=socket.AF_INET6, dualstack_ipv6=True))
    await ended.wait()
    # Until the nodes no longer send connections here.
    await asyncio.sleep(3)
asyncio.run(serve())
"""


class RealCluster(Cluster):
    """The functional tests' words, with containers for pods."""

    def __init__(self, lab: Lab, helm: Path, image: str) -> None:
        super().__init__(lab)
        self._helm = helm
        self.image = image
        self.tables_before = {node: self.tables(node) for node in self.nodes}
        """The tables of each node without kube-nftlb: a network plugin may have its own."""

    def helm(self, *arguments: str) -> str:
        done = subprocess.run(
            [str(self._helm), *arguments],
            env={**os.environ, "KUBECONFIG": str(self.lab.kubeconfig)},
            capture_output=True,
            text=True,
            timeout=2 * _PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, f"helm {' '.join(arguments)}: {done.stdout}\n{done.stderr}\n{self.trouble()}"
        return done.stdout

    def install(self, *options: str, nodes: list[str] | None = None) -> None:
        """Install the chart, or upgrade it, and wait until all of it is ready, on these nodes or on all."""
        host = f"apiServer.host={addresses.API_HOST}"
        where = ("--namespace", SYSTEM, "--create-namespace", "--wait", "--timeout", f"{_PATIENCE_S}s")
        self.helm("upgrade", "--install", RELEASE, str(CHART), *where, "--set", host, *options)
        # helm's --wait is content with a DaemonSet that may have one node unavailable.
        self.kubectl("rollout", "status", "daemonset/kube-nftlb-agent", "-n", SYSTEM, f"--timeout={_PATIENCE_S}s")
        wanted = self.nodes if nodes is None else nodes
        eventually(lambda: self.ready_nodes() == wanted, f"the NftlbNodes {wanted} are Ready", 60)

    def uninstall(self) -> None:
        """Uninstall the chart, and wait until agents and rules are gone."""
        self.helm("uninstall", RELEASE, "--namespace", SYSTEM, "--wait", "--timeout", "180s")
        of_agents = {"labelSelector": "app.kubernetes.io/component=agent"}
        until(lambda: not self.get("pod", namespace=SYSTEM, **of_agents)["items"], "the agents have ended")

    def is_installed(self) -> bool:
        return any(release["name"] == RELEASE for release in json.loads(self.helm("list", "-n", SYSTEM, "-o", "json")))

    def ready_nodes(self) -> list[str]:
        nodes = (self.get("nftlbnode") or {"items": []})["items"]
        return sorted(node["metadata"]["name"] for node in nodes if is_true(node, "Ready"))

    def system_pods(self, component: str) -> list[dict[str, Any]]:
        """The pods of the operator or the agents that are not on their way out."""
        label = f"app.kubernetes.io/component={component}"
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", "pods", "-n", SYSTEM, "-l", label, "-o", "json"))[
            "items"
        ]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def in_container(self, namespace: str, pod: str, container: str, *command: str) -> str:
        return self.kubectl("exec", "-n", namespace, pod, "-c", container, "--", *command)

    def ask_from_pod(self, pod: str, namespace: str, host: str, port: int, number: int = 20) -> set[str]:
        """The pods that answered a client in a container, provided that no connection failed."""
        counted = json.loads(
            self.in_container(namespace, pod, "server", *TRAFFIC, "count", str(number), host, str(port))
        )
        return set(counted["answers"]) if not any(counted["failures"].values()) else set()

    def serve(self, name: str, replicas: int, namespace: str, node: str | None = None) -> None:
        """A Deployment of containers that say who they are, ready, on any nodes."""
        assert node is None, "the scheduler chooses the nodes"
        self.apply(self.deployment(name, replicas, namespace))
        self.kubectl("rollout", "status", f"deployment/{name}", "-n", namespace, f"--timeout={_PATIENCE_S}s")

    def deployment(self, name: str, replicas: int, namespace: str) -> dict[str, Any]:
        made = deployment(
            name,
            replicas,
            namespace,
            _GRACE_S,
            image=self.image,
            imagePullPolicy="Never",
            command=["python3", "-c", _SERVER],
            env=[{"name": "PYTHONPATH", "value": _CHECKOUT_IN_CONTAINERS}],
            volumeMounts=[{"name": "lab", "mountPath": f"{_CHECKOUT_IN_CONTAINERS}/lab", "readOnly": True}],
            ports=[{"containerPort": PORT}],
            readinessProbe={"httpGet": {"path": "/", "port": PORT}, "periodSeconds": 1, "timeoutSeconds": 5},
        )
        # The image has no lab; all nodes see this machine's files.
        made["spec"]["template"]["spec"]["volumes"] = [{"name": "lab", "hostPath": {"path": str(CHECKOUT / "lab")}}]
        return made

    def farm_has(self, name: str, namespace: str, ready: int) -> None:
        def status() -> dict[str, Any]:
            found: dict[str, Any] = (self.farm(name, namespace) or {}).get("status", {})
            return found

        try:
            until(
                lambda: status().get("readyBackends") == ready and is_true({"status": status()}, "EndpointsProgrammed"),
                f"all nodes have {name} with {ready} backends",
            )
        except AssertionError as error:
            raise AssertionError(f"{error}: {status()}\n{self.trouble()}") from error

    @contextmanager
    def namespace(self) -> Iterator[str]:
        name = f"e2e-{uuid.uuid4().hex[:8]}"
        self.kubectl("create", "namespace", name)
        eventually(lambda: self.get("serviceaccount", "default", name) is not None, f"{name} has a service account")
        try:
            yield name
        finally:
            self.kubectl("delete", "namespace", name, "--wait=false")

    def tables(self, node: str) -> list[str]:
        """The names of all nftables tables of a node, as the kernel tells them.

        nft is not asked: an older one than the container's dies of what that has written.
        """

        def read() -> list[str]:
            with NFTSocket(nfgen_family=socket.AF_UNSPEC) as netlink:
                found = netlink.request_get(nfgen_msg(), NFT_MSG_GETTABLE)
                return sorted(table.get_attr("NFTA_TABLE_NAME") for table in found)

        return self.lab.inside(node, read)

    def trouble(self) -> str:
        """The output to look at if an installation does not become ready."""
        looks = (
            ("get", "pods", "-A", "-o", "wide"),
            ("get", "events", "-n", SYSTEM, "--sort-by=.lastTimestamp"),
            (
                "logs",
                "-n",
                SYSTEM,
                "-l",
                "app.kubernetes.io/name=kube-nftlb",
                "--all-containers",
                "--tail=15",
                "--prefix",
            ),
        )
        return "\n".join(self.try_kubectl(*look).stdout for look in looks)


def until(check: Callable[[], bool], what: str) -> float:
    """As ``eventually``, with the patience that containers need."""
    return eventually(check, what, 90)
