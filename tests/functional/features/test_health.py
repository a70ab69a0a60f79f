"""The health checks of load balancers and of the kubelet; tests/functional/conformance/test_proxy.py has more."""

import json
import urllib.error
import urllib.request
from typing import Any, NamedTuple

from lab import addresses
from tests.functional.cluster import Cluster, eventually

CLIENT = "client"
PORT = 10256


class Told(NamedTuple):
    """The answer to a request; status 0 and an error where there was none."""

    status: int
    body: Any
    headers: dict[str, str]


def ask(cluster: Cluster, host: str, path: str, port: int = PORT) -> Told:
    """A request from outside of the nodes."""
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}{path}"

    def request() -> Told:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return Told(answer.status, json.load(answer), dict(answer.headers))
        except urllib.error.HTTPError as error:
            return Told(error.code, json.load(error), dict(error.headers))
        except OSError as error:
            return Told(0, str(error), {})

    return cluster.lab.inside(CLIENT, request)


def ips(cluster: Cluster, node: str) -> list[str]:
    return [str(address.ip) for plan in cluster.lab.nodes if plan.name == node for address in plan.addresses]


def until_status(cluster: Cluster, node: str, path: str, status: int, port: int = PORT) -> Told:
    ip = ips(cluster, node)[0]
    eventually(lambda: ask(cluster, ip, path, port).status == status, f"{node} answers {status} to {path} on {port}")
    return ask(cluster, ip, path, port)


def test_the_agents_tell_their_health_on_all_addresses_of_their_node(cluster: Cluster) -> None:
    for node in cluster.nodes:
        until_status(cluster, node, "/readyz", 200)
        for ip in ips(cluster, node):
            told = ask(cluster, ip, "/healthz")
            assert (told.status, told.headers["Content-Type"]) == (200, "application/json")
            assert set(told.body) == {"lastUpdated", "currentTime", "nodeEligible", "healthy"}
            assert told.body["nodeEligible"] is told.body["healthy"] is True
            live = ask(cluster, ip, "/livez")
            assert (live.status, set(live.body)) == (200, {"lastUpdated", "currentTime", "healthy"})


def test_the_operator_tells_its_health(cluster: Cluster) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        assert ask(cluster, addresses.API_HOST, path, 9196).status == 200
