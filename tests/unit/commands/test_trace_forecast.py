"""The forecast for a connection from the objects, as a table of cases."""

from typing import Any

import pytest

from kube_nftlb.commands.trace import output
from kube_nftlb.commands.trace.forecast import Objects, forecast
from kube_nftlb.commands.trace.passage import Passage
from kube_nftlb.netfilter.tracing.table import Flow
from tests.builders import raw_farm, raw_nftlb_node, raw_node, raw_policy, raw_slice
from tests.builders.farms import raw_backend, raw_service_farm
from tests.builders.slices import endpoint
from tests.unit.commands.test_trace_words import EXPECTED

NODE = raw_node("n1", addresses={"InternalIP": "172.31.0.11"}, podCIDRs=["10.244.1.0/24"])
POD, FAR, OUTSIDE, SELF = "10.244.1.9", "10.244.2.9", "192.0.2.7", "172.31.0.11"
VIP = "10.96.0.10"
HERE = raw_backend("here", "10.244.1.2", nodeName="n1")
THERE = raw_backend("there", "10.244.2.2", nodeName="n2")


def ask(client: str = POD, ip: str = VIP, port: int = 80, protocol: Any = "TCP", **objects: Any) -> Passage:
    given = {"node": NODE, "report": raw_nftlb_node("n1"), "farms": (raw_farm(),), "service_ranges": ("10.96.0.0/16",)}
    return forecast(Flow(client, ip, protocol, port), protocol, Objects(**{**given, **objects}))


def ending(made: Passage) -> tuple[str, str]:
    assert made.outcome is not None
    return made.outcome.verdict, made.outcome.reason


def step(made: Passage, about: str) -> list[str]:
    return [each.text for each in made.steps if each.about == about]


def at(kind: str, **fields: Any) -> list[dict[str, Any]]:
    return [{"type": kind, "ip": VIP, "ports": "80", **fields}]


LOCAL = {"trafficPolicy": "Local", "backends": [THERE]}
CASES: list[tuple[str, dict[str, Any], str, str]] = [
    (POD, {}, "Served", "BackendChosen"),
    (POD, {"backends": []}, "Refused", "NoReadyBackends"),
    (POD, {"backends": [{**HERE, "ready": False}]}, "Refused", "NoReadyBackends"),
    *(
        (POD, {"backends": [{**HERE, "state": state}]}, "Refused", "NoReadyBackends")
        for state in ("off", "down", "drain")
    ),
    (POD, {"state": "drain"}, "Refused", "NoReadyBackends"),
    (POD, LOCAL, "Dropped", "NoLocalBackend"),
    (POD, {**LOCAL, "addresses": at("LoadBalancer")}, "Served", "BackendChosen"),
    (SELF, {**LOCAL, "addresses": at("LoadBalancer")}, "Served", "BackendChosen"),
    (OUTSIDE, {**LOCAL, "addresses": at("LoadBalancer")}, "Dropped", "NoLocalBackend"),
    (OUTSIDE, {"addresses": at("LoadBalancer", sourceRanges=["198.51.100.0/24"])}, "Dropped", "OutsideSourceRanges"),
    (OUTSIDE, {"addresses": at("LoadBalancer", sourceRanges=["192.0.2.0/24"])}, "Served", "BackendChosen"),
    (POD, {"policies": ["absent"]}, "Dropped", "PolicyMissing"),
    (POD, {"policies": ["deny-pods"]}, "Dropped", "PolicyDenies"),
    (OUTSIDE, {"policies": ["deny-pods"]}, "Served", "BackendChosen"),
    (OUTSIDE, {"policies": ["allow-pods"]}, "Dropped", "PolicyAdmitsOthers"),
    (POD, {"policies": ["allow-pods"]}, "Served", "BackendChosen"),
    (POD, {"policies": ["allow-pods", "deny-pods"]}, "Dropped", "PolicyDenies"),
    (POD, {"mode": "local", "backends": []}, "Served", "NodeItself"),
]
POLICIES = (raw_policy("deny-pods"), raw_policy("allow-pods", type="allow"))

DIRECT = {"mode": "dnat", "masquerade": "AsNeeded"}
OF_BOTH_ENGINES: dict[str, tuple[str, dict[str, Any]]] = {
    **{scheduler: (POD, {"scheduler": scheduler}) for scheduler in ("rr", "weight", "hash", "symhash")},
    **{session: (POD, {"persistence": "srcip"}) for session in ("session-begins", "session")},
    "fixed-session": (POD, {"persistence": "srcip", "sessions": [{"client": POD, "backend": "pod-a"}]}),
    "not-masqueraded": (POD, DIRECT),
    "hairpin": (HERE["ip"], {**DIRECT, "backends": [HERE]}),
    "no-backends": (POD, {"backends": []}),
    "local-inside": (POD, LOCAL),
    "local-client": (POD, {**LOCAL, "addresses": at("LoadBalancer")}),
    "local-outside": (OUTSIDE, {**LOCAL, "addresses": at("LoadBalancer")}),
}
RECORDED = {
    **{f"{engine}-{what}": given for engine in ("nftlb", "nftables") for what, given in OF_BOTH_ENGINES.items()},
    "nftlb-local-steered": (POD, {**LOCAL, "addresses": at("LoadBalancer")}),
    "nftlb-ipv6": (POD, {}),
    "policy-missing": (POD, {"policies": ["absent"]}),
    "policy-denies": (POD, {"policies": ["allow-pods", "deny-pods"]}),
    "policy-does-not-deny": (OUTSIDE, {"policies": ["deny-pods"]}),
    "policy-allows": (POD, {"policies": ["allow-pods"]}),
    "policy-allows-others": (OUTSIDE, {"policies": ["allow-pods"]}),
    "source-range-outside": (OUTSIDE, {"addresses": at("LoadBalancer", sourceRanges=["198.51.100.0/24"])}),
    "source-range-inside": (OUTSIDE, {"addresses": at("LoadBalancer", sourceRanges=["192.0.2.0/24"])}),
    "no-such-service": (POD, {"addresses": [{"ip": VIP, "ports": "81"}]}),
    "no-listener": (POD, {"addresses": [{"ip": "10.99.0.1", "ports": "80"}]}),
}
"""Objects as they were at each recording of the kernel's reports, whose endings they decide."""
NOT_OF_OBJECTS = {
    *(f"limit-{what}" for what in ("new", "established", "of-backend")),
    *("not-routed", "other-program", "rules-incomplete", "nftlb-established", "nftables-established"),
    "nftables-session-not-remembered",
}


@pytest.mark.parametrize("recording", sorted(RECORDED))
def test_the_forecast_is_what_the_kernel_reported(recording: str) -> None:
    client, spec = RECORDED[recording]
    ip = "203.0.113.1" if recording == "no-listener" else VIP
    made, reported = ask(client, ip, farms=(raw_farm(**spec),), policies=POLICIES), EXPECTED[recording]
    assert ending(made) == (reported.verdict, reported.reason)


def test_each_recording_has_a_forecast_or_is_not_the_objects_to_decide() -> None:
    assert RECORDED.keys() | NOT_OF_OBJECTS == EXPECTED.keys()


@pytest.mark.parametrize(("client", "spec", "verdict", "reason"), CASES)
def test_endings(client: str, spec: dict[str, Any], verdict: str, reason: str) -> None:
    made = ask(client, farms=(raw_farm(**spec),), policies=POLICIES)
    assert ending(made) == (verdict, reason)
    assert made.farm == "web--http"


def test_addresses_without_a_farm() -> None:
    assert ending(ask(port=81)) == ("Refused", "NoSuchService")
    assert ending(ask(protocol="UDP")) == ("Refused", "NoSuchService")
    assert ending(ask(ip="10.244.2.2")) == ("NotServed", "NoListener")


def test_a_node_port_is_at_the_addresses_of_the_node() -> None:
    farm = raw_farm(addresses=[{"type": "NodePort", "ports": "30080"}])
    assert ending(ask(OUTSIDE, ip=SELF, port=30080, farms=(farm,))) == ("Served", "BackendChosen")
    assert ending(ask(OUTSIDE, ip="172.31.0.12", port=30080, farms=(farm,))) == ("NotServed", "NoListener")


def test_a_farm_that_loses_its_address_is_named() -> None:
    farms = (raw_farm("mine"), raw_farm("older", created="2020-01-01T00:00:00Z"))
    made = ask(farms=farms)
    assert made.farm == "older"
    assert step(made, "conflict") == ["default/mine wants the address too, which default/older has"]


def test_the_backends_of_a_service_are_named() -> None:
    slices = (raw_slice(endpoint("10.244.1.2", "web-a"), endpoint("10.244.2.2", "web-b", ready=False)),)
    made = ask(farms=(raw_service_farm(),), slices=slices)
    assert step(made, "backend") == ["10.244.1.2:8080 (web-a)"]


def test_what_the_node_reports_of_the_farm_is_told() -> None:
    failed = [{"namespace": "default", "name": "web--http", "reason": "Refused", "message": "by the kernel"}]
    made = ask(report=raw_nftlb_node("n1", failed=failed))
    assert step(made, "node") == ["it reports the farm as failed: Refused: by the kernel"]
    assert step(ask(report=None), "node") == ["it has no NftlbNode: does an agent run there?"]


def test_what_may_happen_besides_is_told() -> None:
    made = ask(farms=(raw_farm(limits={"new": "10/second"}, persistence="srcip", persistTTL=90, scheduler="hash"),))
    assert step(made, "limit") == ["connections above limits.new are dropped"]
    assert step(made, "session") == ["a client keeps its backend for 90 s (persistence srcip)"]
    assert step(made, "choice") == ["the scheduler: hash, among 1"]


NEVER, NODES_ADDRESS = "not masqueraded: the backend sees the client", "masqueraded: the backend sees the node"


@pytest.mark.parametrize(
    ("client", "spec", "source"),
    [
        (POD, {}, NODES_ADDRESS),
        (POD, {"mode": "dnat", "masquerade": "Never"}, NEVER),
        (POD, {"mode": "dnat", "masquerade": "AsNeeded"}, NEVER),
        (FAR, {"mode": "dnat", "masquerade": "AsNeeded"}, NODES_ADDRESS),
        (SELF, {"mode": "dnat", "masquerade": "AsNeeded"}, NODES_ADDRESS),
        (POD, {"mode": "dnat", "masquerade": "AsNeeded", "addresses": at("LoadBalancer")}, NODES_ADDRESS),
        (
            OUTSIDE,
            {
                "mode": "dnat",
                "masquerade": "AsNeeded",
                "trafficPolicy": "Local",
                "backends": [HERE],
                "addresses": at("LoadBalancer"),
            },
            NEVER,
        ),
        (
            "10.244.1.2",
            {"mode": "dnat", "masquerade": "AsNeeded", "backends": [HERE]},
            "not masqueraded, unless the client is its own backend",
        ),
        (POD, {"sourceAddress": "192.0.2.99"}, "the backend sees 192.0.2.99"),
    ],
)
def test_who_the_backend_sees(client: str, spec: dict[str, Any], source: str) -> None:
    assert step(ask(client, farms=(raw_farm(**spec),)), "source") == [source]


def test_it_is_told_in_lines() -> None:
    assert output.text(ask(), "n1").splitlines() == [
        "10.244.1.9 → 10.96.0.10:80 TCP on n1",
        "  farm     default/web--http, engine nftlb",
        "  choice   the scheduler: rr, among 1",
        "  backend  10.244.1.2:8080 (pod-a)",
        "  source   masqueraded: the backend sees the node",
        "Served (BackendChosen): sent to the backend",
    ]
