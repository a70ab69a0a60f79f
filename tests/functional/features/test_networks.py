"""Services in labs where something else than the lab connects pods and nodes: see docs/install.md."""

import contextlib
import os
from collections.abc import Iterator

import pytest

from kube_nftlb import names
from lab import cni
from tests import engine, labs
from tests.functional.cluster import eventually
from tests.functional.conformance.testbed import CLIENT, FAMILIES, NAMESPACE, SETTINGS, Pod, Testbed, server_ports

SNAT = {"metadata": {"annotations": {f"{names.ANNOTATION_PREFIX}mode": "snat"}}}


def one_answers(bed: Testbed, client: Pod, ip: str) -> None:
    eventually(lambda: len(bed.answering(client.where, ip)) == 1, "one pod answers one client")


@pytest.fixture(params=cni.NETWORKS)
def bed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Testbed]:
    monkeypatch.setenv(cni.VARIABLE, request.param)
    settings = {**SETTINGS, "operator": {**SETTINGS["operator"], **engine.OPERATOR}}
    lab = labs.up(f"{request.param}-{os.getpid()}", nodes=2, settings=settings)
    try:
        with contextlib.closing(Testbed(lab)) as made:
            yield made
    finally:
        engine.use(engine.DEFAULT)
        lab.down()


def pods(bed: Testbed) -> list[Pod]:
    """A server on each node, and a client beside the first."""
    bed.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    eventually(lambda: bed.get("serviceaccount", "default") is not None, "there is a service account")
    for number, node in enumerate(bed.nodes, 1):
        bed.start_pod(f"server-{number}", node, ports=server_ports())
    bed.start_pod("client", bed.nodes[0])
    return [bed.pod(name) for name in ("server-1", "server-2", "client")]


@pytest.mark.long
@pytest.mark.timeout(600)  # the first builds flannel
def test_services_work_whatever_connects_pods_and_nodes(bed: Testbed) -> None:
    first, second, client = pods(bed)
    for each in engine.BOTH:
        engine.use(each)
        web = bed.add_service(type="NodePort").endpoints(first, second)
        alone = bed.add_service().endpoints(first)
        sticky = bed.add_service(sessionAffinity="ClientIP").endpoints(first, second)
        for family in FAMILIES:
            bed.reach(client.where, [first, second], web.ip(family), keeps_address=True)
            bed.reach(bed.nodes[1], [first, second], web.ip(family))
            bed.reach(CLIENT, [first, second], bed.node_ip(bed.nodes[1], family), web.node_port())
            bed.reach(first.where, [first], alone.ip(family), is_masqueraded=True)
            one_answers(bed, client, sticky.ip(family))
        bed.patch("service", web.name, SNAT)
        bed.reach(client.where, [first, second], web.ip(), is_masqueraded=True)
