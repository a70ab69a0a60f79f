from kube_nftlb.kube.resources import JsonObject
from lab.kubelet.scheduling import choose_node
from tests.builders import raw_node as node


def pod(**spec: object) -> JsonObject:
    return {"metadata": {"name": "pod"}, "spec": spec}


def daemon(name: str) -> JsonObject:
    fields = [{"key": "metadata.name", "operator": "In", "values": [name]}]
    required = {"nodeSelectorTerms": [{"matchFields": fields}]}
    return pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}})


NODES = [
    node(name, labels={"disk": disk}) for name, disk in (("node-1", "fast"), ("node-2", "slow"), ("node-3", "fast"))
]


def test_the_node_with_the_fewest_pods_is_chosen() -> None:
    assert choose_node(pod(), NODES, {"node-1": 2, "node-2": 1, "node-3": 2}) == "node-2"


def test_pods_of_one_owner_are_spread_whatever_else_runs() -> None:
    assert choose_node(pod(), NODES, {"node-1": 0, "node-2": 5, "node-3": 5}, {"node-1": 1, "node-3": 1}) == "node-2"


def test_the_first_of_equals_is_chosen() -> None:
    assert choose_node(pod(), NODES, {}) == "node-1"


def test_a_node_selector_is_respected() -> None:
    assert choose_node(pod(nodeSelector={"disk": "fast"}), NODES, {"node-1": 1}) == "node-3"
    assert choose_node(pod(nodeSelector={"disk": "none"}), NODES, {}) is None


def test_only_daemon_set_pods_run_on_a_cordoned_node() -> None:
    cordoned = [node("node-1", unschedulable=True)]
    assert choose_node(pod(), cordoned, {}) is None
    assert choose_node(daemon("node-1"), cordoned, {}) == "node-1"


def test_the_pod_of_a_daemon_set_goes_to_its_node() -> None:
    assert choose_node(daemon("node-2"), NODES, {"node-2": 9}) == "node-2"
