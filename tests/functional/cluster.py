"""A lab as the functional tests use it: objects, connections, nodes."""

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import yaml

from kube_nftlb import names
from kube_nftlb.settings import NftlbSettings
from lab.components import NFTLB
from lab.lab import Lab
from lab.traffic import command as traffic
from tests import labs
from tests.builders.manifests import deployment, service
from tests.functional.api import Api

if TYPE_CHECKING:
    from tests.functional.stage import Stage

TRAFFIC = (sys.executable, "-m", "lab.traffic")
_OF_TESTS = re.compile(r"test-[0-9a-f]{8}[\w.-]*")
"""The name of a test's namespace, with what comes after it."""


def eventually(check: Callable[[], bool], what: str, seconds: float = 90) -> float:
    """Wait until ``check`` holds and return how many seconds that took. Raises AssertionError with ``what``.

    A test whose claim is a time passes ``seconds``; without, they only end what hangs, also on a busy machine, and
    where a program learns only by the next bookmark that it has missed nothing: the API server sends one each minute.
    """
    start = looked_at = time.monotonic()
    while not check():
        now = time.monotonic()
        if now - start > seconds:
            raise AssertionError(f"after {seconds} s not yet true: {what}")
        # Most checks start a program: checking all the time would take the processor from what is tested.
        time.sleep(min(max(now - looked_at, 0.02), 0.5))
        looked_at = time.monotonic()
    return time.monotonic() - start


class Cluster:
    """A lab, through kubectl and through connections."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.api = Api(lab.kubeconfig)
        self.stage: Stage | None = None
        """That of the test which runs."""
        self._environment = {**os.environ, "KUBECONFIG": str(lab.kubeconfig)}

    def close(self) -> None:
        self.api.close()

    # kubectl

    def try_kubectl(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.lab.bin / "kubectl"), *arguments],
            env=self._environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        done = self.try_kubectl(*arguments, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def apply(self, *objects: dict[str, Any]) -> None:
        for each in objects:
            self.api.apply(each)

    def refused(self, *objects: dict[str, Any]) -> str:
        """Return the API server's message for objects that it rejects."""
        done = self.try_kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))
        assert done.returncode != 0, "the API server accepted it"
        return done.stderr

    def get(self, kind: str, name: str | None = None, namespace: str = "default", **options: str) -> Any:
        return self.api.get(kind, name, namespace, **options)

    def delete(self, kind: str, name: str, namespace: str = "default") -> None:
        self.api.delete(kind, name, namespace)

    def new_namespace(self) -> str:
        """Create a namespace for tests, which admits pods."""
        name = f"test-{uuid.uuid4().hex[:8]}"
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        # A namespace admits no pods before it has its service account.
        eventually(lambda: self.get("serviceaccount", "default", name) is not None, f"{name} has a service account")
        return name

    @contextlib.contextmanager
    def namespace(self) -> Iterator[str]:
        """A namespace for a test, deleted afterwards; that its contents go is looked at when all tests are over."""
        name = self.new_namespace()
        try:
            yield name
        finally:
            # The namespace controller takes its time.
            for kind in ("service", "farm", "deployment", "pod"):
                self.api.delete_all(kind, name)
            self.delete("namespace", name)

    def kept_nothing(self) -> None:
        """Delete the namespaces of tests. Raises AssertionError if a node has a farm that the API does not have.

        Or if a rule, chain, set or element of any kind still has the name of such a namespace. Nodes whose nftlb was
        stopped are not looked at, nor farms of the namespace ``default``.
        """
        for name in (each["metadata"]["name"] for each in self.get("namespace")["items"]):
            if name.startswith("test-"):
                for kind in ("service", "farm"):
                    self.api.delete_all(kind, name)
                self.delete("namespace", name)
        daemons = (each for each in self.lab.status() if each["component"] == NFTLB)
        serving = [each["node"] for each in daemons if each["state"] != "stopped"]

        def stays() -> set[str]:
            wanted = [farm["metadata"] for farm in self.get("farm", namespace="")["items"]]
            known = {names.node_farm_name(each["namespace"], each["name"]) for each in wanted}
            found = {farm for farm in self.node_farms(nodes=serving) if "." in farm} - known
            return found.union(*(_OF_TESTS.findall(self.nft(node, "list", "ruleset")) for node in serving))

        with contextlib.suppress(AssertionError):
            eventually(lambda: not stays(), "no node has what the API does not have", 30)
        assert not (found := stays()), f"nodes have what the API does not have: {', '.join(sorted(found))}"

    def reason(self, farm: str, namespace: str) -> str:
        """Return the ``reason`` in a farm's status, empty while there is none."""
        return str(self.farm(farm, namespace).get("status", {}).get("reason", ""))

    def condition(self, kind: str, name: str, condition: str, namespace: str = "default") -> dict[str, Any]:
        """Return a condition of an object, empty while it has none."""
        found = (self.get(kind, name, namespace) or {}).get("status", {}).get("conditions", [])
        return next((each for each in found if each["type"] == condition), {})

    def wait(self, kind: str, name: str, condition: str, namespace: str = "default", seconds: float = 30) -> None:
        eventually(
            lambda: self.condition(kind, name, condition, namespace).get("status") == "True",
            f"the {kind} {name} is {condition}",
            seconds,
        )

    def serve(self, name: str, replicas: int, namespace: str, node: str | None = None) -> None:
        """Let this many servers of the stage, those of a node if one is given, be the pods of the app ``name``."""
        assert self.stage, "only the namespace of the stage has servers: start a Deployment"
        assert self.stage.namespace == namespace, "only the namespace of the stage has servers: start a Deployment"
        self.stage.serve(name, replicas, node)

    def expose(self, name: str, replicas: int, namespace: str) -> str:
        """Have so many servers of the stage behind a Service; its cluster IP, once all nodes have programmed it."""
        self.apply(service(name, namespace))
        self.serve(name, replicas, namespace)
        self.farm_has(f"{name}--http", namespace, replicas)
        return self.vip(name, namespace)

    def run(self, name: str, replicas: int, namespace: str, grace_s: int = 0, **container: Any) -> None:
        """Create a Deployment of servers and wait until it is ready; where its pods stay as they are, use ``serve``."""
        self.apply(deployment(name, replicas, namespace, grace_s, **container))
        self.rolled_out(name, replicas, namespace)

    def scale(self, name: str, replicas: int, namespace: str) -> None:
        self.api.patch("deployment", name, namespace, {"spec": {"replicas": replicas}})

    def rolled_out(self, name: str, replicas: int, namespace: str) -> None:
        def is_so() -> bool:
            deployment = self.get("deployment", name, namespace)
            status = deployment["status"]
            counted = [status.get(key, 0) for key in ("replicas", "updatedReplicas", "availableReplicas")]
            return (
                status.get("observedGeneration") == deployment["metadata"]["generation"] and counted == [replicas] * 3
            )

        eventually(is_so, f"the pods of {name} are ready", 60)
        assert len(self.pods(name, namespace)) == replicas

    def pods(self, app: str, namespace: str) -> list[str]:
        """The names of an app's pods that are not terminating."""
        items = self.get("pod", namespace=namespace, labelSelector=f"app={app}")["items"]
        return [item["metadata"]["name"] for item in items if "deletionTimestamp" not in item["metadata"]]

    def vip(self, name: str, namespace: str, family: str = "ipv4") -> str:
        ips: list[str] = self.get("service", name, namespace)["spec"]["clusterIPs"]
        return next(ip for ip in ips if (":" in ip) == (family == "ipv6"))

    @contextlib.contextmanager
    def applied(self, manifests: str) -> Iterator[None]:
        """Apply manifests for the block."""
        self.kubectl("apply", "-f", "-", stdin=manifests)
        try:
            yield
        finally:
            self.kubectl("delete", "-f", "-", stdin=manifests)

    @contextlib.contextmanager
    def frozen(self, component: str, node: str) -> Iterator[None]:
        """Stop a program of a node for the block, which it does not notice."""
        pid = self.lab.pid(component, node)
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def farm(self, name: str, namespace: str) -> Any:
        return self.get("farm", name, namespace)

    def farm_has(self, name: str, namespace: str, ready: int) -> None:
        """Wait until all nodes have programmed the farm with ``ready`` backends."""

        def check() -> bool:
            status = (self.farm(name, namespace) or {}).get("status", {})
            conditions = {each["type"]: each["status"] for each in status.get("conditions", [])}
            everywhere = all(conditions.get(kind) == "True" for kind in ("Programmed", "EndpointsProgrammed"))
            return bool(status.get("readyBackends") == ready and everywhere)

        try:
            eventually(check, f"all nodes have {name} with {ready} backends")
        except AssertionError as error:
            nodes = {node: self.get("nftlbnode", node)["status"] for node in self.nodes}
            slices = self.get("endpointslice", namespace=namespace)["items"]
            told = self.lab.log_path("operator").read_text()[-2000:]
            raise AssertionError(f"{error}: {self.farm(name, namespace)}, {nodes}, {slices}, {told}") from error

    def listed(self, name: str, namespace: str, number: int) -> list[dict[str, Any]]:
        """Wait until the status of a farm lists ``number`` backends, later than it counts them, and return these."""
        found: list[dict[str, Any]] = []

        def check() -> bool:
            found[:] = (self.farm(name, namespace) or {}).get("status", {}).get("backends", [])
            return len(found) == number

        eventually(check, f"the status of {name} lists {number} backends")
        return found

    def events(self, kind: str, name: str, namespace: str) -> list[dict[str, Any]]:
        """The Events of an object, oldest first; not those of an earlier one of its name."""
        now = self.get(kind.lower(), name, namespace)
        uid = now["metadata"]["uid"] if now and kind != "Node" else None
        found = self.get("event", namespace=namespace)["items"]
        about = [e for e in found if (e["involvedObject"]["kind"], e["involvedObject"]["name"]) == (kind, name)]
        about = [e for e in about if uid in {None, e["involvedObject"].get("uid")}]
        return sorted(about, key=lambda event: str(event["firstTimestamp"]))

    # connections

    def traffic(self, where: str, *arguments: object) -> dict[str, Any]:
        return self.lab.inside(where, lambda: traffic.run([str(argument) for argument in arguments]))

    def count(self, where: str, number: int, host: str, port: int = 80, *options: str) -> dict[str, Any]:
        return self.traffic(where, "count", number, host, port, *options)

    def answers(self, where: str, host: str, port: int = 80, *options: str, number: int = 20) -> set[str]:
        """The pods that answered, or none if a connection failed."""
        counted = self.count(where, number, host, port, *options)
        return set(counted["answers"]) if not any(counted["failures"].values()) else set()

    def reaches(self, where: str, pods: list[str], host: str, port: int = 80, *options: str) -> None:
        """Wait until connections reach exactly these pods."""
        eventually(
            lambda: self.answers(where, host, port, *options) == set(pods), f"{host}:{port} from {where} reaches {pods}"
        )

    @contextlib.contextmanager
    def hammer(self, where: str, host: str, port: int = 80, *options: str) -> Iterator[dict[str, Any]]:
        """Open connections continuously during the block; the result is filled in after it.

        The timeout is long: a lost connection stays lost, one that a busy machine delays is not lost.
        """
        with self.background(where, "hammer", host, str(port), *(options or ("--timeout", "5"))) as result:
            time.sleep(0.5)
            yield result

    @contextlib.contextmanager
    def background(self, where: str, *arguments: str) -> Iterator[dict[str, Any]]:
        """Have ``lab.traffic`` do something until the end of the block; its result is filled in after that."""
        result: dict[str, Any] = {}
        process = self.lab.popen(where, *TRAFFIC, *arguments)
        assert process.stderr
        process.stderr.readline()
        try:
            yield result
        finally:
            process.terminate()
            out, err = process.communicate(timeout=30)
            assert out, err
            result.update(json.loads(out))

    @contextlib.contextmanager
    def streams(self, number: int, where: str, host: str, port: int = 80) -> Iterator[list[dict[str, Any]]]:
        """Slow downloads, begun before the block and ended a second after it; the results are filled in then."""
        arguments = ("stream", host, str(port), "--rate", "20000")
        processes = [self.lab.popen(where, *TRAFFIC, *arguments) for _ in range(number)]
        results: list[dict[str, Any]] = []
        for process in processes:
            assert process.stderr
            process.stderr.readline()
        try:
            yield results
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                out, err = process.communicate(timeout=30)
                assert out, err
                results.append(json.loads(out))

    def http_get(self, host: str, path: str, port: int, where: str = "client") -> tuple[int, Any] | None:
        """The status and the JSON of the answer to a GET; None if nothing answers."""

        def get() -> tuple[int, Any] | None:
            connection = http.client.HTTPConnection(host, port, timeout=10)
            with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
                connection.request("GET", path)
                answer = connection.getresponse()
                return answer.status, json.loads(answer.read())
            return None

        return self.lab.inside(where, get)

    # nodes

    @property
    def nodes(self) -> list[str]:
        return [node.name for node in self.lab.nodes]

    def nft(self, node: str, *arguments: str) -> str:
        done = self.lab.exec(node, "nft", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def has_forgotten(self, prefix: str) -> bool:
        """Return True if no engine has a farm with this prefix; False also if nftlb is starting."""
        try:
            return self.node_farms(prefix) == []
        except ConnectionError:
            return False

    def node_farms(self, prefix: str = "", nodes: Iterable[str] | None = None) -> list[str]:
        """The farms with this prefix that an engine has on any of the nodes, by default all."""
        found: set[str] = set()
        for node in self.nodes if nodes is None else nodes:
            found.update(farm["name"] for farm in json.loads(self.nftlb(node, "GET", "/farms"))["farms"])
            # There is no such table while no farm needs it.
            listed = self.lab.exec(node, "nft", "list", "table", "inet", "kube-nftlb-services").stdout
            found.update(re.findall(r'comment "([^"]+)"', listed))
        return sorted(name for name in found if name.startswith(prefix))

    def nftlb(self, node: str, method: str, path: str) -> str:
        settings = NftlbSettings.from_environment(self.lab.environment(node))

        def ask() -> str:
            connection = http.client.HTTPConnection("127.0.0.1", settings.port, timeout=30)
            with contextlib.closing(connection):
                connection.request(method, path, headers={"Key": settings.key_file.read_text().strip()})
                answer = connection.getresponse()
                text = answer.read().decode()
                assert answer.status < 400, text
                return text

        return self.lab.inside(node, ask)

    def nftlb_key(self, node: str) -> str:
        """The key that the API of a node's nftlb asks for."""
        return self.lab.exec(
            node, "cat", f"{self.lab.environment(node)['KUBE_NFTLB_RUN_DIR']}/nftlb.key"
        ).stdout.strip()

    def requests(self, node: str) -> list[str]:
        """The requests in the log of this node's nftlb."""
        lines = self.lab.log_path("nftlb", node).read_text(errors="replace").splitlines()
        return [line.partition("request: ")[2] for line in lines if "request: " in line]

    def changing_requests(self) -> list[str]:
        return [request for node in self.nodes for request in self.requests(node) if not request.startswith("GET")]

    def recoveries(self) -> int:
        """The number of full reloads of nftlb on all nodes."""
        return sum(
            self.lab.log_path("nftlb", node).read_text(errors="replace").count("recovery in progress")
            for node in self.nodes
        )


@contextlib.contextmanager
def running(name: str, *, checked: bool = True, **options: Any) -> Iterator[Cluster]:
    """A lab of a test's own while the block lasts; ``options`` are those of ``labs.up``.

    What tests leave in it fails the run at its end, unless ``checked`` is False.
    """
    # It works with clusters.
    from tests.functional import leftovers

    with labs.timed(name):
        lab = labs.up(f"{name}-{os.getpid()}", **options)
    try:
        with contextlib.closing(Cluster(lab)) as cluster:
            yield cluster
        if checked:
            labs.note_leftovers(leftovers.found([lab]))
    finally:
        lab.down()
