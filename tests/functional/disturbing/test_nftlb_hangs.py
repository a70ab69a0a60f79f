"""The agent's work while nftlb hangs or is away: what keeps clients out is kept up, and all converges afterwards."""

import contextlib
from collections.abc import Callable, Iterator

import pytest

from tests.builders.manifests import farm, policy, service
from tests.functional.cluster import Cluster, eventually
from tests.functional.farms import backends, unique

Without = Callable[[Cluster, str], contextlib.AbstractContextManager[None]]

TAKEN = "10.96.77.9"
"""A cluster IP that no other test asks for."""
NOBODY = "192.0.2.0/24"
SECONDS = 15
"""nftlb counts as away when it has not answered for 5 s; the rest is for a busy machine."""


def hanging(cluster: Cluster, node: str) -> contextlib.AbstractContextManager[None]:
    return cluster.frozen("nftlb", node)


@contextlib.contextmanager
def away(cluster: Cluster, node: str) -> Iterator[None]:
    cluster.lab.stop("nftlb", node)
    try:
        yield
    finally:
        cluster.lab.start("nftlb", node)


@pytest.mark.parametrize("without", [hanging, away])
def test_who_may_connect_is_kept_up_without_nftlb(
    cluster: Cluster, namespace: str, client: str, without: Without
) -> None:
    node = cluster.nodes[0]
    cluster.serve("web", 2, namespace)
    pods, vip = cluster.pods("web", namespace), unique()
    client_ip = cluster.get("pod", "client", namespace)["status"]["podIP"]
    behind = backends(cluster, "web", namespace)

    def put(*ranges: str, scheduler: str = "rr") -> None:
        addresses = [{"ip": vip, "ports": "80", "sourceRanges": list(ranges)}]
        cluster.apply(
            farm(
                "kept",
                namespace,
                addresses=addresses,
                backends=behind,
                policies=["list"],
                scheduler=scheduler,
                engine="nftlb",
            )
        )

    def gets_in() -> bool:
        return bool(cluster.answers(client, vip, 80, "--timeout", "0.5", number=4))

    def ready() -> str:
        return str(cluster.condition("nftlbnode", node, "Ready")["status"])

    def failed() -> dict[str, str]:
        found = cluster.get("nftlbnode", node)["status"].get("failedFarms", [])
        return {each["name"]: each["reason"] for each in found}

    cluster.apply(policy("list", namespace, "deny", [NOBODY]))
    put()
    cluster.wait("farm", "kept", "Programmed", namespace)
    eventually(gets_in, "it answers")
    with without(cluster, node):
        cluster.apply(policy("list", namespace, "deny", [f"{client_ip}/32"]))
        eventually(lambda: not gets_in(), "a changed policy is enforced", SECONDS)
        cluster.apply(policy("list", namespace, "deny", [NOBODY]))
        eventually(gets_in, "and so is the next", SECONDS)
        put(NOBODY, scheduler="weight")
        eventually(lambda: not gets_in(), "changed source ranges are enforced", SECONDS)
        cluster.nft(node, "delete", "table", "inet", "kube-nftlb")
        eventually(
            lambda: cluster.lab.exec(node, "nft", "list", "chain", "inet", "kube-nftlb", "refuse").returncode == 0,
            "the agent table is repaired",
            SECONDS,
        )
        assert not gets_in()
        put(f"{client_ip}/32", scheduler="weight")
        eventually(gets_in, "and changed again", SECONDS)
        eventually(lambda: ready() == "False", "the node says that nftlb is away", SECONDS)
        eventually(lambda: failed().get("kept") == "NftlbUnreachable", "it says that the farm waits", SECONDS)
    eventually(lambda: ready() == "True", "it is well again", 30)
    cluster.wait("farm", "kept", "Programmed", namespace)
    assert '"scheduler": "weight"' in cluster.nftlb(node, "GET", f"/farms/{namespace}.kept")
    assert gets_in()
    cluster.apply(service("late", namespace, selector={"app": "web"}))
    cluster.farm_has("late--http", namespace, 2)
    cluster.reaches(client, pods, cluster.vip("late", namespace))


@pytest.mark.long
@pytest.mark.parametrize(("engine", "ports"), [("nftables", "80"), ("nftlb", "80"), ("nftables", "80-81")])
@pytest.mark.parametrize("without", [hanging, away])
def test_a_farm_that_takes_an_address_without_nftlb_has_no_rules_of_the_loser(
    cluster: Cluster, namespace: str, client: str, without: Without, engine: str, ports: str
) -> None:
    node = cluster.nodes[0]
    for app in ("first", "second"):
        cluster.serve(app, 1, namespace)
    second = cluster.pods("second", namespace)
    cluster.apply(policy("nobody", namespace, "allow", [NOBODY]))
    addresses = [{"ip": TAKEN, "ports": ports, "sourceRanges": [NOBODY]}]
    cluster.apply(
        farm(
            "loser",
            namespace,
            engine="nftlb",
            addresses=addresses,
            backends=backends(cluster, "first", namespace),
            policies=["nobody"],
        )
    )
    cluster.wait("farm", "loser", "Programmed", namespace)

    def rules() -> bool:
        """Return True if the loser has rules for what it has lost."""
        listed = cluster.nft(node, "list", "table", "inet", "kube-nftlb")
        return f"{TAKEN} . 80 : jump" in listed or (ports == "80" and "loser" in listed)

    def outcome(port: int = 80) -> set[str]:
        counted = cluster.count(client, 1, TAKEN, port, "--timeout", "0.5")
        return {*counted["answers"], *(kind for kind, number in counted["failures"].items() if number)}

    assert rules()
    with without(cluster, node):
        # The farm of a Service comes before one that is written by hand.
        cluster.apply(service("second", namespace, {"engine": engine}, clusterIP=TAKEN))
        wanted = set(second) if engine == "nftables" else {"refused"}
        eventually(lambda: outcome() == wanted, f"clients get {wanted}", SECONDS)
        eventually(lambda: not rules(), "nothing of the loser is in its way", SECONDS)
        if ports != "80":
            assert outcome(81) == {"timeout"}, "the loser keeps clients out of the rest"
    cluster.farm_has("second--http", namespace, 1)
    eventually(lambda: outcome() == set(second), "the winner is served", 30)
    assert not rules()
    if ports != "80":
        assert outcome(81) == {"timeout"}
