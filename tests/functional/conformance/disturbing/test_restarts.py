"""The proxy, the API server and the rules go away and come back."""

import contextlib
import os
import signal
import time
from collections.abc import Callable

import httpx
import pytest

from kube_nftlb.agent import keep_nat
from kube_nftlb.netfilter.nftables.blueprint import blueprint_of
from tests.functional.cluster import eventually
from tests.functional.conformance.conftest import Pods
from tests.functional.conformance.testbed import COMPONENTS, FAMILIES, Service, Testbed

Make = Callable[..., Service]


def test_proxy_restarts(bed: Testbed, pods: Pods, service: Make) -> None:
    """should work after restarting kube-proxy"""
    before, client = service(), pods.clients[0].where
    before.endpoints(*pods.servers)
    bed.reach(client, pods.servers, before.ip())
    with bed.steady(client, before.ip()) as failures:
        bed.restart_proxy()
        after = service().endpoints(*pods.servers[:2])
        bed.reach(client, pods.servers[:2], after.ip())
        bed.reach(client, pods.servers, before.ip())
    assert failures == [], "the rules survive the daemon"


def test_api_server_restarts(bed: Testbed, pods: Pods, service: Make) -> None:
    """should work after restarting apiserver"""
    before, client = service(), pods.clients[0].where
    before.endpoints(*pods.servers)
    bed.reach(client, pods.servers, before.ip())
    with bed.steady(client, before.ip()) as failures:
        os.kill(bed.lab.pid("apiserver"), signal.SIGKILL)

        made: list[Service] = []

        def is_back() -> bool:
            with contextlib.suppress(httpx.TransportError, AssertionError):
                made.append(service())
            return bool(made)

        eventually(is_back, "the API server takes a Service again", 30)
        (after,) = made
        after.endpoints(*pods.servers[:2])
        bed.reach(client, pods.servers[:2], after.ip())
    assert failures == []


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.usefixtures("undamaged")
def test_rules_are_recreated(bed: Testbed, pods: Pods, service: Make, family: str) -> None:
    """should recreate its iptables rules if they are deleted (A49: the tables are deleted altogether)"""
    web, node = service(), bed.nodes[0]
    web.endpoints(*pods.servers)
    bed.reach(pods.clients[0].where, pods.servers, web.ip(family))
    tables = _tables(bed, node)
    assert tables
    # All at once: between two commands the first would be repaired, and with it the second made anew. An agent itself
    # deletes the table of an engine whose last farm has just gone.
    bed.nft(node, "; ".join(f"add table {kind} {table}; delete table {kind} {table}" for kind, table in tables))
    if bed.proxy != "kube-nftlb":
        service()  # kube-proxy notices when it has to write the next time
    bed.reach(pods.clients[0].where, pods.servers, web.ip(family))


def test_rules_outlive_the_proxy(bed: Testbed, pods: Pods, service: Make) -> None:
    """A49, A48: while it is down all goes on as it was; what changed meanwhile is made up for, with no gap."""
    stays, goes = service(), service()
    client = pods.clients[0].where
    for each in (stays, goes):
        each.endpoints(*pods.servers)
        bed.reach(client, pods.servers, each.ip())
    node = bed.nodes[0]
    components = [name for name in COMPONENTS.get(bed.proxy, ("kube-proxy",)) if name != "operator"]
    with bed.steady(client, stays.ip()) as failures:
        for name in components:
            bed.lab.stop(name, node)
        try:
            stays.endpoints(*pods.servers[:2])
            goes.delete()
            new = service().endpoints(*pods.servers)
            time.sleep(0.3)
            bed.reach(client, pods.servers, stays.ip())
            bed.reach(client, pods.servers, goes.ip())
        finally:
            for name in components:
                bed.lab.start(name, node)
        bed.reach(client, pods.servers, new.ip())
        bed.reach(client, pods.servers[:2], stays.ip())
        bed.fail(client, goes.ip())
    assert failures == []


@pytest.mark.only("kube-nftlb", "kube-proxy looks at all of its rules once an hour")
@pytest.mark.usefixtures("undamaged")
def test_damage_to_a_chain_is_repaired(bed: Testbed, pods: Pods, service: Make) -> None:
    """A49: somebody flushes all chains of all tables, and leaves the tables."""
    web, node = service(), bed.nodes[0]
    web.endpoints(*pods.servers)
    client = pods.clients[0].where
    bed.reach(client, pods.servers, web.ip())
    # The agent has a blueprint for the moment of a comparison only.
    tables = [each for each in _tables(bed, node) if not each[1].endswith(blueprint_of(""))]
    # All at once: the repair of one makes others anew, which are not there for a moment.
    bed.nft(node, "; ".join(f"flush table {kind} {table}" for kind, table in tables))
    bed.reach(client, pods.servers, web.ip())


def _tables(bed: Testbed, node: str) -> list[list[str]]:
    """Return the families and names of the tables that somebody else than the agent can change."""
    tables = [line.split()[1:] for line in bed.nft(node, "list", "tables").splitlines()]
    return [each for each in tables if each[1] != keep_nat.TABLE]
