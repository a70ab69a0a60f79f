"""What runs in a lab: each component's command, environment and place. Computation only."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from lab import addresses, credentials
from lab.addresses import NodePlan
from lab.state import LabFiles

ETCD = "etcd"
API_SERVER = "apiserver"
CONTROLLER_MANAGER = "controller-manager"
KUBELET = "kubelet"
OPERATOR = "operator"
AGENT = "agent"
NFTLB = "nftlb"
KUBE_PROXY = "kube-proxy"
SCHEDULER = "scheduler"
CONTAINERD = "containerd"

NAMESPACES = "namespaces"
"""Pods are network namespaces with a server in each; a stand-in plays kubelet and scheduler."""
CONTAINERS = "containerd"
"""Pods are containers; each node has its kubelet, containerd and runc."""
RUNTIMES = (NAMESPACES, CONTAINERS)

_ETCD_URL = "http://127.0.0.1:2379"
_ETCD_PEER_URL = "http://127.0.0.1:2380"
_CONTROLLERS = (
    "clusterrole-aggregation-controller",
    "cronjob-controller",
    "daemonset-controller",
    "deployment-controller",
    "disruption-controller",
    "endpoints-controller",
    "endpointslice-controller",
    "endpointslice-mirroring-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "replicaset-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "service-cidr-controller",
    "statefulset-controller",
)
_CONTROLLERS_WITH_CONTAINERS = (
    # Takes the taint from a node that has become Ready.
    "node-lifecycle-controller",
    "pod-garbage-collector-controller",
    # By it a pod trusts the API server.
    "root-ca-certificate-publisher-controller",
)
_SYNCS = ("deployment", "replicaset", "service-endpoint", "endpoint", "namespace")


@dataclass(frozen=True)
class Component:
    """A program that the supervisor keeps running; without a node it runs in the control plane's namespace."""

    name: str
    node: str | None
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Blueprint:
    """A lab as it was asked for."""

    files: LabFiles
    nodes: list[NodePlan]
    proxy: str
    programs: Mapping[str, Path]
    operators: int = 1
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """More for a component, named ``agent`` or, on one node alone, ``agent@node-1``: environment variables, or flags of
    kube-proxy."""
    runtime: str = NAMESPACES
    """What pods are made of: one of RUNTIMES."""

    def control_plane(self) -> list[Component]:
        """etcd and the API server, in the order they start."""
        return [self._etcd(), self._api_server()]

    def controllers(self) -> list[Component]:
        """What turns objects into other objects, and pods into namespaces or containers."""
        if self.runtime == NAMESPACES:
            return [self._controller_manager(), self._module(KUBELET, "lab.kubelet", str(self.files.root))]
        return [
            self._controller_manager(),
            self._scheduler(),
            *(self._containerd(node) for node in self.nodes),
        ]

    def kubelets(self) -> list[Component]:
        """What needs a container runtime that answers; nothing where there is none."""
        return [] if self.runtime == NAMESPACES else [self._kubelet(node) for node in self.nodes]

    def operators_and_daemons(self) -> list[Component]:
        """What of kube-nftlb can start before there are nodes."""
        if self.proxy != "kube-nftlb":
            return []
        operators = [self._operator(number) for number in range(1, self.operators + 1)]
        daemons = [self._kube_nftlb(NFTLB, "nftlb-daemon", node, self._node_environment(node)) for node in self.nodes]
        return [*operators, *daemons]

    def proxies(self) -> list[Component]:
        """What makes Services work on each node; nothing for the proxy ``none``."""
        if self.proxy == "kube-nftlb":
            return [self._kube_nftlb(AGENT, "agent", node, self._node_environment(node)) for node in self.nodes]
        if self.proxy.startswith(KUBE_PROXY):
            return [self._kube_proxy(node) for node in self.nodes]
        return []

    def all(self) -> list[Component]:
        """Everything, in the order it starts."""
        return [
            *self.control_plane(),
            *self.controllers(),
            *self.kubelets(),
            *self.operators_and_daemons(),
            *self.proxies(),
        ]

    def _etcd(self) -> Component:
        flags = {
            "data-dir": str(self.files.etcd),
            "listen-client-urls": _ETCD_URL,
            "advertise-client-urls": _ETCD_URL,
            "listen-peer-urls": _ETCD_PEER_URL,
            "initial-advertise-peer-urls": _ETCD_PEER_URL,
            "initial-cluster": f"default={_ETCD_PEER_URL}",
            "quota-backend-bytes": str(4 << 30),
        }
        return Component(ETCD, None, self._command("etcd", flags))

    def _api_server(self) -> Component:
        secrets = self.files.secrets
        key = str(secrets / credentials.SERVICE_ACCOUNT_KEY)
        flags = {
            "etcd-servers": _ETCD_URL,
            "bind-address": "0.0.0.0",  # noqa: S104 (of the lab's own network namespace)
            "secure-port": str(addresses.API_PORT),
            "advertise-address": addresses.API_HOST,
            "tls-cert-file": str(secrets / credentials.CERTIFICATE),
            "tls-private-key-file": str(secrets / credentials.PRIVATE_KEY),
            "token-auth-file": str(secrets / credentials.TOKENS),
            "authorization-mode": "RBAC",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": key,
            "service-account-signing-key-file": key,
            "service-cluster-ip-range": addresses.SERVICE_CIDRS,
            "allow-privileged": "true",
            # Names of nodes are known to nobody's DNS.
            "kubelet-preferred-address-types": "InternalIP",
            "max-requests-inflight": "2000",
            "max-mutating-requests-inflight": "1000",
        }
        return Component(API_SERVER, None, self._command("kube-apiserver", flags))

    def _controller_manager(self) -> Component:
        more = _CONTROLLERS_WITH_CONTAINERS if self.runtime == CONTAINERS else ()
        flags = {
            "kubeconfig": str(self.files.inside_kubeconfig),
            "controllers": ",".join((*_CONTROLLERS, *more)),
            "root-ca-file": str(self.files.secrets / credentials.CERTIFICATE),
            "leader-elect": "false",
            "service-account-private-key-file": str(self.files.secrets / credentials.SERVICE_ACCOUNT_KEY),
            "kube-api-qps": "2000",
            "kube-api-burst": "4000",
            "endpointslice-updates-batch-period": "0",
            "endpoint-updates-batch-period": "0",
            **{f"concurrent-{kind}-syncs": "20" for kind in _SYNCS},
        }
        return Component(CONTROLLER_MANAGER, None, self._command("kube-controller-manager", flags))

    def _scheduler(self) -> Component:
        flags = {"kubeconfig": str(self.files.inside_kubeconfig), "leader-elect": "false"}
        return Component(SCHEDULER, None, self._command("kube-scheduler", flags))

    def _containerd(self, node: NodePlan) -> Component:
        flags = {"config": str(self.files.containerd_config(node.name))}
        return Component(CONTAINERD, node.name, (*self.enter(node), *self._command("containerd", flags)))

    def _kubelet(self, node: NodePlan) -> Component:
        flags = {
            "config": str(self.files.kubelet_config(node.name)),
            "kubeconfig": str(self.files.inside_kubeconfig),
            "hostname-override": node.name,
            "node-ip": ",".join(str(address.ip) for address in node.addresses),
        }
        return Component(KUBELET, node.name, (*self.enter(node), *self._command("kubelet", flags)))

    def enter(self, node: NodePlan) -> tuple[str, ...]:
        """The beginning of a command that sees the mounts of a node's containers."""
        return (str(self.programs["nsenter"]), f"--mount={self.files.mounts(node.name)}", "--")

    def _kube_proxy(self, node: NodePlan) -> Component:
        flags = {
            "kubeconfig": str(self.files.inside_kubeconfig),
            "proxy-mode": self.proxy.rpartition("-")[2],
            "hostname-override": node.name,
            "cluster-cidr": addresses.POD_CIDRS,
            # These are settings of the machine, not of a network namespace.
            "conntrack-max-per-core": "0",
            "conntrack-min": "0",
            "conntrack-tcp-timeout-established": "0s",
            "conntrack-tcp-timeout-close-wait": "0s",
            **self._settings(KUBE_PROXY, node),
        }
        return Component(KUBE_PROXY, node.name, self._command("kube-proxy", flags))

    def _command(self, program: str, flags: Mapping[str, str]) -> tuple[str, ...]:
        return (str(self.programs[program]), *(f"--{flag}={value}" for flag, value in flags.items()))

    def _module(self, name: str, module: str, *arguments: str) -> Component:
        return Component(name, None, (sys.executable, "-m", module, *arguments))

    def _node_environment(self, node: NodePlan) -> dict[str, str]:
        return {
            "KUBE_NFTLB_NODE_NAME": node.name,
            "KUBE_NFTLB_RUN_DIR": str(self.files.run(node.name)),
            "KUBE_NFTLB_NFTLB_PORT": "5555",
            "KUBE_NFTLB_METRICS_ADDRESS": "[::]:9195",
            "KUBE_NFTLB_HEALTH_ADDRESS": "[::]:10256",
        }

    def _operator(self, number: int) -> Component:
        """The first, second, ... operator; all run in the control plane's network, and need ports of their own."""
        ports = 9195 + 100 * (number - 1)
        environment = {
            "KUBE_NFTLB_METRICS_ADDRESS": f"[::]:{ports}",
            "KUBE_NFTLB_HEALTH_ADDRESS": f"[::]:{ports + 1}",
            # One that is killed need not wait for its own lease.
            "KUBE_NFTLB_LEADER_ELECTION": "on" if self.operators > 1 else "off",
        }
        component = self._kube_nftlb(OPERATOR, "operator", None, environment)
        return component if number == 1 else replace(component, name=f"{OPERATOR}-{number}")

    def _kube_nftlb(self, name: str, command: str, node: NodePlan | None, environment: Mapping[str, str]) -> Component:
        where = node.name if node else None
        common = {"KUBECONFIG": str(self.files.kubeconfig_of(name, where)), "KUBE_NFTLB_LOG_LEVEL": "INFO"}
        argv = (sys.executable, "-m", "kube_nftlb", command)
        settings = self._settings(name, node)
        return Component(name, where, argv, {**common, **environment, **settings})

    def _settings(self, name: str, node: NodePlan | None) -> dict[str, str]:
        own = self.settings.get(f"{name}@{node.name}", {}) if node else {}
        return {**self.settings.get(name, {}), **own}


def base_environment(files: LabFiles, *bin_folders: Path) -> dict[str, str]:
    """The environment of everything that runs inside: kubectl and kube-nftlb are found, and find the lab."""
    commands = Path(sys.executable).parent
    folders = ":".join(map(str, (commands, *bin_folders)))
    path = f"{folders}:{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"
    # A helper of the caller's, such as a proxy, cannot be reached from inside.
    outside = {"http_proxy", "https_proxy", "all_proxy", "no_proxy"}
    inherited = {key: value for key, value in os.environ.items() if key.lower() not in outside}
    return {**inherited, "PATH": path, "KUBECONFIG": str(files.inside_kubeconfig), "PYTHONUNBUFFERED": "1"}
