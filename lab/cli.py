"""``kube-nftlb lab``: the command line over ``Lab``."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from kube_nftlb import errors
from lab import components, programs
from lab.lab import Lab

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="A Kubernetes cluster on this machine, without containers."
)
pod_app = typer.Typer(no_args_is_help=True, help="What a pod's readiness probe would say.")
app.add_typer(pod_app, name="pod")

Proxy = Enum("Proxy", {name: name for name in programs.PROXIES}, type=str)  # type: ignore[misc]

Runtime = Enum("Runtime", {name: name for name in components.RUNTIMES}, type=str)  # type: ignore[misc]

Node = Annotated[str | None, typer.Argument(help="Such as node-1; all of them without it.")]
ComponentName = Annotated[
    str,
    typer.Argument(
        metavar="COMPONENT",
        help="etcd, apiserver, controller-manager, kubelet, operator, agent, nftlb, kube-proxy; with "
        "containers also scheduler, containerd.",
    ),
]
PodName = Annotated[str, typer.Argument(metavar="POD", help="name, or namespace/name")]


@app.callback()
def _lab(
    context: typer.Context,
    name: Annotated[str, typer.Option(envvar="KUBE_NFTLB_LAB", help="Which lab; several may run.")] = "default",
) -> None:
    context.obj = name


@app.command()
def up(
    context: typer.Context,
    nodes: Annotated[int, typer.Option(help="How many nodes.")] = 2,
    zones: Annotated[str, typer.Option(help="The nodes' zones, such as a,a,b.")] = "",
    proxy: Annotated[Proxy, typer.Option(help="What implements Services.")] = Proxy("kube-nftlb"),  # noqa: B008
    runtime: Annotated[
        Runtime,
        typer.Option(
            help="What pods are made of: network namespaces with a server each, or containers under a real kubelet."
        ),
    ] = Runtime("namespaces"),  # noqa: B008
    operators: Annotated[int, typer.Option(min=1, help="How many operators; one of them leads.")] = 1,
) -> None:
    """Start a lab, and wait until it is ready."""
    with _progress() as report:
        named = [zone for zone in zones.split(",") if zone] or None
        lab = Lab.up(context.obj, nodes, named, proxy.value, report, operators=operators, runtime=runtime.value)
        report("ready")
    option = "" if lab.name == "default" else f" --name {lab.name}"
    typer.echo(f"\nexport KUBECONFIG=$(kube-nftlb lab{option} kubeconfig)")
    typer.echo(f"export PATH=$PATH:{lab.bin}    # for kubectl")


@app.command()
def down(context: typer.Context) -> None:
    """End a lab; nothing of it stays."""
    Lab.remove(context.obj)


@app.command()
def status(context: typer.Context) -> None:
    """Show what runs."""
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
    """Print the folder with kubectl."""
    typer.echo(Lab(context.obj).bin)


@app.command(name="exec", context_settings={"allow_interspersed_args": False})
def execute(
    context: typer.Context,
    where: Annotated[str, typer.Argument(metavar="NODE|POD|client", help="A pod as name, or as namespace/name.")],
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND ...")],
) -> None:
    """Run a command on a node, in a pod or at the client outside the cluster; its exit code is the command's."""
    lab = Lab(context.obj)
    # The parser leaves a "--" in place that comes after the first argument.
    argv = lab.command(where, *(command[1:] if command[0] == "--" else command))
    os.execvpe(argv[0], argv, lab.environment(where))  # noqa: S606 (no shell is wanted)


@pod_app.command()
def ready(context: typer.Context, pod: PodName) -> None:
    """Make the pod Ready again."""
    Lab(context.obj).pod(True, pod)


@pod_app.command()
def unready(context: typer.Context, pod: PodName) -> None:
    """Make the pod not Ready; it goes on serving."""
    Lab(context.obj).pod(False, pod)


@app.command(name="load")
def load_image(
    context: typer.Context,
    image: Annotated[Path, typer.Argument(help="An image's file, as `docker save` writes it.")],
) -> None:
    """Import an image on all nodes of a lab with containers; they pull from no registry."""
    Lab(context.obj).load_image(image.absolute())


@app.command()
def restart(context: typer.Context, component: ComponentName, node: Node = None) -> None:
    """Stop a component (SIGTERM, SIGKILL after 5 s) and start it again."""
    Lab(context.obj).restart(component, node)


@app.command()
def stop(context: typer.Context, component: ComponentName, node: Node = None) -> None:
    """Stop a component, until `start`."""
    Lab(context.obj).stop(component, node)


@app.command()
def start(context: typer.Context, component: ComponentName, node: Node = None) -> None:
    """Start a component that was stopped."""
    Lab(context.obj).start(component, node)


@app.command()
def logs(
    context: typer.Context,
    component: ComponentName,
    node: Node = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until Ctrl-C.")] = False,
) -> None:
    """Print a component's log, on one node or on all."""
    lab = Lab(context.obj)
    per_node = any(entry["component"] == component and entry["node"] for entry in lab.status())
    nodes = [plan.name for plan in lab.nodes] if per_node and node is None else [node]
    paths = [str(lab.log_path(component, name)) for name in nodes]
    sys.exit(subprocess.run(["tail", "-n", "+1", *(["-f"] if follow else []), *paths], check=False).returncode)


@app.command()
def binaries(
    proxy: Annotated[Proxy, typer.Option(help="What the lab will use for Services.")] = Proxy("kube-nftlb"),  # noqa: B008
    runtime: Annotated[Runtime, typer.Option(help="What its pods will be made of.")] = Runtime("namespaces"),  # noqa: B008
) -> None:
    """Find, install or build every program a lab needs, and print where they are."""
    with _progress() as report:
        found = programs.ensure(proxy.value, report, runtime.value)
    typer.echo(json.dumps({name: str(path) for name, path in sorted(found.items())}, indent=2))


@app.command()
def demo(context: typer.Context) -> None:
    """Start a lab where none runs, and walk through a Service, its Deployment and more replicas."""
    from lab.demo import Demo

    with _progress() as report:
        try:
            lab = Lab(context.obj)
        except errors.LabError:
            lab = Lab.up(context.obj, report=report)
        report("ready")
    Demo(lab, typer.echo).run()
    option = "" if lab.name == "default" else f" --name {lab.name}"
    command = f"{Path(sys.executable).parent}/kube-nftlb lab{option}"
    typer.echo(
        "\n# The lab goes on. Look around with:"
        f"\n  export KUBECONFIG=$({command} kubeconfig) PATH=$PATH:{lab.bin}:{Path(sys.executable).parent}"
        "\n  kubectl get farms -o wide; kubectl describe farm my-service--http"
        f"\n  {command} exec node-1 -- kube-nftlb nftlb GET /farms/my-service--http"
        f"\n  {command} exec node-1 -- nft list ruleset"
        f"\n# and end it with:\n  {command} down"
    )


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    from rich.console import Console

    begin = time.monotonic()
    console = Console(stderr=True, highlight=False)
    with console.status("looking for programs") as spinner:

        def report(step: str) -> None:
            console.print(f"{time.monotonic() - begin:6.1f} s  {step}", markup=False)
            spinner.update(step)

        yield report
