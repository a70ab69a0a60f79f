"""Services that nobody touches, with clients in a pod, on a node and outside that try them all the time."""

import contextlib
import itertools
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from lab.traffic.steady import Kind, Stream
from tests import engine
from tests.builders.manifests import client_pod, service
from tests.bystanders.verdict import CONTROL
from tests.functional.cluster import TRAFFIC, Cluster, eventually

CLIENT = "client"
"""The host outside the cluster."""
PORT = 7000
_FAMILIES = ("ipv4", "ipv6")
_INTERVAL_NS = 10_000_000
_FARMS_PER_SERVICE = 4
_PORTS = [
    {"name": "tcp", "port": 80, "protocol": "TCP", "targetPort": PORT},
    {"name": "udp", "port": 80, "protocol": "UDP", "targetPort": PORT},
]
_QUIET: dict[str, Any] = {"selector": {"app": "bystander"}, "ports": _PORTS, "ipFamilyPolicy": "RequireDualStack"}
_SERVICES: dict[str, dict[str, Any]] = {
    "plain": {"type": "NodePort"},
    "sticky": {"type": "NodePort", "sessionAffinity": "ClientIP"},
    "local": {"type": "NodePort", "externalTrafficPolicy": "Local"},
}
_ANNOTATIONS = {"sticky": {"mode": "dnat"}}


class Stage:
    """Bystanders in a namespace, in front of a pod on each node that sends back what it gets."""

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        farms: int,
        engines: Sequence[str] = (engine.DEFAULT,),
        *,
        programmed: bool = True,
    ) -> None:
        """Each of the Services is there once for each engine. Without ``programmed`` it waits for no agents."""
        self._cluster, self._namespace, self._engines = cluster, namespace, engines
        self._interval_ns = _INTERVAL_NS * len(engines)
        self._pods = [f"bystander-{number}" for number, _ in enumerate(cluster.nodes, 1)]
        for pod, node in zip(self._pods, cluster.nodes, strict=True):
            manifest = client_pod(pod, namespace, node)
            cluster.apply({**manifest, "metadata": {**manifest["metadata"], "labels": {"app": "bystander"}}})
        cluster.apply(client_pod("asking", namespace, cluster.nodes[0]))
        for by in engines:
            for name, spec in _SERVICES.items():
                annotations = {"engine": by, **_ANNOTATIONS.get(name, {})}
                cluster.apply(service(f"{name}-{by}", namespace, annotations, **_QUIET, **spec))
        hammered = len(engines) * (len(_SERVICES) + 1)  # those of `local` are split
        others = max(0, farms // _FARMS_PER_SERVICE - len(engines) * len(_SERVICES))
        for number in range(others):
            by = engines[number % len(engines)]
            cluster.apply(service(f"other-{number}", namespace, {"engine": by}, **_QUIET))
        for pod in (*self._pods, "asking"):
            cluster.wait("pod", pod, "Ready", namespace)
        self.patience_s = 60 + farms / 4
        expected = (others + hammered) * _FARMS_PER_SERVICE
        if not programmed:
            return
        eventually(lambda: self._programmed() == expected, f"{expected} farms are on all nodes", self.patience_s)

    def close(self) -> None:
        """Delete the Services, and wait until no node has them: a thousand take longer than a namespace waits."""
        self._cluster.api.delete_all("service", self._namespace)
        forgotten = partial(self._cluster.has_forgotten, f"{self._namespace}.")
        eventually(forgotten, "the nodes have forgotten the bystanders", self.patience_s)

    def _programmed(self) -> int:
        farms = self._cluster.get("farm", namespace=self._namespace)["items"]
        return sum(is_programmed(farm) and farm["status"].get("readyBackends") == len(self._pods) for farm in farms)

    @contextlib.contextmanager
    def hammered(self) -> Iterator[dict[str, Any]]:
        """Try all bystanders during the block; the results by place are filled in after it."""
        results: dict[str, Any] = {}
        self._route_to_pods()
        places = self._places()
        with contextlib.ExitStack() as stack:
            for where in [f"{self._namespace}/{pod}" for pod in self._pods]:
                stack.enter_context(self._running(where, "echo", str(PORT)))
            running = {
                place: stack.enter_context(self._running(where, "steady", stdin=json.dumps(streams)))
                for place, (where, streams) in places.items()
            }
            yield results
            for process in running.values():
                process.terminate()
            for place, process in running.items():
                out, err = process.communicate(timeout=60)
                assert out, err
                results[place] = json.loads(out)

    def _places(self) -> dict[str, tuple[str, list[Stream]]]:
        """The clients, where they are, and what they try. Those in a pod and outside go through the first node."""
        first, last = self._cluster.lab.nodes[0], self._cluster.lab.nodes[-1]
        streams: dict[str, list[Stream]] = {place: self._controls() for place in ("a pod", "a node", "outside")}
        for by, (number, family) in itertools.product(self._engines, enumerate(_FAMILIES)):
            ports = {name: self._node_ports(f"{name}-{by}") for name in _SERVICES}
            vips = {name: self._cluster.vip(f"{name}-{by}", self._namespace, family) for name in _SERVICES}
            for place in ("a pod", "a node"):
                streams[place] += self._streams(f"plain-{by}'s {family}", vips["plain"], {"TCP": 80, "UDP": 80})
                streams[place] += self._streams(f"sticky-{by}'s {family}", vips["sticky"], {"TCP": 80})
            host = str(last.addresses[number].ip)
            streams["a node"] += self._streams(f"plain-{by}'s node port {family}", host, ports["plain"])
            for name in ("plain", "local"):
                host = str(first.addresses[number].ip)
                streams["outside"] += self._streams(f"{name}-{by}'s node port {family}", host, ports[name])
        where = {"a pod": f"{self._namespace}/asking", "a node": last.name, "outside": CLIENT}
        return {place: (where[place], found) for place, found in streams.items()}

    def _streams(self, name: str, host: str, ports: Mapping[str, int]) -> list[Stream]:
        kinds: dict[str, tuple[Kind, ...]] = {"TCP": ("tcp", "tcp-fixed"), "UDP": ("udp", "udp-fixed")}
        return [
            Stream(f"{kind} to {name}", kind, host, port, self._interval_ns * (1 if kind == "tcp" else 2))
            for protocol, port in ports.items()
            for kind in kinds[protocol]
        ]

    def _controls(self) -> list[Stream]:
        """The streams to each pod without a Service: a pod's own process may be late, or the machine."""
        ips = self._ips()
        flows = [Stream(f"{CONTROL} {pod}", "udp-fixed", ips[pod][0], PORT, _INTERVAL_NS) for pod in self._pods]
        last = ips[self._pods[-1]]
        return flows + [
            Stream(f"{CONTROL} {family}", "tcp", ip, PORT, _INTERVAL_NS)
            for family, ip in zip(_FAMILIES, last, strict=True)
        ]

    def _ips(self) -> dict[str, list[str]]:
        """The addresses of the pods, IPv4 first."""
        found = self._cluster.get("pod", namespace=self._namespace)["items"]
        ips = {pod["metadata"]["name"]: [each["ip"] for each in pod["status"]["podIPs"]] for pod in found}
        return {name: sorted(each, key=lambda ip: ":" in ip) for name, each in ips.items()}

    def _node_ports(self, name: str) -> dict[str, int]:
        spec = self._cluster.get("service", name, self._namespace)["spec"]
        return {port["protocol"]: port["nodePort"] for port in spec["ports"]}

    def _route_to_pods(self) -> None:
        """Let the host outside ask pods themselves, as its control."""
        for node in self._cluster.lab.nodes:
            for number, family in enumerate(("-4", "-6")):
                to, via = str(node.pod_cidrs[number]), str(node.addresses[number].ip)
                done = self._cluster.lab.exec(CLIENT, "ip", family, "route", "replace", to, "via", via)
                assert done.returncode == 0, done.stderr

    @contextlib.contextmanager
    def _running(self, where: str, *arguments: str, stdin: str = "") -> Iterator[subprocess.Popen[str]]:
        process = self._cluster.lab.popen(where, *TRAFFIC, *arguments)
        assert process.stdin
        assert process.stderr
        try:
            process.stdin.write(f"{stdin}\n")
            process.stdin.flush()
            assert (line := process.stderr.readline()) == "begun\n", line + process.stderr.read()
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=60)


def is_programmed(farm: Mapping[str, Any]) -> bool:
    """Return True if all nodes have the farm as it is now."""
    conditions = {each["type"]: each for each in farm.get("status", {}).get("conditions", [])}
    programmed = conditions.get("Programmed", {})
    current = programmed.get("observedGeneration") == farm["metadata"]["generation"]
    return bool(current) and programmed.get("status") == "True"
