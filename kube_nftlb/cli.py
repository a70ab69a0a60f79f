"""The ``kube-nftlb`` command line. Each command imports what it needs: kopf alone takes a second."""

import asyncio
import importlib
import importlib.util
import json
import os
import socket
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kube_nftlb import __version__, errors
from kube_nftlb.commands.cluster import app as cluster
from kube_nftlb.commands.exits import WRONG, statuses
from kube_nftlb.commands.group import PLUGIN, App, Commands
from kube_nftlb.commands.printable import printable
from kube_nftlb.commands.profiles import ChartProfile
from kube_nftlb.settings import AgentSettings, DefaultEngine, NftlbSettings, OperatorSettings

_NO_FILES = ":4"
"""Tells kubectl not to complete the names of files."""

_ON_A_NODE = "On a node"

app = App(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Options that several commands have, such as --context, may also stand before the command.",
)


def main() -> None:
    """Run the command line."""
    app(prog_name="kube-nftlb")


def kubectl_plugin() -> None:
    """Run the command line as ``kubectl nftlb``."""
    app(prog_name=PLUGIN)


def _print_version(show: bool) -> None:
    if show:
        typer.echo(f"kube-nftlb {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show this program's version.")
    ] = False,
) -> None:
    """Load balance Kubernetes Services with nftlb."""


def kubectl_completion() -> None:
    """Print completions as kubectl asks ``kubectl_complete-nftlb`` for them: one per line, then what they are like."""
    words = ["kube-nftlb", *sys.argv[1:]]
    variables = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    os.environ.update(variables, _KUBE_NFTLB_COMPLETE="complete_bash")
    try:
        app(prog_name="kube-nftlb")
    finally:
        typer.echo(_NO_FILES)


@app.command(hidden=True)
def operator() -> None:
    """Run the operator, which turns Services and EndpointSlices into NftlbFarms."""
    from kube_nftlb.operator.main import main as run

    run(OperatorSettings.from_environment(os.environ))


@app.command(hidden=True)
def agent() -> None:
    """Run the agent, which programs the NftlbFarms on this node."""
    from kube_nftlb.agent.main import main as run

    run(AgentSettings.from_environment(os.environ))


@app.command(hidden=True)
def nftlb_daemon() -> None:
    """Run nftlb as the agent expects it: on the loopback address, with a new random key and the startup file."""
    from kube_nftlb.nftlb import daemon

    settings = NftlbSettings.from_environment(os.environ)
    daemon.run(settings.port, settings.key_file, settings.startup_file)


@app.command(hidden=True)
def echo(
    port: Annotated[int, typer.Option(min=1, max=65535, help="TCP and UDP port, on all addresses.")] = 8080,
) -> None:
    """Answer connections and datagrams with this machine's name, for `kube-nftlb status --service`."""
    from kube_nftlb.commands import container

    asyncio.run(container.serve_echo(port, socket.gethostname()))


@app.command(hidden=True)
def healthy(
    program: Annotated[
        str | None, typer.Argument(help="operator, agent or nftlb-daemon. Default: the first process of the container.")
    ] = None,
) -> None:
    """Check the health of this container's program, with its environment. The exit status is 1 if it is not healthy."""
    from kube_nftlb.commands import container

    container.check_health(os.environ, program)


@app.command(rich_help_panel=_ON_A_NODE)
def clean() -> None:
    """Remove all kube-nftlb state from this node. Stop the agent and nftlb first.

    The agent does this itself when its DaemonSet is deleted.
    """
    from kube_nftlb.agent.cleanup import clean as run
    from kube_nftlb.netfilter.libnftables import Nft

    asyncio.run(run(NftlbSettings.from_environment(os.environ), Nft.open()))


@app.command(rich_help_panel=_ON_A_NODE)
def nftlb(
    method: Annotated[str, typer.Argument(help="GET, POST, PUT, PATCH or DELETE.")],
    path: Annotated[str, typer.Argument(help="Such as /farms or /farms/my-service--http.")],
    data: Annotated[str, typer.Option("--data", "-d", help="Request body; @FILE reads it from a file.")] = "",
) -> None:
    """Send a request to this node's nftlb and print the response.

    The agent reverts changes to its farms.
    """
    from kube_nftlb.commands import container

    typer.echo(asyncio.run(container.request(NftlbSettings.from_environment(os.environ), method, path, data)))


@app.command(epilog=statuses())
def explain(
    field: Annotated[
        str | None,
        typer.Argument(
            help="Such as farm.spec.limits.new, limits.new, est-connlimit or an annotation. Default: all fields."
        ),
    ] = None,
) -> None:
    """Explain a field or annotation: its meaning, values, default and name in nftlb."""
    from kube_nftlb.commands import explain as command

    if field:
        typer.echo(command.explain(field))
    else:
        command.print_all()


class Output(StrEnum):
    """The output of ``render``."""

    FARMS = "farms"
    NFTLB = "nftlb"
    NFT = "nft"


@app.command(epilog=statuses("something was rejected, which standard error says."))
def render(
    files: Annotated[
        list[Path],
        typer.Option(
            "--file", "-f", help="Manifest in YAML or JSON, or a folder of them; - is standard input. Can be repeated."
        ),
    ],
    output: Annotated[
        Output,
        typer.Option(
            "--output",
            "-o",
            help="farms: the NftlbFarms. nftlb: the requests of a node to nftlb. nft: the resulting nftables ruleset, "
            "loaded into a temporary network namespace.",
        ),
    ] = Output.FARMS,
    node: Annotated[
        str | None,
        typer.Option(help="Render for this node, whose Node must be in the manifests (for -o nftlb and nft)."),
    ] = None,
    profile: Annotated[ChartProfile, typer.Option(help="profile of the chart.")] = "nftlb",
    engine: Annotated[
        DefaultEngine | None, typer.Option(help="defaults.engine of the chart. Default: the profile's.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="With -o nft: also show empty maps and sets, and chains without rules.")
    ] = False,
) -> None:
    """Show what Services, farms and policies in manifests result in, without a cluster.

    Any manifests do, such as those of helm template: what is not needed is ignored, and noted. Services without
    addresses, and the pods of their Deployments, get example addresses.
    """
    from kube_nftlb.commands import manifests
    from kube_nftlb.commands import render as command

    if everything and output is not Output.NFT:
        raise errors.UsageError("--all needs -o nft")
    rendered = command.render(manifests.read(files), node, profile, engine)
    problems = rendered.problems
    if output is Output.FARMS:
        text = command.farms_yaml(rendered)
    elif output is Output.NFTLB:
        text = json.dumps(command.nftlb_document(rendered), indent=2) + "\n"
    else:
        from kube_nftlb.commands.ruleset import ruleset, shorter

        rules = ruleset(rendered)
        text, problems = rules.text if everything else shorter(rules.text), (*problems, *rules.problems)
    for note in rendered.notes:
        typer.echo(printable(f"note: {note}"), err=True)
    for problem in problems:
        typer.echo(printable(f"problem: {problem}"), err=True)
    typer.echo(text, nl=False)
    if problems:
        raise typer.Exit(WRONG)


@app.command(hidden=True)
def node_traffic(
    every: Annotated[float, typer.Option(min=0.5, max=60, help="Seconds between reports.")] = 2,
    seconds: Annotated[float, typer.Option(min=1, max=600, help="How long to count.")] = 60,
) -> None:
    """Count the connections that this node translates, a line of JSON for each report: `kubectl nftlb top` asks so."""
    from kube_nftlb.netfilter.traffic import counting

    try:
        counting.run(every, seconds)
    except OSError as error:
        raise errors.UsageError(f"cannot count connections: {error}") from error


cluster.add_to(app)


def _lab(context: typer.Context) -> None:
    """Run a Kubernetes cluster on this machine, without containers. See `kube-nftlb lab --help`."""
    importlib.import_module("lab.cli").app(context.args, prog_name="kube-nftlb lab")


# The lab is not part of the wheel, only of a checkout. No other command imports it.
if importlib.util.find_spec("lab") is not None:
    app.command(
        "lab",
        rich_help_panel="In a checkout",
        add_help_option=False,
        context_settings={"allow_extra_args": True, "allow_interspersed_args": False, "ignore_unknown_options": True},
    )(_lab)
