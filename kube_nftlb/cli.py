"""The command ``kube-nftlb``."""

import asyncio
import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kube_nftlb import errors
from kube_nftlb.settings import AgentSettings, NftlbSettings, OperatorSettings

_SOMETHING_REFUSED = 3

app = typer.Typer(
    no_args_is_help=True, pretty_exceptions_enable=False, help="Kubernetes Services, load balanced by nftlb."
)


def main() -> None:
    """The entry point: errors of ours end in one sentence and exit code 1."""
    try:
        app()
    except errors.KubeNftlbError as error:
        typer.echo(f"kube-nftlb: {error}", err=True)
        sys.exit(1)


@app.command()
def operator() -> None:
    """Turn Services and EndpointSlices into NftlbFarms, for the whole cluster."""
    # Imported here, as kopf and the Kubernetes client take a second that other commands need not wait for.
    from kube_nftlb.operator.main import main as run

    run(OperatorSettings.from_environment(os.environ))


@app.command()
def agent() -> None:
    """Bring this node's nftlb to what the NftlbFarms say."""
    from kube_nftlb.agent.main import main as run

    run(AgentSettings.from_environment(os.environ))


@app.command()
def nftlb_daemon() -> None:
    """Start nftlb as the agent expects it: on the loopback address, with a new random key, with its start-up file."""
    from kube_nftlb.nftlb import daemon

    settings = NftlbSettings.from_environment(os.environ)
    daemon.run(settings.port, settings.key_file, settings.startup_file)


@app.command()
def check(
    wait: Annotated[float, typer.Option(help="For how many seconds to wait until all is well.")] = 0,
) -> None:
    """Tell whether every node has an agent that works, and serves the Service kubernetes; else end with 1."""
    from kube_nftlb.commands import check as command

    checked = asyncio.run(command.check(wait))
    for problem in checked.problems:
        typer.echo(problem, err=True)
    if checked.problems:
        raise typer.Exit(1)
    typer.echo(checked.summary)


@app.command()
def healthy(
    program: Annotated[
        str, typer.Argument(help="operator, agent or nftlb-daemon; without it, the container's first process.")
    ] = "",
) -> None:
    """Tell by the exit status whether the program of this container is well, with its settings in the environment."""
    from kube_nftlb.commands import healthy as command

    command.check(os.environ, program)


@app.command()
def clean() -> None:
    """Take everything of kube-nftlb away from this node, when its agent and nftlb have ended.

    The agent does so itself when its DaemonSet is deleted.
    """
    from kube_nftlb.agent.cleanup import clean as run
    from kube_nftlb.netfilter.libnftables import Nft

    asyncio.run(run(NftlbSettings.from_environment(os.environ), Nft.open()))


@app.command()
def nftlb(
    method: Annotated[str, typer.Argument(help="GET, POST, PUT, PATCH or DELETE.")],
    path: Annotated[str, typer.Argument(help="Such as /farms or /farms/my-service--http.")],
    data: Annotated[str, typer.Option("--data", "-d", help="The body; @FILE reads it from a file.")] = "",
) -> None:
    """Ask this node's nftlb, with its key; prints the answer.

    The agent does not know of what is changed this way, and puts back what belongs to its farms.
    """
    from kube_nftlb.nftlb.client import NftlbClient
    from kube_nftlb.nftlb.requests import Request

    async def ask(request: Request) -> str:
        settings = NftlbSettings.from_environment(os.environ)
        client = NftlbClient(settings.url, settings.key_file)
        try:
            return await client.send(request)
        finally:
            await client.close()

    allowed = ("GET", "POST", "PUT", "PATCH", "DELETE")
    if method.upper() not in allowed:
        raise errors.UsageError(f"the method {method!r} is not one of {', '.join(allowed)}")
    body = Path(data[1:]).read_bytes() if data.startswith("@") else data.encode()
    typer.echo(asyncio.run(ask(Request(method.upper(), path, body))))


@app.command()
def crds(
    directory: Annotated[Path, typer.Argument(help="Where the files go.")] = Path("crds"),
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail where a file is not up to date.")] = False,
) -> None:
    """Write the CustomResourceDefinitions, generated from the models."""
    from kube_nftlb.api.schema import crd

    chart = directory.parent / "charts/kube-nftlb/files/crds"
    texts = {
        folder / name: crd.render(definition)
        for name, definition in crd.definitions().items()
        # Where there is a chart beside, it has them too: it can hold no file from outside its folder.
        for folder in (directory, *([chart] if chart.is_dir() else []))
    }
    _write_generated(texts, "kube-nftlb crds", check=check)


@app.command()
def reference(
    directory: Annotated[Path, typer.Argument(help="Where the pages go.")] = Path("docs"),
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail where a page is not up to date.")] = False,
) -> None:
    """Write the pages about all fields and annotations, and all metrics, generated from the code."""
    from kube_nftlb.commands import metrics_page, reference_page

    pages = {"reference.md": reference_page.page(), "metrics.md": metrics_page.page()}
    texts = {directory / name: text for name, text in pages.items()}
    _write_generated(texts, "kube-nftlb reference", check=check)


@app.command()
def chart(
    directory: Annotated[Path, typer.Argument(help="The chart's folder.")] = Path("charts/kube-nftlb"),
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; fail where the README is not up to date.")
    ] = False,
) -> None:
    """Write the table of the Helm chart's values into its README, generated from values.yaml."""
    from kube_nftlb.commands import chart_page

    _write_generated(chart_page.texts(directory), "kube-nftlb chart", check=check)


@app.command()
def explain(
    field: Annotated[
        str,
        typer.Argument(
            help="Such as farm.spec.limits.new, limits.new, est-connlimit or an annotation; all without it."
        ),
    ] = "",
) -> None:
    """Tell what a field or an annotation means, what it takes, and what nftlb calls it."""
    from kube_nftlb.commands import explain as command

    if field:
        typer.echo(command.explain(field))
    else:
        command.print_all()


class Output(StrEnum):
    """What ``render`` can show."""

    FARMS = "farms"
    NFTLB = "nftlb"
    NFT = "nft"


@app.command(
    epilog="Exit status: 0 where all went as asked, 3 where something was refused (standard error says what), "
    "1 where nothing could be shown."
)
def render(
    files: Annotated[
        list[Path],
        typer.Option("--file", "-f", help="Manifests in YAML or JSON; - is standard input. May be given many times."),
    ],
    output: Annotated[
        Output,
        typer.Option(
            "--output",
            "-o",
            help="farms: the NftlbFarms. nftlb: what a node sends to nftlb. nft: the rules that nftlb makes of it, "
            "in a network namespace of their own.",
        ),
    ] = Output.FARMS,
    node: Annotated[
        str,
        typer.Option(help="Which node's nftlb and rules; its Node must be among the manifests (for -o nftlb and nft)."),
    ] = "",
) -> None:
    """Show what manifests become, without a cluster: Services and what belongs to them, farms, policies."""
    from kube_nftlb.commands import manifests
    from kube_nftlb.commands import render as command

    rendered = command.render(manifests.read(files), node)
    problems = rendered.problems
    if output is Output.FARMS:
        text = command.farms_yaml(rendered)
    elif output is Output.NFTLB:
        text = json.dumps(command.nftlb_document(rendered), indent=2) + "\n"
    else:
        from kube_nftlb.commands.ruleset import ruleset

        made = ruleset(rendered)
        text, problems = made.text, (*problems, *made.problems)
    for note in rendered.notes:
        typer.echo(f"note: {note}", err=True)
    for problem in problems:
        typer.echo(f"refused: {problem}", err=True)
    typer.echo(text, nl=False)
    if problems:
        raise typer.Exit(_SOMETHING_REFUSED)


def _lab(context: typer.Context) -> None:
    """Run a Kubernetes cluster on this machine, without containers. See `kube-nftlb lab --help`."""
    importlib.import_module("lab.cli").app(context.args, prog_name="kube-nftlb lab")


# The lab is no part of the wheel; it is there in a checkout, and loaded for no other command.
if importlib.util.find_spec("lab") is not None:
    app.command(
        "lab",
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(_lab)


def _write_generated(texts: Mapping[Path, str], command: str, *, check: bool) -> None:
    stale = [path for path, text in texts.items() if not path.exists() or path.read_text() != text]
    if check and stale:
        raise errors.UsageError(f"not up to date, run `{command}`: {', '.join(map(str, stale))}")
    for path in stale:
        path.write_text(texts[path])
