"""The findings of ``preflight``."""

from functools import partial
from typing import Any

import pytest

from kube_nftlb.commands import render
from kube_nftlb.commands.before.finding import Finding, Survey, text
from kube_nftlb.commands.before.judge import is_safe, judge, verdict
from kube_nftlb.limits import NamespaceLimits
from kube_nftlb.operator.cache.cache import Cache
from tests.builders import raw_node, raw_service

VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.3"}
DAEMON_SET = {"metadata": {"name": "kube-proxy", "namespace": "kube-system"}, "spec": {}}


def node(name: str = "a", kernel: str = "6.18.1", **labels: str) -> dict[str, Any]:
    made = raw_node(name, labels=labels)
    made["status"] = {**made.get("status", {}), "nodeInfo": {"kernelVersion": kernel}}
    made["spec"] = {"podCIDRs": ["10.244.0.0/24"]}
    return made


def configured(text: str) -> dict[str, Any]:
    return {"data": {"kubeconfig.conf": "kind: Config", "config.conf": f"kind: KubeProxyConfiguration\n{text}"}}


def survey(config: str = "mode: nftables", **fields: Any) -> Survey:
    seen = Survey(VERSION, [node()], [], [DAEMON_SET], configured(config), network_policies=[])
    return seen._replace(**fields)


def reasons(seen: Survey) -> dict[str, str]:
    return {finding.reason: finding.severity for finding in judge(seen)}


def with_node_port() -> dict[str, Any]:
    return raw_service(
        name="web", type="NodePort", ports=[{"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30080}]
    )


def test_an_ordinary_cluster_is_safe() -> None:
    findings = judge(survey())
    assert is_safe(findings)
    assert {each.reason for each in findings} == {"ProxyMode", "ClientAddresses", "Metrics"}


@pytest.mark.parametrize(
    ("config", "reason", "severity"),
    [
        ("mode: ipvs", "IPVS", "blocks"),
        ("mode: ipvs\nipvs: {scheduler: wlc}", "Scheduler", "differs"),
        ("mode: ipvs\nipvs: {strictARP: true}", "StrictARP", "note"),
        ('mode: ""', "NodePortAddresses", "differs"),
        ('mode: ""', "LocalhostNodePorts", "differs"),
        ("mode: nftables\nnodePortAddresses: [primary, localhost]", "LocalhostNodePorts", "differs"),
        ("mode: nftables\nnodePortAddresses: [192.0.2.0/24]", "NodePortAddresses", "differs"),
        ("iptables: {masqueradeAll: true}", "MasqueradeAll", "note"),
        ("detectLocalMode: BridgeInterface", "DetectLocalMode", "differs"),
        ("conntrack: {maxPerCore: 65536, tcpEstablishedTimeout: 1h0m0s}", "Conntrack", "differs"),
        ("conntrack: {udpTimeout: 30s}", "ConntrackUdp", "note"),
        ("healthzBindAddress: 0.0.0.0:10999", "ProxyUnrecognized", "differs"),
    ],
)
def test_settings_of_kube_proxy_that_differ_are_found(config: str, reason: str, severity: str) -> None:
    assert reasons(survey(config, services=[with_node_port()])).get(reason) == severity


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ("mode: nftables", "NodePortAddresses"),
        ("mode: nftables", "LocalhostNodePorts"),
        ("mode: nftables\nnodePortAddresses: [primary]", "NodePortAddresses"),
        ("mode: iptables\niptables: {localhostNodePorts: false}", "LocalhostNodePorts"),
        ("conntrack: {maxPerCore: 32768, min: 131072, tcpEstablishedTimeout: 24h0m0s}", "Conntrack"),
        ("metricsBindAddress: 0.0.0.0:10249", "ProxyUnrecognized"),
    ],
)
def test_settings_that_are_the_same_are_not(config: str, reason: str) -> None:
    assert reason not in reasons(survey(config, services=[with_node_port()]))


def test_values_to_set_are_given_as_the_chart_takes_them() -> None:
    found = judge(survey("conntrack: {maxPerCore: 65536, tcpEstablishedTimeout: 1h0m0s, tcpBeLiberal: true}"))
    (action,) = (each.action for each in found if each.reason == "Conntrack")
    assert action == (
        "set conntrack.maxPerCore=65536, conntrack.tcpEstablishedSeconds=3600, conntrack.tcpBeLiberal=true of the chart"
    )


@pytest.mark.parametrize(("duration", "seconds"), [("1.5h", "5400"), ("1h0m1500ms", "3602"), ("90m", "5400")])
def test_durations_are_read_as_go_reads_them(duration: str, seconds: str) -> None:
    found = judge(survey(f"conntrack: {{tcpEstablishedTimeout: {duration}}}"))
    (action,) = (each.action for each in found if each.reason == "Conntrack")
    assert action == f"set conntrack.tcpEstablishedSeconds={seconds} of the chart"


def daemon_set(name: str, **container: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }


@pytest.mark.parametrize(
    "fields",
    [
        {"cilium": {"data": {"kube-proxy-replacement": "true"}}},
        {"daemon_sets": [DAEMON_SET, daemon_set("calico-node", env=[{"name": "FELIX_BPFENABLED", "value": "true"}])]},
        {"daemon_sets": [daemon_set("kube-router", image="cloudnativelabs/kube-router", args=["--run-router"])]},
    ],
)
def test_another_service_proxy_blocks(fields: dict[str, Any]) -> None:
    assert reasons(survey(**fields))["OtherProxy"] == "blocks"


@pytest.mark.parametrize(
    "fields",
    [
        {"cilium": {"data": {"kube-proxy-replacement": "false"}}},
        {"daemon_sets": [DAEMON_SET, daemon_set("calico-node", image="calico/node:v3")]},
        {"daemon_sets": [daemon_set("kube-router", image="kube-router:v2", args=["--run-service-proxy=false"])]},
    ],
)
def test_network_plugins_that_leave_services_alone_do_not(fields: dict[str, Any]) -> None:
    assert "OtherProxy" not in reasons(survey(**fields))


def policy(name: str, *ingress: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "shop"}, "spec": {"podSelector": {}, "ingress": list(ingress)}}


def test_policies_that_choose_clients_do_not_see_them_in_the_mode_snat() -> None:
    policies = [policy("by-pod", {"from": [{"podSelector": {}}]}), policy("none"), policy("all", {"ports": []})]
    (found,) = (each for each in judge(survey(network_policies=policies)) if each.reason == "NetworkPolicies")
    assert (found.severity, found.objects, found.action) == (
        "unknown",
        ("shop/by-pod",),
        "install with profile=kube-proxy",
    )
    already_hidden = survey("nftables: {masqueradeAll: true}", network_policies=policies)
    assert "NetworkPolicies" not in reasons(already_hidden)


def test_what_may_not_be_listed_leaves_it_unknown() -> None:
    findings = judge(survey(network_policies=None, daemon_sets=None))
    assert not is_safe(findings)
    unknown = "it is not known whether nodes can be moved: DaemonSetsUnknown, NetworkPoliciesUnknown"
    assert verdict(findings) == unknown
    assert verdict(judge(survey("mode: ipvs", daemon_sets=None))) == "do not move nodes yet: IPVS"
    assert verdict(judge(survey(network_policies=None), "kube-proxy")) == "nodes can be moved"


def test_the_profile_kube_proxy_shows_backends_their_clients() -> None:
    policies = [policy("by-pod", {"from": [{"podSelector": {}}]})]
    found = {each.reason for each in judge(survey(network_policies=policies), "kube-proxy")}
    assert found == {"ProxyMode", "Metrics"}


def test_versions_that_are_too_old_block() -> None:
    assert reasons(survey(version={**VERSION, "minor": "29+"}))["KubernetesVersion"] == "blocks"
    assert reasons(survey(nodes=[node(kernel="4.18.0-553.el8")]))["Kernel"] == "blocks"
    assert reasons(survey(nodes=[node(kernel="5.15.0")]))["KernelUntried"] == "differs"
    assert reasons(survey(nodes=[node(kernel="6.1.38-talos")]))["KernelForgets"] == "differs"
    for kernel in ("6.1.60", "6.1.0-13-amd64", "6.2.1", "6.10"):
        assert "KernelForgets" not in reasons(survey(nodes=[node(kernel=kernel)]))
    windows = node("w", "10.0.20348", **{"kubernetes.io/os": "windows"})
    assert reasons(survey(nodes=[node(), windows])).get("OtherSystems") == "note"


def test_what_the_operator_refuses_is_named_with_its_service() -> None:
    ports = [{"name": f"p{port}", "port": port, "protocol": "TCP"} for port in range(1, 2000)]
    seen = survey(services=[raw_service(name="web", ports=ports)])
    (found,) = (each for each in judge(seen) if each.reason == "TooManyPorts")
    assert (found.severity, found.objects) == ("blocks", ("Service default/web",))
    assert not is_safe(judge(seen))


def test_services_for_which_their_namespace_has_no_room_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "Cache", partial(Cache, limits=NamespaceLimits(farms=2)))
    services = [
        raw_service(
            f"s{day}", clusterIP=f"10.96.0.{day}", clusterIPs=[f"10.96.0.{day}"], created=f"2026-01-0{day}T00:00:00Z"
        )
        for day in range(1, 5)
    ]
    findings = judge(survey(services=services))
    (found,) = (each for each in findings if each.reason == "TooManyFarms")
    assert (found.severity, found.objects) == ("blocks", ("Service default/s3", "Service default/s4"))
    assert not is_safe(findings)


def test_sessions_are_not_taken_over() -> None:
    seen = survey(services=[raw_service(name="web", sessionAffinity="ClientIP")])
    (found,) = (each for each in judge(seen) if each.reason == "SessionsForgotten")
    assert found.objects == ("default/web",)


def test_what_cannot_be_read_is_said() -> None:
    found = reasons(survey(kube_proxy=None, daemon_sets=None))
    assert (found["ConfigurationUnknown"], found["DaemonSetsUnknown"]) == ("differs", "unknown")
    assert reasons(survey(kube_proxy={"data": {"config.conf": "{"}}))["ConfigurationUnknown"] == "differs"
    assert reasons(survey(daemon_sets=[]))["NoDaemonSet"] == "differs"


def test_the_worst_comes_first_and_names_are_bounded() -> None:
    severities = [each.severity for each in judge(survey("mode: ipvs", services=[with_node_port()]))]
    assert severities == sorted(severities, key=("blocks", "differs", "note").index)
    told = text(Finding("note", "Reason", "it is so", "do this", tuple(f"ns/{number}" for number in range(9))))
    assert told == "note    Reason: it is so (ns/0, ns/1, ns/2, ns/3, ns/4 and 4 more)\n        do this"
