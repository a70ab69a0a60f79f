"""What is wrong with addresses: pools that are refused, Services without one, what no node announces, and BGP. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

from pydantic import ValidationError

from kube_nftlb import names
from kube_nftlb.agent.announcing.pools import Pools
from kube_nftlb.announce.ownership import records
from kube_nftlb.announce.ownership.gate import Reason
from kube_nftlb.api.address_pool import AddressPool
from kube_nftlb.commands.cluster.announced import ANNOUNCE_ADVICE, Announced, reasons
from kube_nftlb.commands.cluster.finding import Finding, condition, is_older, since
from kube_nftlb.commands.view import ClusterView
from kube_nftlb.kube.resources import JsonObject
from kube_nftlb.prose import some_of
from kube_nftlb.reasons import AddressProblem

ADDRESS_ADVICE: Final[dict[AddressProblem, str]] = {
    "PoolExhausted": "add ranges to the NftlbAddressPool, or another pool, or delete a Service",
    "NoPool": "create an NftlbAddressPool that selects the Service; see `kubectl get nftlbaddresspools`",
    "AddressTaken": "ask for another address, or for none",
    "NotAllowed": "change what the message names, or ask the cluster's administrator",
}
"""What to do about a Service that lacks an address."""
_SEE_ADDRESSES: Final = "see docs/addresses.md"
_PATIENCE_S: Final = 10
"""Maximum age in seconds of an object that the operator has not processed yet."""
_OFF: Final = "see whether the operator runs, and whether addresses.enabled of the chart is set"


def find(view: ClusterView, now: datetime) -> list[Finding]:
    """Return everything: pools first, then Services, then addresses that no node announces, then BGP."""
    of_objects = [*of_pools(view.pools, now), *of_services(view.services, now)]
    return [*of_objects, *of_addresses(view, view.farms, now), *of_bgp(view.nftlb_nodes)]


def of_pools(pools: Iterable[JsonObject], now: datetime) -> list[Finding]:
    """Return the pools that are refused, or that the operator has not processed."""
    found = []
    for raw in sorted(pools, key=_name):
        accepted = condition(raw, "Accepted")
        if accepted is None and is_older(raw, now, _PATIENCE_S):
            found.append(Finding("address pool", "", _name(raw), "NoStatus", "the operator has not processed it", _OFF))
        elif accepted is not None and accepted["status"] != "True":
            todo = "change spec.ranges"
            found.append(
                Finding("address pool", "", _name(raw), accepted["reason"], accepted["message"], todo, since(accepted))
            )
    return found


def of_services(services: Iterable[JsonObject], now: datetime) -> list[Finding]:
    """Return why these Services lack addresses of pools."""
    findings = []
    for raw in services:
        where = raw["metadata"]["namespace"], _name(raw)
        if (lacks := condition(raw, names.ADDRESS_CONDITION)) is not None:
            todo = ADDRESS_ADVICE.get(lacks["reason"], "see the NftlbAddressPools")
            findings.append(Finding("service", *where, lacks["reason"], lacks["message"], todo, since(lacks)))
        elif is_older(raw, now, _PATIENCE_S):
            message = f"its class is {names.LOAD_BALANCER_CLASS}, and the operator has not processed it"
            findings.append(Finding("service", *where, "NotAssigned", message, _OFF))
    return sorted(findings, key=lambda each: (each.namespace, each.name))


def of_addresses(view: ClusterView, farms: Iterable[JsonObject], now: datetime) -> list[Finding]:
    """Return the load balancer addresses of farms that no node announces, and why, one finding for each.

    Nothing if the user may not see what the nodes report: see ``not_judged``.
    """
    announced, pools, found = Announced(view.nftlb_nodes), Pools(_readable(view.pools)), dict[str, Finding]()
    for raw, ip in _balanced(farms) if view.reports is not None else ():
        where = raw["metadata"]["namespace"], _name(raw)
        if ip in found or announced.nodes(ip):
            continue
        if blocked := announced.blocked(ip):
            todo = next((ANNOUNCE_ADVICE[each] for each in Reason if each == blocked[0].reason), _SEE_ADDRESSES)
            found[ip] = Finding("farm", *where, "NotAnnounced", f"no node announces {ip}: {reasons(blocked)}", todo)
        elif announced.is_complete and pools.of(ip) is not None and is_older(raw, now, _PATIENCE_S):
            message = f"no node announces {ip}, {_holder(ip, view.holders)}"
            todo = "see whether agents run, and whether addresses.enabled of the chart is set"
            found[ip] = Finding("farm", *where, "NotAnnounced", message, todo)
    return sorted(found.values(), key=lambda each: (each.namespace, each.name))


def not_judged(view: ClusterView, farms: Iterable[JsonObject]) -> str:
    """Say which addresses of pools ``of_addresses`` leaves out, as the user may not see the reports; empty if none."""
    pools = Pools(_readable(view.pools if view.reports is None else ()))
    ips = dict.fromkeys(ip for _, ip in _balanced(farms) if pools.of(ip) is not None)
    return f"not judged: whether a node announces {some_of([*ips])}: you may not list NftlbNodes" if ips else ""


def _balanced(farms: Iterable[JsonObject]) -> Iterator[tuple[JsonObject, str]]:
    """Yield the load balancer addresses of farms, each with its farm."""
    for raw in farms:
        for address in (raw.get("spec") or {}).get("addresses") or ():
            if address.get("type") == "LoadBalancer":
                yield raw, address.get("ip") or ""


def of_bgp(reports: Iterable[JsonObject]) -> list[Finding]:
    """Return the routers with which nodes have no BGP session, and the nodes that cannot announce by BGP at all."""
    found, down = [], defaultdict[tuple[str, str], list[str]](list)
    for report in sorted(reports, key=_name):
        bgp = (report.get("status") or {}).get("bgp") or {}
        if error := bgp.get("lastError"):
            todo = "see the container bird of the agent's pod on that node, and its log"
            found.append(Finding("node", "", _name(report), "BGPFailed", error, todo))
        for session in bgp.get("sessions") or ():
            if session["state"] != "Established":
                why = f"the session is {session['state']}: {session.get('lastError') or 'no error yet'}"
                down[session["peer"], why].append(_name(report))
    todo = "see address, AS numbers and password of the NftlbBGPPeer, and the router's log"
    for (peer, why), nodes in sorted(down.items()):
        found.append(Finding("BGP peer", "", peer, "NotEstablished", f"{some_of(nodes)}: {why}", todo))
    return found


def _holder(ip: str, holders: Iterable[JsonObject]) -> str:
    """Return who should announce an address, by its Lease."""
    name = dict(records.parse(raw) for raw in holders).get(ip, records.NOBODY).holder
    return f"though {name} holds it" if name else "and none tells why"


def _readable(pools: Iterable[JsonObject]) -> Iterator[AddressPool]:
    for raw in pools:
        try:
            yield AddressPool.model_validate({key: raw.get(key) for key in ("metadata", "spec")})
        except ValidationError:
            # Of another version: the agents keep what they had.
            continue


def _name(raw: JsonObject) -> str:
    return str(raw["metadata"]["name"])
