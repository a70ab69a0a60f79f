from pathlib import Path

import pytest

from lab.addresses import plan_nodes
from lab.components import Blueprint, Component
from lab.state import LabFiles

PROGRAMS = {
    name: Path("/bin", name) for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl", "kube-proxy")
}


def blueprint(proxy: str) -> Blueprint:
    return Blueprint(LabFiles(Path("/lab")), plan_nodes(2), proxy, PROGRAMS)


@pytest.mark.parametrize(
    ("proxy", "names"),
    [
        ("none", []),
        ("kube-nftlb", ["operator", "nftlb", "nftlb", "agent", "agent"]),
        ("kube-proxy-iptables", ["kube-proxy", "kube-proxy"]),
    ],
)
def test_components_of_each_proxy(proxy: str, names: list[str]) -> None:
    made = blueprint(proxy)
    assert [component.name for component in (*made.operators_and_daemons(), *made.proxies())] == names


def test_kube_proxy_flags_name_mode_and_node() -> None:
    component = blueprint("kube-proxy-nftables").proxies()[1]
    assert component.node == "node-2"
    assert {"--proxy-mode=nftables", "--hostname-override=node-2"} <= set(component.argv)


def test_agent_and_nftlb_of_a_node_share_a_folder() -> None:
    folders = {
        (component.name, component.environment["KUBE_NFTLB_RUN_DIR"])
        for component in blueprint("kube-nftlb").all()
        if component.node == "node-1"
    }
    assert folders == {("agent", "/lab/run/node-1"), ("nftlb", "/lab/run/node-1")}


def test_settings_of_one_node_override_those_of_the_component() -> None:
    settings = {
        "agent": {"A": "all", "B": "all"},
        "agent@node-2": {"B": "own"},
        "kube-proxy": {"nodeport-addresses": "primary"},
        "kube-proxy@node-2": {"proxy-mode": "iptables"},
    }

    def proxies(proxy: str) -> list[Component]:
        return Blueprint(LabFiles(Path("/lab")), plan_nodes(2), proxy, PROGRAMS, settings=settings).proxies()

    agents = [component.environment for component in proxies("kube-nftlb") if component.name == "agent"]
    assert [(environment["A"], environment["B"]) for environment in agents] == [("all", "all"), ("all", "own")]
    first, second = (component.argv for component in proxies("kube-proxy-nftables"))
    assert {"--nodeport-addresses=primary", "--proxy-mode=nftables"} <= set(first)
    assert {"--nodeport-addresses=primary", "--proxy-mode=iptables"} <= set(second)


def test_flannel_runs_on_each_node_of_a_lab_that_has_its_program() -> None:
    assert blueprint("kube-nftlb").routers() == []
    made = Blueprint(LabFiles(Path("/lab")), plan_nodes(2), "none", {**PROGRAMS, "flanneld": Path("/bin/flanneld")})
    first, second = made.routers()
    assert (first.node, first.environment, second.node) == ("node-1", {"NODE_NAME": "node-1"}, "node-2")
    assert {"--ip-masq=true", "--subnet-file=/lab/flannel/node-1.env"} <= set(first.argv)
    assert [each.name for each in made.all()].count("flanneld") == 2


def test_etcd_and_the_api_server_have_their_own_flags_and_those_of_the_settings() -> None:
    settings = {"etcd": {"unsafe-no-fsync": "true"}, "apiserver": {"delete-collection-workers": "16"}}
    made = Blueprint(LabFiles(Path("/lab")), plan_nodes(1), "none", PROGRAMS, settings=settings)
    etcd, api_server = made.control_plane()
    assert {"--data-dir=/lab/etcd", "--unsafe-no-fsync=true"} <= set(etcd.argv)
    assert {"--authorization-mode=RBAC", "--delete-collection-workers=16"} <= set(api_server.argv)
