"""``render`` of manifests that nobody wrote for kube-nftlb."""

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from kube_nftlb import errors
from kube_nftlb.cli import app
from kube_nftlb.commands.manifests import complete, parse
from kube_nftlb.commands.render import Rendered, render
from kube_nftlb.commands.ruleset import shorter

SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: http}, {name: raw, port: 81}]
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata:
      labels: {app: web, tier: front}
      annotations: {service.kubernetes.io/kube-nftlb-load-balancer-weight: "5"}
    spec: {containers: [{name: c, image: nginx, ports: [{name: http, containerPort: 8080}]}]}
"""
OTHERS = "apiVersion: cert-manager.io/v1\nkind: Certificate\nmetadata: {name: x}\n---\n# only a comment\n---\n"
SLICE = """
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 9}]
endpoints: [{addresses: [10.244.0.9], conditions: {ready: true}}]
"""


def rendered(*documents: str) -> Rendered:
    return render(complete(parse("\n---\n".join(documents), "file")))


def backends(result: Rendered) -> dict[str, list[tuple[str, str, int | None, int | None]]]:
    return {
        farm.metadata.name: [(each.name, each.ip, each.port, each.weight) for each in farm.spec.backends]
        for farm in result.accepted
    }


def test_the_pods_of_a_deployment_are_example_backends() -> None:
    result = rendered(SERVICE, OTHERS, DEPLOYMENT)
    assert backends(result)["web--http"] == [("shop-0", "203.0.113.1", 8080, 5), ("shop-1", "203.0.113.2", 8080, 5)]
    assert [port for _, _, port, _ in backends(result)["web--raw"]] == [81, 81]
    assert "Deployment default/shop: 2 example pods for Service default/web" in result.notes
    assert "ignored 1 of kind Certificate" in result.notes
    assert not any("Deployment" in note for note in result.notes if note.startswith("ignored"))


def test_an_endpoint_slice_says_it_better() -> None:
    result = rendered(SERVICE, SLICE, DEPLOYMENT)
    assert [ip for _, ip, _, _ in backends(result)["web--http"]] == ["10.244.0.9"]
    assert "ignored 1 of kind Deployment" in result.notes


def test_a_pod_is_its_own_example() -> None:
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: one, labels: {app: web}}\nspec: {}\n"
    result = rendered(SERVICE, pod)
    assert backends(result)["web--raw"] == [("one", "203.0.113.1", 81, 1)]
    assert backends(result)["web--http"] == []


@pytest.mark.parametrize(
    "change",
    [
        ("kind: Deployment\nmetadata: {name: shop}", "kind: Deployment\nmetadata: {name: shop, namespace: other}"),
        ("labels: {app: web, tier: front}", "labels: {app: other}"),
        ("replicas: 2", "replicas: 0"),
    ],
)
def test_other_pods_are_not_its_backends(change: tuple[str, str]) -> None:
    assert backends(rendered(SERVICE, DEPLOYMENT.replace(*change)))["web--http"] == []


@pytest.mark.parametrize(
    "strange",
    [
        "kind: Deployment\nmetadata: {name: a}\n",
        "kind: Deployment\nmetadata: {name: a}\nspec: {template: 7, replicas: many}\n",
        "kind: Deployment\nmetadata: {name: a}\nspec: {template: {metadata: {labels: [app]}}}\n",
        "kind: StatefulSet\nspec: []\n",
        "kind: Kustomization\nresources: [x]\n",
    ],
)
def test_what_is_no_workload_disturbs_nothing(strange: str) -> None:
    assert len(backends(rendered(SERVICE, strange, DEPLOYMENT))["web--http"]) == 2


def test_both_families_have_examples() -> None:
    both = SERVICE.replace("spec:", "spec:\n  ipFamilyPolicy: RequireDualStack", 1)
    found = backends(rendered(both, DEPLOYMENT))
    assert sorted(ip for each in found.values() for _, ip, port, _ in each if port == 8080) == [
        "2001:db8:1::1",
        "2001:db8:1::2",
        "203.0.113.1",
        "203.0.113.2",
    ]


def run(*words: str, text: str | None = None) -> Result:
    return CliRunner().invoke(app, ["render", *words], input=text)


def test_a_folder_and_standard_input_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SERVICE)
    (tmp_path / "b.yml").write_text(DEPLOYMENT)
    (tmp_path / "README.md").write_text("no manifest")
    (tmp_path / "empty").mkdir()
    from_folder, from_input = run("-f", str(tmp_path)), run("-f", "-", text=f"{SERVICE}---{DEPLOYMENT}")
    assert (from_folder.exit_code, from_folder.stdout) == (0, from_input.stdout)
    assert "name: web--http" in from_folder.stdout
    nothing = run("-f", str(tmp_path / "empty"))
    assert (nothing.exit_code, "no .yaml, .yml, .json in the folder" in nothing.stderr) == (2, True)


def test_a_template_of_a_chart_says_what_to_do() -> None:
    done = run("-f", "-", text="{{- if .Values.x }}\nkind: Service\n{{ end }}\n")
    assert done.exit_code == 2
    assert "helm template CHART | kube-nftlb render -f -" in done.stderr


RULES = """\
table ip one {
\tmap empty {
\t\ttype ipv4_addr : verdict
\t}

\tset full {
\t\ttype ipv4_addr
\t\telements = { 192.0.2.1,
\t\t\t     192.0.2.2 }
\t}

\tchain nothing {
\t}

\tchain hooked {
\t\ttype nat hook prerouting priority 100; policy accept;
\t}

\tset none {
\t\ttype ipv4_addr
\t\tflags interval
\t}
}
table ip6 two {
\tchain rules {
\t\treturn
\t}
}
"""


def test_what_is_empty_is_hidden_and_counted() -> None:
    assert (
        shorter(RULES)
        == """\
table ip one {
\tset full {
\t\ttype ipv4_addr
\t\telements = { 192.0.2.1,
\t\t\t     192.0.2.2 }
\t}

\tchain hooked {
\t\ttype nat hook prerouting priority 100; policy accept;
\t}

\t# hidden, as they are empty (--all): 1 chain, 1 map, 1 set
}
table ip6 two {
\tchain rules {
\t\treturn
\t}
}
"""
    )
    assert shorter("") == ""


@pytest.mark.parametrize(
    "manifest",
    [
        "apiVersion: v1\nkind: Service\nmetadata: {name: web, annotations: [1]}\nspec: {ports: 5}",
        "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: []",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web, annotations: 7}\nspec: 9",
    ],
)
def test_what_no_api_server_would_accept_is_no_python_error(manifest: str, tmp_path: Path) -> None:
    (tmp_path / "odd.yaml").write_text(manifest)
    done = CliRunner().invoke(app, ["render", "-f", str(tmp_path / "odd.yaml")])
    assert done.exit_code in (0, 1)
    assert "Error:" not in done.stderr
    assert "object has no" not in done.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), ("snat", "nftlb")),
        (("--profile", "kube-proxy"), ("dnat", "nftables")),
        (("--profile", "kube-proxy", "--engine", "nftlb"), ("dnat", "nftlb")),
    ],
)
def test_a_profile_is_what_the_chart_makes_of_it(
    words: tuple[str, ...], expected: tuple[str, str], tmp_path: Path
) -> None:
    (tmp_path / "web.yaml").write_text(SERVICE)
    done = CliRunner().invoke(app, ["render", "-f", str(tmp_path / "web.yaml"), *words])
    specs = [farm["spec"] for farm in yaml.safe_load_all(done.stdout)]
    assert {(spec["mode"], spec["engine"]) for spec in specs} == {expected}


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        (
            "{name: shop}",
            "{generateName: shop-}",
            "Deployment without metadata.name, which Service default/web selects",
        ),
        (
            "{name: c, image: nginx",
            "nginx, {image: nginx",
            r"Deployment default/shop: spec.template.spec.containers\[0\]",
        ),
        ("[{name: http, containerPort: 8080}]", "[http]", r"spec.template.spec.containers\[0\].ports has http"),
    ],
)
def test_a_workload_that_cannot_be_read_is_named_with_the_field(before: str, after: str, sentence: str) -> None:
    assert before in DEPLOYMENT
    with pytest.raises(errors.UsageError, match=sentence):
        rendered(SERVICE, DEPLOYMENT.replace(before, after))


@pytest.mark.parametrize("families", ["[{a: b}]", "5"])
def test_a_service_with_other_families_is_rejected_by_the_field(families: str) -> None:
    service = SERVICE.replace("spec:\n", f"spec:\n  ipFamilies: {families}\n  ipFamilyPolicy: PreferDualStack\n")
    assert any("Service default/web: the API server" in each for each in rendered(service, DEPLOYMENT).problems)
    assert any("spec.ipFamilies" in each for each in rendered(service, DEPLOYMENT).problems)


@pytest.mark.parametrize("addresses", ["x", "[x]"])
def test_a_node_that_cannot_be_read_is_rejected_by_the_field(addresses: str) -> None:
    node = f"apiVersion: v1\nkind: Node\nmetadata: {{name: n1}}\nstatus: {{addresses: {addresses}}}\n"
    (problem,) = rendered(SERVICE, node).problems
    assert problem.startswith("Node n1: the API server would reject it: status.addresses")
