"""The lab of the conformance tests; the proxy is KUBE_NFTLB_TEST_PROXY. Each test runs with each engine of kube-nftlb.

The tests of the folder ``disturbing`` restart and break what others use, and have a lab of their own.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from lab.lab import Lab
from tests import engine, labs
from tests.functional import leftovers
from tests.functional.cluster import eventually
from tests.functional.conformance.testbed import (
    CLIENT,
    NAMESPACE,
    PROXIES,
    SETTINGS,
    Pod,
    Service,
    Testbed,
    server_ports,
)

PROXY = os.environ.get("KUBE_NFTLB_TEST_PROXY") or "kube-nftlb"
HOST_PORT = 8080


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "only(proxy, reason): the others are known not to do it")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for mark in item.iter_markers("only"):
            if mark.args[0] != PROXY:
                item.add_marker(pytest.mark.skip(reason=f"{mark.args[0]} only: {mark.args[1]}"))


class Pods(NamedTuple):
    """The pods that all tests share. One server on each node and a second one on the first, in the order of nodes."""

    servers: list[Pod]
    second: Pod
    clients: list[Pod]
    hosts: list[Pod]  # on their node's network; they listen on HOST_PORT


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if PROXY == "kube-nftlb":
        metafunc.parametrize("_engine", engine.BOTH, indirect=True)


def _prepare(lab: Lab) -> None:
    """Start the pods that all tests share."""
    with contextlib.closing(Testbed(lab)) as bed:
        for node in bed.nodes:
            # By default a host sends no more than one message a second to one peer that a port is unreachable.
            bed.run_in(node, "sysctl", "-qw", "net.ipv4.icmp_ratelimit=0", "net.ipv6.icmp.ratelimit=0")
            # A node that has no use for a packet sends it to the gateway on the same link, and tells the client to do
            # likewise: then the client's next packets would miss the node, also once it serves their address.
            bed.run_in(node, "sysctl", "-qw", *(f"net.ipv4.conf.{each}.send_redirects=0" for each in ("all", "eth0")))
        bed.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        eventually(lambda: bed.get("serviceaccount", "default") is not None, "there is a service account")
        host_ports = [{"containerPort": HOST_PORT, "protocol": protocol} for protocol in ("TCP", "UDP")]
        for number, node in enumerate(bed.nodes, 1):
            bed.start_pod(f"server-{number}", node, ports=server_ports())
            bed.start_pod(f"client-{number}", node)
            bed.start_pod(f"host-{number}", node, ports=host_ports, hostNetwork=True)
        bed.start_pod("server-1b", bed.nodes[0], ports=server_ports())
        # The host outside can answer pods, as a router beside the nodes would.
        for pod_range, node_ip in (("10.244.0.0/16", "ipv4"), ("fd00:244::/32", "ipv6")):
            bed.run_in(CLIENT, "ip", "route", "replace", pod_range, "via", bed.node_ip(bed.nodes[0], node_ip))


@pytest.fixture(scope="session")
def _beds() -> Iterator[dict[str, Testbed]]:
    beds: dict[str, Testbed] = {}
    yield beds
    for bed in beds.values():
        bed.close()


@pytest.fixture
def bed(request: pytest.FixtureRequest, _beds: dict[str, Testbed]) -> Testbed:
    assert PROXY in PROXIES, f"KUBE_NFTLB_TEST_PROXY is one of {', '.join(PROXIES)}"
    kind = "conformance-disturbed" if request.path.parent.name == "disturbing" else "conformance"
    if kind not in _beds:
        settings = {**SETTINGS, "operator": {**SETTINGS["operator"], **engine.OPERATOR}}
        lab = labs.shared(kind, _prepare, nodes=3, zones=["a", "a", "b"], proxy=PROXY, settings=settings)
        _beds[kind] = Testbed(lab)
        if kind != "conformance":
            leftovers.end_with_group(request.node.nodeid, kind, lab, lambda: _beds.pop(kind).close())
    return _beds[kind]


@pytest.fixture
def pods(bed: Testbed) -> Pods:
    numbers = range(1, len(bed.nodes) + 1)
    return Pods(
        [bed.pod(f"server-{number}") for number in numbers],
        bed.pod("server-1b"),
        [bed.pod(f"client-{number}") for number in numbers],
        [bed.pod(f"host-{number}") for number in numbers],
    )


@pytest.fixture(autouse=True)
def _sockets_are_closed(bed: Testbed) -> Iterator[None]:
    yield
    bed.close_sockets()


@pytest.fixture
def service(bed: Testbed) -> Iterator[Callable[..., Service]]:
    """Makes Services that are gone after the test, with the slices that were written for them."""
    made: list[Service] = []

    def make(**options: object) -> Service:
        made.append(bed.add_service(**options))  # type: ignore[arg-type]  # passed on as given
        return made[-1]

    yield make
    for one in made:
        bed.delete("service", one.name)
        bed.request(
            "DELETE",
            f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
            f"?labelSelector=kubernetes.io/service-name={one.name},endpointslice.kubernetes.io/managed-by=conformance",
        )


@pytest.fixture
def undamaged(bed: Testbed, request: pytest.FixtureRequest) -> Iterator[None]:
    """For tests that damage the first node's rules: the others find them whole, whatever came of the test."""
    failed = request.session.testsfailed
    yield
    if request.session.testsfailed > failed:
        bed.restart_proxy(bed.nodes[0])


@pytest.fixture
def start(bed: Testbed) -> Iterator[Callable[..., Pod]]:
    """Makes pods that are gone after the test."""
    made: list[str] = []

    def make(node: str | None, name: str | None = None, **options: object) -> Pod:
        made.append(name or bed.new_name("pod"))
        bed.start_pod(made[-1], node, **{"ports": server_ports(), **options})  # type: ignore[arg-type]  # passed on as given
        return bed.pod(made[-1])

    yield make
    for name in made:
        if bed.get("pod", name) is not None:
            with contextlib.suppress(AssertionError):  # it may have gone meanwhile
                bed.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}", {"gracePeriodSeconds": 0})
