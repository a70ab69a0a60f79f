"""The command line of the commands that ask a running cluster. Each imports what it needs."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from kube_nftlb import errors
from kube_nftlb.commands.cluster.options import CANNOT_ASK, UNHEALTHY, By, Format, Hide

_T = TypeVar("_T")

_DRAIN_EXITS = "Exit status: 0 once no connection is open, 1 if some are when the time is up, 2 if it cannot be done."
_TOP_EXITS = "Exit status: 0, or 2 if the cluster cannot be asked, or no node reports its traffic."
_PANEL = "In a cluster, also as kubectl nftlb"

Kubeconfig = Annotated[
    Path | None, typer.Option(help="Kubeconfig to use. Default: $KUBECONFIG, ~/.kube/config or the pod's account.")
]
Context = Annotated[str | None, typer.Option(help="Context of the kubeconfig to use. Default: the current one.")]
Namespace = Annotated[str | None, typer.Option("--namespace", "-n", help="Namespace. Default: that of the context.")]
NodeCommand = Annotated[
    str | None,
    typer.Option(
        envvar="KUBE_NFTLB_NODE_COMMAND",
        help="How to run a command on a node, such as: ssh root@{node}. Default: kubectl exec in the agent's pod.",
    ),
]
Output = Annotated[Format, typer.Option("--output", "-o", help="text or json.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    exits = "Exit status: 0 if all is well, 1 if something is wrong, 2 if the cluster cannot be asked."
    app.command(rich_help_panel=_PANEL, epilog=exits)(status)
    app.command(rich_help_panel=_PANEL, epilog=exits)(why)
    app.command(rich_help_panel=_PANEL)(get)
    app.command(rich_help_panel=_PANEL, epilog=_TOP_EXITS)(top)
    app.command(rich_help_panel=_PANEL, epilog=_DRAIN_EXITS)(drain)
    app.command(rich_help_panel=_PANEL)(undrain)
    app.command(rich_help_panel=_PANEL)(sysdump)


def ask(question: Coroutine[Any, Any, _T]) -> _T:
    """Run what asks the API server. If it cannot be asked, say why and exit with 2."""
    try:
        return asyncio.run(question)
    except errors.NotFoundError as error:
        sentence = f"{error.message.strip() or error}; is kube-nftlb installed there?"
        typer.echo(f"kube-nftlb: {sentence}", err=True)
    except (errors.KubeError, errors.KubeUnreachableError, errors.UsageError) as error:
        typer.echo(f"kube-nftlb: {error}", err=True)
    raise typer.Exit(CANNOT_ASK)


def status(output: Output = Format.TEXT, context: Context = None, kubeconfig: Kubeconfig = None) -> None:
    """Show nodes, engines, farms, what is wrong and since when, on one screen."""
    from kube_nftlb.commands.cluster import inspecting
    from kube_nftlb.commands.cluster.asking import Target

    if ask(inspecting.status(Target(kubeconfig, context), output)):
        raise typer.Exit(UNHEALTHY)


def why(
    farm: Annotated[
        str | None, typer.Argument(help="A farm or a Service, with or without its namespace. Default: all farms.")
    ] = None,
    namespace: Namespace = None,
    output: Output = Format.TEXT,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Say in one line for each unhealthy farm what is wrong, since when, and what to do about it."""
    from kube_nftlb.commands.cluster import inspecting
    from kube_nftlb.commands.cluster.asking import Target

    if ask(inspecting.why(Target(kubeconfig, context, namespace), farm, output)):
        raise typer.Exit(UNHEALTHY)


def get(
    service: Annotated[str, typer.Argument(help="A Service, with or without its namespace.")],
    namespace: Namespace = None,
    output: Output = Format.TEXT,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show a Service as a tree: its farms, and on each node its backends, who is admitted and who is masqueraded."""
    from kube_nftlb.commands.cluster import inspecting
    from kube_nftlb.commands.cluster.asking import Target

    ask(inspecting.get(Target(kubeconfig, context, namespace), service, output))


def top(
    node: Annotated[
        list[str] | None, typer.Option(help="Node to ask; can be repeated. Default: all, 32 at most.")
    ] = None,
    by: Annotated[By, typer.Option(help="What to sort by; new: new connections per second.")] = By.NEW,
    backends: Annotated[bool, typer.Option("--backends", help="Also show the backends of each farm.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Show it once. Default on a terminal: until Ctrl-C.")] = False,
    node_command: NodeCommand = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Only farms of this one. Default: all.")
    ] = None,
    output: Output = Format.TEXT,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show the farms by new connections, bytes and open connections, as their nodes count them now."""
    from kube_nftlb.commands.cluster import top as command
    from kube_nftlb.commands.cluster.asking import Target

    options = command.TopOptions(tuple(node or ()), by, backends, once, output, node_command)
    try:
        ask(command.top(Target(kubeconfig, context, namespace), options))
    except KeyboardInterrupt:
        # This is how it ends on a terminal.
        raise typer.Exit from None


def drain(
    name: Annotated[
        str,
        typer.Argument(metavar="BACKEND|NODE", help="A pod, backend, address or node; pod/NAME, node/NAME."),
    ],
    force: Annotated[bool, typer.Option("--force", help="Also drain the last backend of a farm.")] = False,
    wait: Annotated[bool, typer.Option(help="Wait until no connection is open.")] = True,
    timeout: Annotated[float | None, typer.Option(help="Seconds to wait at most. Default: no limit.")] = None,
    namespace: Namespace = None,
    output: Output = Format.TEXT,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Send a backend, or all backends on a node, no new connections, and count down those that are open.

    It lasts until `undrain`, also if this command is interrupted; for a pod, as long as the pod.
    """
    from kube_nftlb.commands.cluster import draining
    from kube_nftlb.commands.cluster.asking import Target

    options = draining.DrainOptions(force, wait, timeout, output)
    if ask(draining.drain(Target(kubeconfig, context, namespace), name, options)):
        raise typer.Exit(UNHEALTHY)


def undrain(
    name: Annotated[str, typer.Argument(metavar="BACKEND|NODE", help="As for drain.")],
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Send a backend, or all backends on a node, new connections again."""
    from kube_nftlb.commands.cluster import draining
    from kube_nftlb.commands.cluster.asking import Target

    ask(draining.undrain(Target(kubeconfig, context, namespace), name))


def sysdump(
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Archive to write. Default: kube-nftlb-sysdump-TIME.tar.gz.")
    ] = None,
    hide: Annotated[
        list[Hide] | None,
        typer.Option(help="Replace addresses or names by other words. Can be repeated."),
    ] = None,
    node: Annotated[
        list[str] | None, typer.Option(help="Node whose nftables to include. Default: ten, those with problems first.")
    ] = None,
    node_command: NodeCommand = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Only farms, Services and so on of this one. Default: all.")
    ] = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Write an archive for a bug report: objects, logs, and what nftables and nftlb have on the nodes; no secrets."""
    from kube_nftlb.commands.cluster import sysdump as command
    from kube_nftlb.commands.cluster.asking import Target

    options = command.SysdumpOptions(file, tuple(hide or ()), tuple(node or ()), node_command)
    path, missing = ask(command.sysdump(Target(kubeconfig, context, namespace), options))
    for each in missing:
        typer.echo(f"missing: {each}", err=True)
    typer.echo(path)
