"""Each alert fires when it shall, and is silent when all is well (promtool test rules)."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.functional.prometheus import CONFIGURATION, RULES, alerts, promtool

AGENT = 'job="kube-nftlb-system/kube-nftlb", component="agent", namespace="kube-nftlb-system", pod="agent-1", node="n1"'
OPERATOR = 'job="kube-nftlb", component="operator", namespace="kube-nftlb-system", pod="operator-1", node="n1"'
HOUR = "x120"
"""Repetitions of a sample: every half minute for an hour."""
LATENCY = "kube_nftlb_network_programming_duration_seconds_bucket"


class Case(NamedTuple):
    """Series and their samples while something is wrong, and while all is well."""

    wrong: dict[str, str]
    well: dict[str, str]


def constant(series: str, wrong: str, well: str) -> Case:
    return Case({series: wrong + HOUR}, {series: well + HOUR})


def two_racks(announced: int) -> dict[str, str]:
    """Each node has the subnet of one pool; of the pool ``a`` five addresses can be announced, and two are nowhere."""
    node = "kube_nftlb_node_addresses"
    series = {f'kube_nftlb_addresses{{pool="{pool}", family="ipv4", state="used", {OPERATOR}}}': 7 for pool in "ab"}
    series |= {f'{node}{{pool="{pool}", state="announced", {AGENT}}}': of for pool, of in (("a", announced), ("b", 0))}
    series |= {f'{node}{{pool="{pool}", state="no_link", {AGENT}}}': of for pool, of in (("a", 2), ("b", 7))}
    other = AGENT.replace('node="n1"', 'node="n2"')
    series |= {f'{node}{{pool="{pool}", state="announced", {other}}}': of for pool, of in (("a", 0), ("b", 7))}
    series |= {f'{node}{{pool="{pool}", state="no_link", {other}}}': of for pool, of in (("a", 7), ("b", 0))}
    return {name: f"{value}{HOUR}" for name, value in series.items()}


CASES = {
    "KubeNftlbAgentDown": constant(f"up{{{AGENT}}}", "0", "1"),
    "KubeNftlbNftlbDown": constant(f"kube_nftlb_nftlb_up{{{AGENT}}}", "0", "1"),
    "KubeNftlbConntrackNearlyFull": Case(
        {f"kube_nftlb_conntrack_entries{{{AGENT}}}": f"95{HOUR}"}
        | {f"kube_nftlb_conntrack_entries_limit{{{AGENT}}}": f"100{HOUR}"},
        {f"kube_nftlb_conntrack_entries{{{AGENT}}}": f"80{HOUR}"}
        | {f"kube_nftlb_conntrack_entries_limit{{{AGENT}}}": f"100{HOUR}"},
    ),
    "KubeNftlbAffinityNearlyFull": Case(
        {f"kube_nftlb_affinity_clients{{{AGENT}}}": f"60000{HOUR}"}
        | {f"kube_nftlb_affinity_clients_limit{{{AGENT}}}": f"65535{HOUR}"},
        {f"kube_nftlb_affinity_clients{{{AGENT}}}": f"50000{HOUR}"}
        | {f"kube_nftlb_affinity_clients_limit{{{AGENT}}}": f"65535{HOUR}"},
    ),
    "KubeNftlbChangesWait": constant(f"kube_nftlb_lag_seconds{{{AGENT}}}", "61+30", "30"),
    "KubeNftlbFarmsFailed": constant(f'kube_nftlb_node_farms{{state="failed", {AGENT}}}', "2", "0"),
    "KubeNftlbDrift": constant(f"kube_nftlb_drift_repaired_total{{{AGENT}}}", "0+1", "5"),
    "KubeNftlbNftlbRestarts": constant(f"kube_nftlb_nftlb_restarts_total{{{AGENT}}}", "0+1", "7"),
    "KubeNftlbProgrammingSlow": Case(
        {f'{LATENCY}{{le="10", {AGENT}}}': f"0{HOUR}", f'{LATENCY}{{le="+Inf", {AGENT}}}': f"0+1{HOUR}"}
        | {f'{LATENCY}{{le="30", {AGENT}}}': f"0+1{HOUR}"},
        {f'{LATENCY}{{le="10", {AGENT}}}': f"0+1{HOUR}", f'{LATENCY}{{le="+Inf", {AGENT}}}': f"0+1{HOUR}"}
        | {f'{LATENCY}{{le="30", {AGENT}}}': f"0+1{HOUR}"},
    ),
    "KubeNftlbAddressInUse": constant(f'kube_nftlb_node_addresses{{pool="a", state="in_use", {AGENT}}}', "1", "0"),
    "KubeNftlbAddressesNotAnnounced": Case(two_racks(announced=4), two_racks(announced=5)),
    "KubeNftlbBGPSessionsDown": constant(f'kube_nftlb_bgp_sessions{{state="down", {AGENT}}}', "1", "0"),
    "KubeNftlbServicesWithoutAddress": constant(
        f'kube_nftlb_services_without_address{{reason="NoPool", {OPERATOR}}}', "1", "0"
    ),
    "KubeNftlbOperatorDown": constant(f"up{{{OPERATOR}}}", "0", "1"),
    "KubeNftlbNoLeader": constant(f"kube_nftlb_leader{{{OPERATOR}}}", "0", "1"),
    "KubeNftlbOperatorStalled": constant(
        f'kube_nftlb_queue_stalled_seconds{{queue="farms", {OPERATOR}}}', "121+30", "0"
    ),
    "KubeNftlbFarmWritesFail": constant(f"kube_nftlb_farms_refused_total{{{OPERATOR}}}", "0+1", "3"),
    "KubeNftlbWatchMissesChanges": constant(
        f'kube_nftlb_relist_repairs_total{{resource="services", {OPERATOR}}}', "0+1", "4"
    ),
    "KubeNftlbNodesNotReady": constant(f'kube_nftlb_nodes{{state="not_ready", {OPERATOR}}}', "1", "0"),
}

MORE = [
    ("KubeNftlbFarmWritesFail", constant(f"kube_nftlb_farm_writes_failing{{{OPERATOR}}}", "1", "0")),
]
"""Other causes of these alerts."""


def _test(name: str, samples: dict[str, str], firing: list[dict[str, Any]]) -> dict[str, Any]:
    # The operator is there in all tests but its own, so that its absence is no news.
    there = {} if name == "KubeNftlbOperatorDown" else {f"up{{{OPERATOR}}}": f"1{HOUR}"}
    return {
        "interval": "30s",
        "input_series": [{"series": series, "values": values} for series, values in (there | samples).items()],
        "promql_expr_test": [
            {
                "expr": f'count by (alertname) (ALERTS{{alertstate="firing", alertname="{name}"}})',
                "eval_time": "45m",
                "exp_samples": firing,
            }
        ],
    }


def test_each_alert_is_tested() -> None:
    assert {rule["alert"] for rule in alerts()} == CASES.keys()


def test_an_alert_fires_when_something_is_wrong_and_not_when_all_is_well(tmp_path: Path) -> None:
    tests = []
    for name, case in [*CASES.items(), *MORE]:
        fired = [{"labels": f'{{alertname="{name}"}}', "value": 1}]
        tests += [_test(name, case.wrong, fired), _test(name, case.well, [])]
    (tmp_path / "test.yaml").write_text(
        yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "30s", "tests": tests})
    )
    done = promtool("test", "rules", "test.yaml", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_an_alert_says_what_is_wrong_and_what_to_do(rule: dict[str, Any]) -> None:
    said = rule["annotations"]
    assert said.keys() == {"summary", "description", "runbook_url"}
    assert said["runbook_url"] == f"docs/troubleshooting.md#{rule['alert'].lower()}"
    assert said["summary"].endswith(".")
    assert rule["labels"]["severity"] in ("warning", "critical")


def test_promtool_takes_the_rules(tmp_path: Path) -> None:
    done = promtool("check", "rules", RULES, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_takes_the_example_but_for_what_debian_left_out(tmp_path: Path) -> None:
    """Debian's Prometheus is built without the discovery of Pods, which it is given a list for here."""
    written = yaml.safe_load(CONFIGURATION.read_text())
    written["rule_files"] = [str(RULES)]
    for job in written["scrape_configs"]:
        del job["kubernetes_sd_configs"]
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(written))
    done = promtool("check", "config", "prometheus.yaml", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
