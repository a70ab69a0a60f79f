"""``kube-nftlb lab``: the command-line interface of ``Lab``."""

import json
import os
import subprocess
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from kube_nftlb import errors
from lab import components, programs, progress, versions
from lab.addresses import FIRST_SERVICE_IP
from lab.gateway import crds
from lab.lab import Lab

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Run a Kubernetes cluster on this machine, without containers."
)
pod_app = typer.Typer(no_args_is_help=True, help="Set the readiness of a pod, as its probe would.")
app.add_typer(pod_app, name="pod")

Proxy = Enum("Proxy", {name: name for name in programs.PROXIES}, type=str)  # type: ignore[misc]  # the names are data

Runtime = Enum("Runtime", {name: name for name in components.RUNTIMES}, type=str)  # type: ignore[misc]  # the names are data

Node = Annotated[str | None, typer.Argument(help="For example node-1. Default: all nodes.")]
Kubernetes = Annotated[
    str | None,
    typer.Option(
        envvar=versions.VARIABLE,
        help=f"Minor version of Kubernetes: {', '.join(each.name for each in versions.supported())}.",
    ),
]
ComponentName = Annotated[
    str,
    typer.Argument(
        metavar="COMPONENT",
        help="etcd, apiserver, controller-manager, kubelet, operator, agent, nftlb or kube-proxy; with "
        "--runtime containerd also scheduler and containerd.",
    ),
]
PodName = Annotated[str, typer.Argument(metavar="POD", help="NAME or NAMESPACE/NAME.")]


@app.callback()
def _lab(
    context: typer.Context,
    name: Annotated[
        str, typer.Option(envvar="KUBE_NFTLB_LAB", help="Name of the lab; several can run side by side.")
    ] = "default",
) -> None:
    context.obj = name


@app.command()
def up(
    context: typer.Context,
    nodes: Annotated[int, typer.Option(help="Number of nodes.")] = 2,
    zones: Annotated[str, typer.Option(help="Zones of the nodes, for example a,a,b.")] = "",
    proxy: Annotated[Proxy, typer.Option(help="Service proxy to run.")] = Proxy("kube-nftlb"),  # noqa: B008
    runtime: Annotated[
        Runtime,
        typer.Option(
            help="How pods run: as network namespaces with a test server each, or as containers under a real kubelet."
        ),
    ] = Runtime("namespaces"),  # noqa: B008
    operators: Annotated[int, typer.Option(min=1, help="Number of operators; one of them is the leader.")] = 1,
    addresses: Annotated[
        bool, typer.Option("--addresses", help="Give Services addresses from pools, and announce them.")
    ] = False,
    gateway_api: Annotated[
        bool,
        typer.Option(
            "--gateway-api", help=f"Install the CRDs of Gateway API {crds.version()}, and serve it; with --addresses."
        ),
    ] = False,
    gateway_experimental: Annotated[
        bool,
        typer.Option(
            "--gateway-experimental",
            help=f"The same with experimental Gateways, of Gateway API {crds.experimental_version()}.",
        ),
    ] = False,
    routers: Annotated[
        int,
        typer.Option(
            min=0,
            help="Number of routers before the client, to which nodes announce by BGP; from the third on by iBGP.",
        ),
    ] = 0,
    kubernetes: Kubernetes = None,
) -> None:
    """Start a lab and wait until it is ready."""
    gateway_api = gateway_api or gateway_experimental
    switch = {"KUBE_NFTLB_ADDRESSES": "on" if addresses or gateway_api or routers else "off"}
    of_agents = {**switch, "KUBE_NFTLB_BGP": "on" if routers else "off"}
    settings = {"operator": {**switch, "KUBE_NFTLB_GATEWAY": "on" if gateway_api else "off"}, "agent": of_agents}
    with progress.shown() as report:
        named = [zone for zone in zones.split(",") if zone] or None
        lab = Lab.up(
            context.obj,
            nodes,
            named,
            proxy.value,
            report,
            settings=settings,
            operators=operators,
            runtime=runtime.value,
            kubernetes=kubernetes,
            routers=routers,
            gateway_api=gateway_api,
            gateway_experimental=gateway_experimental,
        )
        report("ready")
    option = "" if lab.name == "default" else f" --name {lab.name}"
    typer.echo(f"\nexport KUBECONFIG=$(kube-nftlb lab{option} kubeconfig)")
    typer.echo(f"export PATH=$PATH:{lab.bin}    # for kubectl")


@app.command()
def down(context: typer.Context) -> None:
    """Stop a lab and remove everything it created."""
    Lab.remove(context.obj)


@app.command()
def status(context: typer.Context) -> None:
    """Show the state of all components."""
    from rich.console import Console
    from rich.table import Table

    lab = Lab(context.obj)
    table = Table(box=None)
    for column in ("COMPONENT", "NODE", "STATE", "PID", "RESTARTS"):
        table.add_column(column)
    for entry in lab.status():
        pid = str(entry["pid"] or "-")
        table.add_row(entry["component"], entry["node"] or "-", entry["state"], pid, str(entry["restarts"]))
    Console().print(table)


@app.command()
def kubeconfig(context: typer.Context) -> None:
    """Print the path of the kubeconfig."""
    typer.echo(Lab(context.obj).kubeconfig)


@app.command(name="bin")
def bin_folder(context: typer.Context) -> None:
    """Print the folder that contains kubectl, and nftlb if it runs; it goes with the lab."""
    typer.echo(Lab(context.obj).bin)


@app.command(name="exec", context_settings={"allow_interspersed_args": False})
def execute(
    context: typer.Context,
    where: Annotated[
        str,
        typer.Argument(metavar="NODE|POD|client", help="A node, a router, a pod (NAME or NAMESPACE/NAME), or client."),
    ],
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND ...")],
) -> None:
    """Run a command on a node, in a pod or on the client outside the cluster, and exit with its exit code."""
    lab = Lab(context.obj)
    # The parser keeps a "--" that follows the first argument.
    argv = lab.command(where, *(command[1:] if command[0] == "--" else command))
    os.execvpe(argv[0], argv, lab.environment(where))  # noqa: S606 (no shell is wanted)


@pod_app.command()
def ready(context: typer.Context, pod: PodName) -> None:
    """Make the pod Ready again."""
    Lab(context.obj).pod(True, pod)


@pod_app.command()
def unready(context: typer.Context, pod: PodName) -> None:
    """Make the pod not Ready. It keeps serving."""
    Lab(context.obj).pod(False, pod)


@app.command(name="load")
def load_image(
    context: typer.Context,
    image: Annotated[Path, typer.Argument(help="Image archive, as written by `docker save`.")],
) -> None:
    """Import an image on all nodes of a lab that runs containers. Its nodes do not pull from registries."""
    Lab(context.obj).load_image(image.absolute())


@app.command()
def restart(context: typer.Context, component: ComponentName, node: Node = None) -> None:
    """Stop a component (SIGTERM, SIGKILL after 5 s) and start it again."""
    Lab(context.obj).restart(component, node)


@app.command()
def stop(context: typer.Context, component: ComponentName, node: Node = None) -> None:
    """Stop a component until `start`."""
    Lab(context.obj).stop(component, node)


@app.command()
def start(context: typer.Context, component: ComponentName, node: Node = None) -> None:
    """Start a stopped component."""
    Lab(context.obj).start(component, node)


@app.command()
def logs(
    context: typer.Context,
    component: ComponentName,
    node: Node = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Keep printing until Ctrl-C.")] = False,
) -> None:
    """Print the log of a component, on one node or on all."""
    lab = Lab(context.obj)
    per_node = any(entry["component"] == component and entry["node"] for entry in lab.status())
    nodes = [plan.name for plan in lab.nodes] if per_node and node is None else [node]
    paths = [str(lab.log_path(component, name)) for name in nodes]
    sys.exit(subprocess.run(["tail", "-n", "+1", *(["-f"] if follow else []), *paths], check=False).returncode)


@app.command()
def binaries(
    proxy: Annotated[Proxy, typer.Option(help="Service proxy of the lab.")] = Proxy("kube-nftlb"),  # noqa: B008
    runtime: Annotated[Runtime, typer.Option(help="How its pods run.")] = Runtime("namespaces"),  # noqa: B008
    kubernetes: Kubernetes = None,
) -> None:
    """Find, install or build all programs a lab needs, and print their paths."""
    with progress.shown() as report:
        found = programs.ensure(proxy.value, report, runtime.value, versions.of(kubernetes))
    typer.echo(json.dumps({name: str(path) for name, path in sorted(found.items())}, indent=2))


@app.command()
def demo(context: typer.Context) -> None:
    """Walk through a Service, its Deployment and scaling, in a new lab if none is running."""
    from lab.demo import Demo

    with progress.shown() as report:
        try:
            lab = Lab(context.obj)
        except errors.LabError:
            lab = Lab.up(context.obj, report=report)
        report("ready")
    Demo(lab, typer.echo).run()
    option = "" if lab.name == "default" else f" --name {lab.name}"
    command = f"{Path(sys.executable).parent}/kube-nftlb lab{option}"
    typer.echo(
        "\n# The lab keeps running. Explore it with:"
        f"\n  export KUBECONFIG=$({command} kubeconfig) PATH=$PATH:{lab.bin}:{Path(sys.executable).parent}"
        f"\n  export KUBE_NFTLB_NODE_COMMAND='{command} exec {{node}} --'"
        "\n  kubectl get farms -o wide; kubectl describe farm my-service--http"
        f"\n  kubectl nftlb trace {lab.nodes[0].addresses[0].ip} {FIRST_SERVICE_IP}:443 --send"
        f"\n  {command} exec node-1 -- kube-nftlb nftlb GET /farms/my-service--http"
        f"\n  {command} exec node-1 -- nft list ruleset"
        f"\n# Stop it with:\n  {command} down"
    )
