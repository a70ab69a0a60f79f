"""The lab of the conformance tests, in the words of the tests.

Objects go straight to the API server and connections are made by this process, inside the namespace of whoever makes
them: a test of a minute's commands would be a test of starting commands. Endpoints are written by hand where a test is
about their conditions, and come from the EndpointSlice controller where it is about pods.
"""

import contextlib
import http.client
import itertools
import json
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from kube_nftlb import names
from lab.lab import Lab
from lab.traffic.ask import Target, ask_tcp, ask_udp, kind_of, open_udp
from lab.traffic.http import Answer
from tests import engine
from tests.functional import api
from tests.functional.api import Object
from tests.functional.cluster import Cluster, eventually

NAMESPACE = "conformance"
CLIENT = "client"
"""The host outside the cluster."""
FAMILIES = ("ipv4", "ipv6")
DUAL = {"ipFamilyPolicy": "PreferDualStack"}
PROXIES = ("kube-nftlb", "kube-proxy-nftables", "kube-proxy-iptables", "none")
COMPONENTS = {"kube-nftlb": ("operator", "nftlb", "agent"), "none": ()}
"""The components that a restart of the proxy restarts; kube-proxy by default."""

SETTINGS = {
    # The profile in which kube-nftlb does as kube-proxy: no address is translated without need.
    "operator": {"KUBE_NFTLB_DEFAULT_MODE": "dnat"},
    "agent": {"KUBE_NFTLB_CONNTRACK_TCP_BE_LIBERAL": "on"},
    "agent@node-3": {"KUBE_NFTLB_NODE_PORT_ADDRESSES": "172.31.0.0/16"},
    "kube-proxy": {
        # It applies to nftables too. By default every second change in a row waits for a second.
        "iptables-min-sync-period": "20ms",
        "iptables-sync-period": "2s",
        "conntrack-tcp-be-liberal": "true",
        "conntrack-tcp-timeout-close-wait": "1h0m0s",
    },
    "kube-proxy@node-3": {"nodeport-addresses": "172.31.0.0/16"},
}

PATIENCE_S = 1.0
"""For an answer that should come; a lost SYN is sent again after a second."""
REFUSAL_S = 1.6
"""For a refusal. Between namespaces of one kernel a packet's answer may come before the sender has let go of its
socket, which then ignores an ICMP message; the one to the SYN sent again after a second counts."""
SILENCE_S = 0.4
"""After which nobody is taken to answer any more."""
_SURE = 24
"""Connections after which each of four endpoints has been chosen, but for one case in a thousand."""


class Pod(NamedTuple):
    """A pod of the tests; its name is what it answers."""

    name: str
    node: str
    ips: dict[str, str]
    namespace: str = NAMESPACE

    @property
    def where(self) -> str:
        """As the lab wants it."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Endpoint:
    """An endpoint of a hand-written slice."""

    pod: Pod
    ready: bool | None = True
    serving: bool | None = None
    terminating: bool | None = None
    zones: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    node: str | None = ""  # the pod's, unless it is said; None for no node

    def body(self, family: str) -> Object:
        conditions = {"ready": self.ready, "serving": self.serving, "terminating": self.terminating}
        hints = {"forZones": _names(self.zones), "forNodes": _names(self.nodes)}
        hints = {key: value for key, value in hints.items() if value}
        return {
            "addresses": [self.pod.ips[family]],
            "conditions": {key: value for key, value in conditions.items() if value is not None},
            **({"hints": hints} if hints else {}),
            **({"nodeName": node} if (node := self.pod.node if self.node == "" else self.node) else {}),
        }


def terminating(pod: Pod, *, serving: bool = True) -> Endpoint:
    """The endpoint of a pod that is being deleted."""
    return Endpoint(pod, ready=False, serving=serving, terminating=True)


def unready(pod: Pod) -> Endpoint:
    """The endpoint of a pod whose probe fails."""
    return Endpoint(pod, ready=False, serving=False, terminating=False)


@dataclass
class Service:
    """A Service of a test."""

    bed: "Testbed"
    name: str
    body: Object = field(default_factory=dict)

    def ip(self, family: str = "ipv4") -> str:
        """Its cluster IP of a family."""
        ips: list[str] = self.body["spec"]["clusterIPs"]
        return next(ip for ip in ips if (":" in ip) == (family == "ipv6"))

    @property
    def ips(self) -> list[str]:
        """All its cluster IPs."""
        return list(self.body["spec"]["clusterIPs"])

    def node_port(self, name: str = "http") -> int:
        """The node port of a port."""
        return int(next(port["nodePort"] for port in self.body["spec"]["ports"] if port["name"] == name))

    def edit(self, **spec: Any) -> None:
        """Change fields of its spec; lists are replaced as a whole."""
        self.body = self.bed.patch("service", self.name, {"spec": self.bed.selecting(spec)})

    def label(self, **labels: str | None) -> None:
        """Set labels, or remove those that are None; keys with dots are given with ``**``."""
        self.body = self.bed.patch("service", self.name, {"metadata": {"labels": labels}})

    def ingress(self, *ips: str, **more: str) -> None:
        """Write the load balancer's addresses, as a cloud or an announcer does."""
        status = {"status": {"loadBalancer": {"ingress": [{"ip": ip, **more} for ip in ips]}}}
        self.body = self.bed.patch("service", self.name, status, subresource="status")

    def endpoints(self, *endpoints: Endpoint | Pod, slice_name: str = "a", ports: list[Object] | None = None) -> Self:
        """Write its slices, one for each family; the ports are by default those of the pods, under the same names."""
        ports = ports if ports is not None else [_slice_port(port) for port in self.body["spec"]["ports"]]
        for family in FAMILIES:
            bodies = [(e if isinstance(e, Endpoint) else Endpoint(e)).body(family) for e in endpoints]
            self.bed.put_slice(self.name, f"{self.name}-{slice_name}-{family}", family, bodies, ports)
        return self

    def delete(self) -> None:
        """Delete it."""
        self.bed.delete("service", self.name, NAMESPACE)


class Testbed(Cluster):
    """Three nodes in the zones a, a and b, pods to reach and pods to ask from."""

    __test__ = False

    def __init__(self, lab: Lab) -> None:
        super().__init__(lab)
        self.number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
        """Of this process: others use the lab at the same time."""
        self.sockets: list[socket.socket] = []
        """Closed after each test."""
        self._numbers = itertools.count(1)
        self._addresses = itertools.count(1)

    @property
    def proxy(self) -> str:
        """The proxy under test."""
        return self.lab.proxy

    # the API server

    def request(self, method: str, path: str, body: Object | None = None, content: str = "application/json") -> Any:
        """Raises AssertionError with the API server's words."""
        return self.api.request(method, path, body, content)

    def create(self, body: Object) -> Any:
        kind = body["kind"].lower()
        return self.request("POST", api.path(kind, None, body["metadata"].get("namespace", NAMESPACE)), body)

    def patch(self, kind: str, name: str, body: Object, namespace: str = NAMESPACE, subresource: str = "") -> Any:
        """A merge patch."""
        path = api.path(kind, name, namespace) + (f"/{subresource}" if subresource else "")
        return self.request("PATCH", path, body, api.MERGE_PATCH)

    def get(self, kind: str, name: str | None = None, namespace: str = NAMESPACE, **options: str) -> Any:
        return self.api.get(kind, name, namespace, **options)

    def delete(self, kind: str, name: str, namespace: str = NAMESPACE) -> None:
        self.api.delete(kind, name, namespace)

    def put_slice(
        self, service: str, name: str, family: str, endpoints: list[Object], ports: list[Object], address_type: str = ""
    ) -> None:
        """Create an EndpointSlice, or replace it."""
        body = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "labels": {
                    "kubernetes.io/service-name": service,
                    "endpointslice.kubernetes.io/managed-by": "conformance",
                },
            },
            "addressType": address_type or {"ipv4": "IPv4", "ipv6": "IPv6"}[family],
            "endpoints": endpoints,
            "ports": ports,
        }
        if self.get("endpointslice", name) is None:
            self.create(body)
        else:
            self.request("PUT", api.path("endpointslice", name, NAMESPACE), body)

    # making things

    def new_name(self, prefix: str = "svc") -> str:
        return f"{prefix}-{self.number}-{next(self._numbers)}"

    def new_ips(self) -> dict[str, str]:
        """Addresses that nobody has, such as a load balancer gives out: of the range for benchmarks (RFC 2544)."""
        number = next(self._addresses)
        return {"ipv4": f"198.18.{self.number}.{number}", "ipv6": f"2001:db8::{self.number:x}:{number:x}"}

    def own(self, labels: Mapping[str, str]) -> dict[str, str]:
        """The labels, for pods and their selectors, with values that no other process uses."""
        return {key: f"{value}-{self.number}" for key, value in labels.items()}

    def add_service(self, name: str | None = None, labels: dict[str, str] | None = None, **spec: Any) -> Service:
        """A Service with the port http, 80, and no selector, of both families, unless ``spec`` says otherwise."""
        name = name or self.new_name()
        body: Object = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "labels": labels or {},
                "annotations": {names.ANNOTATION_PREFIX + key: value for key, value in engine.annotation().items()},
            },
            "spec": {"ports": [{"name": "http", "port": 80}], **DUAL, **self.selecting(spec)},
        }
        if spec.get("type") == "ExternalName":
            del body["spec"]["ipFamilyPolicy"], body["spec"]["ports"]
        return Service(self, name, self.create(body))

    def selecting(self, spec: Object) -> Object:
        """The spec, with a selector of the pods that this process starts."""
        return {**spec, "selector": self.own(spec["selector"])} if spec.get("selector") else spec

    def start_pod(self, name: str, node: str | None, *, labels: dict[str, str] | None = None, **spec: Any) -> None:
        """Create a pod; ``pod`` waits for it."""
        container = {"name": "server", "image": "server", "ports": spec.pop("ports", [])}
        self.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": NAMESPACE, "labels": self.own(labels or {})},
                "spec": {
                    **({"nodeName": node} if node else {}),
                    "terminationGracePeriodSeconds": 0,
                    "containers": [container],
                    **spec,
                },
            }
        )

    def pod(self, name: str) -> Pod:
        """A pod that was created, once it is ready."""
        found: Object = {}

        def is_ready() -> bool:
            found.update(self.get("pod", name))
            conditions = found.get("status", {}).get("conditions", [])
            return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)

        eventually(is_ready, f"the pod {name} is ready")
        ips = {"ipv6" if ":" in entry["ip"] else "ipv4": entry["ip"] for entry in found["status"]["podIPs"]}
        return Pod(name, found["spec"]["nodeName"], ips)

    def delete_now(self, pod: Pod) -> None:
        """Delete a pod and wait until it is gone."""
        self.request("DELETE", api.path("pod", pod.name, NAMESPACE), {"gracePeriodSeconds": 0})
        eventually(lambda: self.get("pod", pod.name) is None, f"{pod.name} is gone")

    def node_ip(self, node: str, family: str = "ipv4") -> str:
        plan = next(plan for plan in self.lab.nodes if plan.name == node)
        return str(plan.addresses[FAMILIES.index(family)].ip)

    def address(self, where: str, family: str) -> str:
        """The address that a place has towards others."""
        if where in self.nodes:
            return self.node_ip(where, family)
        if where == CLIENT:
            return {"ipv4": "172.31.0.200", "ipv6": "fd00:31::c8"}[family]
        return self.pod(where.partition("/")[2]).ips[family]

    @contextlib.contextmanager
    def route(self, vip: str, node: str) -> Iterator[None]:
        """During the block the host outside sends what is for an address through this node."""
        family = "ipv6" if ":" in vip else "ipv4"
        length = 128 if family == "ipv6" else 32
        route = (f"{vip}/{length}", "via", self.node_ip(node, family))
        self.run_in(CLIENT, "ip", f"-{family[-1]}", "route", "replace", *route)
        try:
            yield
        finally:
            self.run_in(CLIENT, "ip", f"-{family[-1]}", "route", "del", *route)

    @contextlib.contextmanager
    def outside_server(self, ip: str, port: int, via: str) -> Iterator[None]:
        """During the block the host outside has this address and answers on it as ``outside``; a node knows the way."""
        family = "ipv6" if ":" in ip else "ipv4"
        prefix = f"{ip}/{128 if family == 'ipv6' else 32}"
        route = (f"-{family[-1]}", "route", "replace", prefix, "via", self.address(CLIENT, family))
        self.run_in(CLIENT, "ip", "addr", "add", prefix, "dev", "lo", *(("nodad",) if family == "ipv6" else ()))
        self.run_in(via, "ip", *route)
        server = OutsideServer(self, ip, port)
        try:
            yield
        finally:
            server.close()
            self.run_in(via, "ip", f"-{family[-1]}", "route", "del", prefix)
            self.run_in(CLIENT, "ip", "addr", "del", prefix, "dev", "lo")

    def run_in(self, where: str, *argv: str) -> str:
        done = self.lab.exec(where, *argv)
        assert done.returncode == 0, f"{' '.join(argv)} in {where}: {done.stderr}"
        return done.stdout

    def restart_proxy(self, node: str | None = None) -> None:
        for component in COMPONENTS.get(self.proxy, ("kube-proxy",)):
            self.lab.restart(component, None if component == "operator" else node)

    # connections

    def ask(
        self, where: str, host: str, port: int = 80, *, udp: bool = False, source_port: int = 0, wait_s: float = 0
    ) -> Answer:
        """Open a connection or send a datagram. Raises OSError."""
        target = Target(host, port, wait_s or PATIENCE_S)

        def run() -> Answer:
            if not udp:
                return ask_tcp(target, source_port)
            with closing(open_udp(target, source_port)) as asker:
                return _ask_udp(asker)

        return self.lab.inside(where, run)

    def outcomes(
        self, where: str, host: str, port: int = 80, number: int = 1, *, udp: bool = False, wait_s: float = SILENCE_S
    ) -> Counter[str]:
        """Names of pods that answered, and kinds of failures, of connections that are all begun at once."""
        seen: Counter[str] = Counter()

        def attempt() -> None:
            target = Target(host, port, wait_s)
            try:
                if udp:
                    with closing(open_udp(target)) as asker:
                        answer = _ask_udp(asker)
                else:
                    answer = ask_tcp(target)
                seen[answer.pod] += 1
            except (OSError, ValueError) as error:
                seen[kind_of(error)] += 1

        def run() -> None:
            # A thread begins in the namespace of the thread that makes it.
            threads = [threading.Thread(target=attempt) for _ in range(number)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        self.lab.inside(where, run)
        return seen

    def answering(self, where: str, host: str, port: int = 80, number: int = _SURE, *, udp: bool = False) -> set[str]:
        """The pods that answer connections made one after the other, up to the first that fails."""
        return {answer.pod for answer in self.answers_to(where, host, port, number, udp=udp)}

    def answers_to(
        self, where: str, host: str, port: int = 80, number: int = _SURE, *, udp: bool = False
    ) -> list[Answer]:
        """The answers to connections made one after the other; none at all when one fails."""
        target = Target(host, port, PATIENCE_S)

        def run() -> list[Answer]:
            answers = []
            for _ in range(number):
                try:
                    if udp:
                        with closing(open_udp(target)) as asker:
                            answers.append(_ask_udp(asker))
                    else:
                        answers.append(ask_tcp(target))
                except (OSError, ValueError):
                    return []
            return answers

        return self.lab.inside(where, run)

    def reach(
        self,
        where: str,
        pods: list[Pod],
        host: str,
        port: int = 80,
        *,
        udp: bool = False,
        keeps_address: bool = False,
        is_masqueraded: bool = False,
    ) -> None:
        """Wait until connections reach all of these pods and no other; those see the client's address, or must not."""
        wanted = {pod.name for pod in pods}
        own = self.address(where, "ipv6" if ":" in host else "ipv4") if keeps_address or is_masqueraded else ""
        answers: list[Answer] = []

        def check() -> bool:
            answers[:] = self.answers_to(where, host, port, _SURE if len(pods) > 1 else 6, udp=udp)
            peers = {answer.peer for answer in answers}
            return (
                {answer.pod for answer in answers} == wanted
                and (not keeps_address or peers == {own})
                and (not is_masqueraded or own not in peers)
            )

        try:
            eventually(check, "")
        except AssertionError:
            seen = dict(self.outcomes(where, host, port, 10, udp=udp))
            peers = sorted({answer.peer for answer in answers})
            raise AssertionError(
                f"{where} reaches {seen} at {host} port {port}/{'udp' if udp else 'tcp'}, not {sorted(wanted)}; "
                f"they last saw it as {peers}{f', it is {own}' if own else ''}"
            ) from None

    @staticmethod
    def together(*checks: Callable[[], None]) -> None:
        """Make several checks at once, and fail with the first of those that fail."""
        with ThreadPoolExecutor(len(checks)) as pool:
            for done in [pool.submit(check) for check in checks]:
                done.result()

    def _fail(self, where: str, kinds: set[str], host: str, port: int, udp: bool, wait_s: float = SILENCE_S) -> None:
        seen: Counter[str] = Counter()

        def check() -> bool:
            seen.clear()
            seen.update(self.outcomes(where, host, port, 3, udp=udp, wait_s=wait_s))
            return set(seen) <= kinds

        try:
            eventually(check, "", 30)
        except AssertionError:
            raise AssertionError(
                f"{where} gets {dict(seen)} at {host} port {port}{'/udp' * udp}, not {' or '.join(sorted(kinds))}"
            ) from None

    def refuse(self, where: str, host: str, port: int = 80, *, udp: bool = False) -> None:
        """Wait until connections are refused: a reset or an ICMP message comes back."""
        self._fail(where, {"refused"}, host, port, udp, REFUSAL_S)

    def drop(self, where: str, host: str, port: int = 80, *, udp: bool = False) -> None:
        """Wait until nothing comes back."""
        self._fail(where, {"timeout"}, host, port, udp)

    def fail(self, where: str, host: str, port: int = 80, *, udp: bool = False) -> None:
        """Wait until nobody answers, in whatever way."""
        self._fail(where, {"refused", "reset", "timeout", "unreachable"}, host, port, udp)

    def http(self, where: str, host: str, port: int, path: str) -> tuple[int, dict[str, str], Any]:
        """Status, headers and body (as JSON if it is) of an HTTP answer. Raises OSError."""

        def run() -> tuple[int, dict[str, str], Any]:
            with closing(http.client.HTTPConnection(host, port, timeout=PATIENCE_S)) as connection:
                connection.request("GET", path)
                answer = connection.getresponse()
                headers = {key.lower(): value for key, value in answer.getheaders()}
                return answer.status, headers, answer.read().decode()

        status, headers, text = self.lab.inside(where, run)
        with contextlib.suppress(ValueError):
            return status, headers, json.loads(text)
        return status, headers, text

    def status_of(self, where: str, host: str, port: int, path: str) -> int | str:
        """The status of an HTTP answer, or the kind of failure."""
        try:
            return self.http(where, host, port, path)[0]
        except (OSError, http.client.HTTPException) as error:
            return kind_of(error)

    @contextlib.contextmanager
    def steady(self, where: str, host: str, port: int = 80) -> Iterator[list[str]]:
        """Connections one after the other during the block; the failures are in the list afterwards."""
        stop, failures, done = threading.Event(), list[str](), Counter[str]()
        target = Target(host, port, 5)

        def run() -> None:
            while not stop.is_set():
                try:
                    done[ask_tcp(target).pod] += 1
                except (OSError, ValueError) as error:
                    failures.append(f"{kind_of(error)} after {done.total()} connections")
                time.sleep(0.002)

        thread = threading.Thread(target=self.lab.inside, args=(where, run))
        thread.start()
        try:
            eventually(lambda: done.total() > 0 or bool(failures), "a first connection was made")
            yield failures
        finally:
            stop.set()
            thread.join()
        assert done.total() > 1

    def connect(self, where: str, host: str, port: int = 80) -> "Connection":
        """A TCP connection that stays open."""
        target = Target(host, port, PATIENCE_S)
        return Connection(self.keep(where, lambda: socket.create_connection((target.host, target.port), 3)))

    def udp_socket(self, where: str, host: str, port: int = 80, source_port: int = 0) -> socket.socket:
        """A UDP socket for many datagrams of one flow."""
        target = Target(host, port, SILENCE_S)
        return self.keep(where, lambda: open_udp(target, source_port))

    def keep(self, where: str, make: Callable[[], socket.socket]) -> socket.socket:
        """A socket that is made in a place, and closed when the test is over."""
        self.sockets.append(self.lab.inside(where, make))
        return self.sockets[-1]

    def close_sockets(self) -> None:
        while self.sockets:
            self.sockets.pop().close()


class Connection:
    """An open TCP connection to a pod."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection

    def ask(self) -> Answer:
        """The pod at the other end. Raises OSError."""
        self.socket.sendall(b"who\n")
        data = self.socket.recv(4096)
        if not data:
            raise ConnectionResetError("closed without an answer")
        pod, peer = data.decode().split()
        return Answer(pod, peer)

    def close(self) -> None:
        self.socket.close()


class OutsideServer:
    """Somebody at the host outside who is no pod, and answers as ``outside``."""

    def __init__(self, bed: Testbed, host: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._server = bed.lab.inside(CLIENT, lambda: socket.create_server((host, port), family=family))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, peer = self._server.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.recv(4096)
                body = f"outside {peer[0]}\n"
                connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())

    def close(self) -> None:
        # A thread in accept() does not notice that its socket is closed.
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join()


def _ask_udp(asker: socket.socket) -> Answer:
    """As ``ask_udp``; on the node itself a rule's refusal is an error of the sending, and then of the receiving."""
    try:
        return ask_udp(asker)
    except PermissionError:
        asker.recv(1)
        raise


def udp_answer(flow: socket.socket) -> str:
    """The pod that answers a datagram of a flow, or the kind of failure."""
    try:
        return _ask_udp(flow).pod
    except (OSError, ValueError) as error:
        return kind_of(error)


def ports(*names: str) -> list[Object]:
    """Ports of a Service that are called as those of the pods are: http 80/TCP, udp 80/UDP, http2 and udp2 on 81."""
    return [
        {"name": name, "port": 81 if name.endswith("2") else 80, "protocol": "UDP" if "udp" in name else "TCP"}
        for name in names
    ]


def server_ports() -> list[Object]:
    """The containerPorts of a server."""
    return [{"name": p["name"], "containerPort": p["port"], "protocol": p["protocol"]} for p in ALL_PORTS]


def with_port(port: Object, /, **more: Any) -> Object:
    """A port with some fields changed."""
    return {**port, **more}


def always(check: Callable[[], bool], seconds: float) -> bool:
    """Return True if ``check`` holds each time for that long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not check():
            return False
        time.sleep(0.05)
    return True


def local(pod: Pod, node: str) -> Endpoint:
    """The endpoint of a pod, said to be on a node."""
    return replace(Endpoint(pod), node=node)


ALL_PORTS = ports("http", "udp", "http2", "udp2")


def _slice_port(port: Object) -> Object:
    target = port.get("targetPort", port["port"])
    return {"name": port["name"], "port": target, "protocol": port.get("protocol", "TCP")}


def _names(names: tuple[str, ...]) -> list[Object]:
    return [{"name": name} for name in names]
