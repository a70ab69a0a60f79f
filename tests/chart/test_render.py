"""The chart without a cluster: rendered objects and refused values."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import kube_nftlb
from kube_nftlb.api.schema import crd
from kube_nftlb.environment import described
from kube_nftlb.settings import AgentSettings, NftlbSettings, OperatorSettings
from tests import documents
from tests.chart.render import BGP, CHART, VALUES, by_key, comparable, golden, helm, render
from tools import chart

pytestmark = pytest.mark.timeout(600)

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS = documents.parse((CHART / "values.yaml").read_text())
CHOSEN_BY_THE_CHART = {
    "operator": {"metrics_address", "health_address", "leader_election", "namespace"},
    "agent": {"metrics_address", "probe_address", "nftlb", "daemon_set", "sysctl_dir", "namespace"},
}
DOWNWARD = {"status.podIP": "192.0.2.1", "metadata.namespace": "here", "spec.nodeName": "node-1"}


@pytest.mark.parametrize("name", VALUES)
def test_lint_finds_nothing(name: str) -> None:
    done = helm("lint", "--strict", str(CHART), values=VALUES[name])
    assert done.returncode == 0, done.stdout
    assert "0 chart(s) failed" in done.stdout


@pytest.mark.parametrize("name", VALUES)
def test_it_is_rendered_as_somebody_has_seen_it(name: str) -> None:
    rendered, seen = comparable(render(VALUES[name])), documents.parse(golden(name).read_text())
    assert rendered.keys() == seen.keys()
    for key, body in rendered.items():
        assert body == seen[key], f"{key} has changed; if it is right: python -m tests.chart.render"


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"colour": "green"}, "additional properties 'colour' not allowed"),
        ({"image": {"name": "x"}}, r"'/image': additional properties 'name' not allowed"),
        ({"operator": {"env": []}}, r"'/operator': additional properties 'env' not allowed"),
        ({"agent": {"extraEnv": [{"value": "x"}]}}, r"'/agent/extraEnv/0': missing property 'name'"),
        ({"agent": {"updateStrategy": {"maxSurge": 1}}}, r"'/agent/updateStrategy': .* 'maxSurge' not allowed"),
        ({"agent": {"updateStrategy": {"maxUnavailable": 0}}}, r"'/agent/.*/maxUnavailable': minimum: got 0, want 1"),
        ({"agent": {"updateStrategy": {"maxUnavailable": "0%"}}}, r"'/agent/.*/maxUnavailable': .*not match pattern"),
        ({"agent": {"updateStrategy": {"maxUnavailable": "00%"}}}, r"'/agent/.*/maxUnavailable': .*not match pattern"),
        ({"agent": {"updateStrategy": {"maxUnavailable": "101%"}}}, r"'/agent/.*/maxUnavailable': .*not match pattern"),
        ({"agent": {"tolerations": [{"effects": "x"}]}}, r"'/agent/tolerations/0': .* 'effects' not allowed"),
        ({"agent": {"resources": {"claims": []}}}, r"'/agent/resources': additional properties 'claims' not allowed"),
        ({"apiServer": {"port": "6443"}}, r"'/apiServer/port': got string, want integer"),
        ({"apiServer": {"host": "https://192.0.2.1"}}, r"'/apiServer/host': .*does not match pattern"),
        ({"apiServer": {"hosts": ["192.0.2.1:6443/"]}}, r"'/apiServer/hosts/0': .*does not match pattern"),
        ({"defaults": {"mode": "dsr"}}, r"'/defaults/mode': value must be one of '', 'snat', 'dnat'"),
        ({"profile": "cilium"}, r"'/profile': value must be one of 'nftlb', 'kube-proxy'"),
        ({"agent": {"proxyMode": "on"}}, r"'/agent/proxyMode': got string, want null or boolean"),
        ({"podCIDRs": "10.0.0.0/8"}, r"'/podCIDRs': got string, want array"),
        ({"podCIDRs": ["10.0.0.1"]}, r"'/podCIDRs/0': .*does not match pattern"),
        ({"log": {"level": "info"}}, r"'/log/level': value must be one of 'DEBUG'"),
        ({"dsr": {"enabled": "yes"}}, r"'/dsr/enabled': got string, want boolean"),
        ({"operator": {"networkPolicy": {"metricsFrom": [{}]}}}, r"metricsFrom/0': minProperties: got 0, want 1"),
        ({"operator": {"networkPolicy": {"metricsFrom": [{"ipBlock": {}}]}}}, r"0/ipBlock': missing property 'cidr'"),
        ({"operator": {"replicas": 0}}, r"'/operator/replicas': minimum: got 0, want 1"),
        ({"image": {"digest": "latest"}}, r"'/image/digest': .*does not match pattern"),
        ({"agent": {"podLabels": {"a": 1}}}, r"'/agent/podLabels/a': got number, want string"),
        ({"commonLabels": {"app.kubernetes.io/instance": "x"}}, "invalid propertyName 'app.kubernetes.io/instance'"),
        ({"agent": {"podLabels": {"app.kubernetes.io/name": "x"}}}, "invalid propertyName 'app.kubernetes.io/name'"),
        ({"operator": {"podLabels": {"app.kubernetes.io/component": "x"}}}, "propertyName 'app.*/component'"),
        ({"operator": {"agentSilentSeconds": 89}}, r"'/operator/agentSilentSeconds': minimum: got 89, want 90"),
        (
            {"apiServer": {"host": "auto"}},
            "the ConfigMap kube-public/cluster-info, .* cannot be read: give the address",
        ),
        (
            {"agent": {"metricsOnLoopback": True}, "podMonitor": {"enabled": True}},
            "leave out podMonitor and serviceMonitor",
        ),
        ({"readinessGate": {"admissionPolicy": True}}, "readinessGate.admissionPolicy needs readinessGate.enabled"),
        ({"gateway": {"enabled": True}}, "gateway.enabled requires addresses.enabled"),
        ({"gateway": {"engine": "ipvs"}}, r"'/gateway/engine': value must be one of 'nftlb', 'nftables', 'auto'"),
    ],
)
def test_a_value_of_no_use_is_refused_with_its_name(values: dict[str, Any], sentence: str) -> None:
    done = helm("template", "kube-nftlb", str(CHART), values=values)
    assert done.returncode != 0
    assert re.search(sentence, done.stderr), done.stderr


@pytest.mark.parametrize("value", [3, "1%", "05%", "99%", "100%"])
def test_what_the_api_server_takes_as_unavailable_agents_is_admitted(value: Any) -> None:
    agent = by_key(render({"agent": {"updateStrategy": {"maxUnavailable": value}}}))["DaemonSet kube-nftlb-agent"]
    assert agent["spec"]["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": value}


def test_the_schema_knows_each_value_and_no_other() -> None:
    assert paths_of(SCHEMA) - {"global"} == paths_in(DEFAULTS, paths_of(SCHEMA))


def test_the_schema_is_closed_wherever_keys_are_ours() -> None:
    def closed(node: Any) -> Iterator[str]:
        for key, inner in node.get("properties", {}).items():
            if "properties" in inner:
                assert inner["additionalProperties"] is False, key
                yield from closed(inner)
                yield key

    assert SCHEMA["additionalProperties"] is False
    assert len(list(closed(SCHEMA))) > 10
    for name in ("resources", "tolerations", "affinity"):
        node = SCHEMA["definitions"][name]
        assert node.get("items", node)["additionalProperties"] is False


def paths_of(schema: dict[str, Any], prefix: str = "") -> set[str]:
    """Return the paths of all values that a schema defines."""
    found: set[str] = set()
    for key, inner in schema["properties"].items():
        path = f"{prefix}{key}"
        found |= paths_of(inner, f"{path}.") if "properties" in inner else {path}
    return found


def paths_in(values: dict[str, Any], leaves: set[str], prefix: str = "") -> set[str]:
    found: set[str] = set()
    for key, inner in values.items():
        path = f"{prefix}{key}"
        if path in leaves or not isinstance(inner, dict):
            found.add(path)
        else:
            found |= paths_in(inner, leaves, f"{path}.")
    return found


def test_the_readme_tells_each_value_and_the_settings_what_they_mean() -> None:
    for file, text in chart.texts(CHART).items():
        assert file.read_text() == text, "run `make chart`"
    assert {value.path for value in chart.read((CHART / "values.yaml").read_text())} == paths_of(SCHEMA) - {"global"}


def test_the_chart_leaves_settings_at_their_defaults() -> None:
    rendered = by_key(render({}))
    for key, container, settings, required in (
        ("Deployment kube-nftlb-operator", "operator", OperatorSettings, {}),
        ("DaemonSet kube-nftlb-agent", "agent", AgentSettings, {"KUBE_NFTLB_NODE_NAME": "node-1"}),
    ):
        by_chart = settings.from_environment(environment(pod(rendered, key), container)).model_dump()
        by_default = settings.from_environment(required).model_dump()
        assert {name for name, value in by_chart.items() if value != by_default[name]} == CHOSEN_BY_THE_CHART[container]


def test_the_chart_has_the_version_of_what_it_installs() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == kube_nftlb.__version__


def test_what_releases_addresses_runs_on_the_nodes_of_the_operator() -> None:
    infra = [{"key": "infra", "operator": "Exists"}]
    values: dict[str, Any] = {"addresses": {"enabled": True}, "operator": {"tolerations": infra}}
    for quota, priority in ((False, "system-cluster-critical"), (True, None)):
        rendered = by_key(render({**values, "resourceQuota": {"enabled": quota}}))
        job = pod(rendered, "Job kube-nftlb-release-addresses")
        assert job["tolerations"] == pod(rendered, "Deployment kube-nftlb-operator")["tolerations"] == infra
        assert job.get("priorityClassName") == priority, "the quota is gone by then"


def test_operator_and_agents_look_up_the_api_server_without_the_cluster_dns_which_is_a_service() -> None:
    for values in VALUES.values():
        rendered = by_key(render(values))
        for key in ("Deployment kube-nftlb-operator", "DaemonSet kube-nftlb-agent"):
            assert pod(rendered, key).get("dnsPolicy") == "Default"


def test_the_definitions_are_those_of_the_models_and_stay_at_an_uninstall() -> None:
    definitions = crd.definitions().values()
    for keep in (True, False):
        rendered = by_key(render({"crds": {"keep": keep}}))
        for definition in definitions:
            found = rendered[f"CustomResourceDefinition {definition['metadata']['name']}"]
            assert found["spec"] == definition["spec"]
            annotations = found["metadata"].get("annotations", {})
            assert annotations.get("helm.sh/resource-policy") == ("keep" if keep else None)


@pytest.mark.parametrize("name", VALUES)
def test_the_programs_understand_what_the_chart_tells_them(name: str) -> None:
    rendered = by_key(render(VALUES[name]))
    operator, agent = pod(rendered, "Deployment kube-nftlb-operator"), pod(rendered, "DaemonSet kube-nftlb-agent")
    operators = OperatorSettings.from_environment(environment(operator, "operator"))
    agents = AgentSettings.from_environment(environment(agent, "agent"))
    given = VALUES[name]
    assert operators.leader_election is True
    assert operators.namespace == agents.namespace == "here"
    assert {str(cidr) for cidr in operators.external_ip_ranges} == set(
        given.get("externalIPs", {}).get("ranges", ["0.0.0.0/0", "::/0"])
    )
    assert {str(cidr) for cidr in operators.source_address_ranges} == set(
        given.get("annotations", {}).get("sourceAddressRanges", ["0.0.0.0/0", "::/0"])
    )
    assert agents.daemon_set == rendered["DaemonSet kube-nftlb-agent"]["metadata"]["name"]
    assert agents.node_name == "node-1"
    assert agents.conntrack.tcp_be_liberal is given.get("conntrack", {}).get("tcpBeLiberal", False)
    assert agents.conntrack.tcp_close_wait_s == given.get("conntrack", {}).get("tcpCloseWaitSeconds", 3600)
    assert {str(cidr) for cidr in agents.node_port_addresses or ()} == set(given.get("nodePortAddresses", ()))
    assert agents.nftlb == NftlbSettings.from_environment(environment(agent, "nftlb")), "they find each other"
    known = {each.variable.name for settings in (OperatorSettings, AgentSettings) for each in described(settings)}
    for body, container in ((operator, "operator"), (agent, "agent"), (agent, "nftlb")):
        for variable in environment(body, container):
            assert not variable.startswith("KUBE_NFTLB_") or variable in known, variable


@pytest.mark.parametrize(
    ("values", "programmed", "memory"),
    [
        ({}, ("snat", "nftlb", False), "256Mi"),
        ({"profile": "kube-proxy"}, ("dnat", "auto", True), "64Mi"),
        ({"profile": "kube-proxy", "defaults": {"mode": "snat"}}, ("snat", "auto", True), "64Mi"),
        ({"profile": "kube-proxy", "defaults": {"engine": "nftlb"}}, ("dnat", "nftlb", True), "256Mi"),
        ({"profile": "kube-proxy", "agent": {"proxyMode": False}}, ("dnat", "auto", False), "64Mi"),
        ({"defaults": {"engine": "nftables"}, "agent": {"proxyMode": True}}, ("snat", "nftables", True), "64Mi"),
    ],
)
def test_a_profile_decides_what_the_values_leave_open(
    values: dict[str, Any], programmed: tuple[str, str, bool], memory: str
) -> None:
    rendered = by_key(render(values))
    agent = pod(rendered, "DaemonSet kube-nftlb-agent")
    operators = OperatorSettings.from_environment(
        environment(pod(rendered, "Deployment kube-nftlb-operator"), "operator")
    )
    agents = AgentSettings.from_environment(environment(agent, "agent"))
    assert (operators.default_mode, operators.default_engine, agents.proxy_mode_address is not None) == programmed
    assert container_of(agent, "nftlb")["resources"]["requests"]["memory"] == memory


def pod(rendered: dict[str, Any], key: str) -> dict[str, Any]:
    spec: dict[str, Any] = rendered[key]["spec"]["template"]["spec"]
    return spec


def container_of(body: dict[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in body["containers"] if each["name"] == name)


def environment(body: dict[str, Any], container: str) -> dict[str, str]:
    """Return a container's environment as the kubelet would set it."""
    found: dict[str, str] = {}
    for each in container_of(body, container)["env"]:
        value = each.get("value")
        if value is None:
            value = DOWNWARD[each["valueFrom"]["fieldRef"]["fieldPath"]]
        found[each["name"]] = re.sub(r"\$\((\w+)\)", lambda match: found[match[1]], value)
    return found


def test_probes_and_prometheus_ask_where_the_programs_listen() -> None:
    for name in VALUES:
        rendered = by_key(render(VALUES[name]))
        for key, container, settings in (
            ("Deployment kube-nftlb-operator", "operator", OperatorSettings),
            ("DaemonSet kube-nftlb-agent", "agent", AgentSettings),
        ):
            body = pod(rendered, key)
            set_to = settings.from_environment(environment(body, container))
            ports = {port["name"]: port["containerPort"] for port in container_of(body, container)["ports"]}
            assert ports == {"metrics": set_to.metrics_address.port, "health": set_to.health_address.port}
            on_loopback = container == "agent" and name == "little"
            assert set_to.metrics_address.host == ("127.0.0.1" if on_loopback else "192.0.2.1"), "the pod's own address"
        agents, operators = (
            pod(rendered, key) for key in ("DaemonSet kube-nftlb-agent", "Deployment kube-nftlb-operator")
        )
        if operators.get("hostNetwork"):
            taken = [
                port["containerPort"]
                for body in (agents, operators)
                for c in body["containers"]
                for port in c.get("ports", ())
            ]
            assert len(taken) == len(set(taken)), "both are on the node's network"


def test_no_program_has_more_of_its_node_than_it_needs() -> None:
    for name, values in VALUES.items():
        rendered = by_key(render(values))
        dsr = values.get("dsr", {}).get("enabled", False)
        for key in ("Deployment kube-nftlb-operator", "DaemonSet kube-nftlb-agent"):
            body = pod(rendered, key)
            assert body["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            assert body["automountServiceAccountToken"] is False
            assert body.get("hostPID", False) == (dsr and key.startswith("DaemonSet"))
            for container in body["containers"]:
                context = container["securityContext"]
                added = {
                    "operator": [],
                    "nftlb": ["NET_ADMIN"],
                    "responder": ["NET_RAW"],
                    "bird": ["NET_BIND_SERVICE", "NET_ADMIN", "NET_RAW"],
                    "agent": ["NET_ADMIN", "NET_RAW", *(["SYS_ADMIN", "SYS_PTRACE"] if dsr else [])],
                }
                assert context == {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"], **({"add": add} if (add := added[container["name"]]) else {})},
                }, name
                has_token = any(mount["name"] == "token" for mount in container["volumeMounts"])
                assert has_token is (container["name"] in ("operator", "agent"))
            on = values.get("addresses", {}).get("enabled", False) and key.startswith("DaemonSet")
            names = {container["name"] for container in body["containers"]}
            assert ("responder" in names) == on
            assert ("bird" in names) == (on and "bgp" in values["addresses"])
        assert pod(rendered, "Deployment kube-nftlb-operator")["securityContext"]["runAsNonRoot"] is True


_BGP = {"enabled": True, "bird": {"passwordSecret": "bgp"}}


@pytest.mark.parametrize(
    ("addresses", "writes_routes", "has_bird"),
    [
        ({"enabled": True}, False, False),
        ({"enabled": False, "bgp": _BGP}, False, False),
        ({"enabled": True, "bgp": {**_BGP, "bird": {"enabled": False}}}, True, False),
        ({"enabled": True, "bgp": _BGP}, True, True),
    ],
)
def test_bird_and_its_rights_are_there_only_where_bgp_is_on(
    addresses: dict[str, Any], writes_routes: bool, has_bird: bool
) -> None:
    rendered = by_key(render({"addresses": addresses}))
    body = pod(rendered, "DaemonSet kube-nftlb-agent")
    containers = {each["name"]: each for each in body["containers"]}
    assert ("bird" in containers) == has_bird
    assert ("KUBE_NFTLB_BGP" in str(containers["agent"])) == writes_routes
    assert ("nftlbbgppeers" in str(rendered["ClusterRole kube-nftlb-agent"])) == has_bird
    mounted = {name for name, each in containers.items() if "bird-secret" in str(each["volumeMounts"])}
    assert mounted == ({"bird"} if has_bird else set()), "nobody else has the passwords"
    assert ("bird" in str(containers["agent"]["volumeMounts"])) == has_bird


def test_every_object_is_found_by_its_labels() -> None:
    for body in render(VALUES["everything"]):
        labels = body["metadata"]["labels"]
        assert (labels["app.kubernetes.io/name"], labels["team"]) == ("kube-nftlb", "net"), body["metadata"]["name"]


@pytest.mark.parametrize(
    ("runbooks", "begin"), [("", "docs/"), ("https://git.example/x/", "https://git.example/x/docs/")]
)
def test_runbooks_are_links_where_somebody_says_where_they_are(runbooks: str, begin: str) -> None:
    rendered = by_key(render({"prometheusRule": {"enabled": True, "runbooks": runbooks}}))
    groups = rendered["PrometheusRule kube-nftlb"]["spec"]["groups"]
    urls = [rule["annotations"]["runbook_url"] for group in groups for rule in group["rules"]]
    assert all(url.startswith(f"{begin}troubleshooting.md#") for url in urls), urls


def test_every_rule_of_the_roles_stands_under_its_reason() -> None:
    for path in (CHART / "rbac").glob("*.yaml"):
        lines = path.read_text().splitlines()
        reason = False
        for line in lines:
            if line.startswith("- "):
                assert reason, f"{path.name}: {line}"
            reason = line.startswith("#") or (reason and bool(line))
        assert all(
            "*" not in value
            for rule in yaml.safe_load(path.read_text())
            for values in rule.values()
            for value in values
        )


def test_in_another_namespace_the_policies_mean_the_accounts_there() -> None:
    text = json.dumps(render({}, namespace="elsewhere"))
    assert "kube-nftlb-system" not in text
    assert "system:serviceaccount:elsewhere:kube-nftlb-operator" in text
    assert "system:serviceaccount:elsewhere:kube-nftlb-agent" in text


def test_names_that_yaml_reads_as_numbers_are_texts() -> None:
    values = {
        "image": {"pullSecrets": ["1"]},
        "addresses": {"enabled": True, "bgp": {**BGP, "bird": {"passwordSecret": "2"}}},
    }
    done = helm("template", "123", str(CHART), "--namespace", "2024", values=values)
    for body in filter(None, yaml.safe_load_all(done.stdout)):
        metadata = body["metadata"]
        assert isinstance(metadata.get("namespace", ""), str), metadata
        assert metadata["labels"]["app.kubernetes.io/instance"] == "123"
    assert all(f'{key}: "{value}"' in done.stdout for key, value in (("name", "1"), ("secretName", "2")))


def test_a_package_of_the_chart_is_the_chart(tmp_path: Path) -> None:
    done = helm("package", str(CHART), "--destination", str(tmp_path))
    assert done.returncode == 0, done.stderr
    (package,) = tmp_path.iterdir()
    assert by_key(render({}, package)) == by_key(render({}))
