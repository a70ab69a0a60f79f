"""The command line of the commands that ask a running cluster. Each imports what it needs."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from kube_nftlb import errors
from kube_nftlb.commands.cluster import name_arguments
from kube_nftlb.commands.cluster.login import Login, with_login
from kube_nftlb.commands.cluster.options import By, Format, Hide, WideFormat
from kube_nftlb.commands.exits import WRONG, statuses
from kube_nftlb.commands.group import duration
from kube_nftlb.commands.printable import printable
from kube_nftlb.commands.profiles import ChartProfile
from kube_nftlb.prose import counted
from kube_nftlb.settings import DefaultEngine

if TYPE_CHECKING:
    from kube_nftlb.commands.cluster.queries import Target

_T = TypeVar("_T")

_WRONG_EXITS = statuses("something is wrong.", "all is well.")
_DRAIN_EXITS = statuses("connections are, or may be, open.", "no connection is open.")
_DONE_EXITS = statuses()
_TRACE_MAX_S = 600

L4Protocol = Literal["TCP", "UDP", "SCTP"]

Namespace = Annotated[str | None, typer.Option("--namespace", "-n", help="Namespace. Default: that of the context.")]
SystemNamespace = Annotated[
    str | None, typer.Option(help="Namespace of operator and agents. Default: that of the agents' account.")
]
NodeCommand = Annotated[
    str | None,
    typer.Option(
        envvar="KUBE_NFTLB_NODE_COMMAND",
        help="How to run a command on a node, such as: ssh root@{node}. Default: kubectl exec in the agent's pod.",
    ),
]
Output = Annotated[Format, typer.Option("--output", "-o", help="text, json or yaml.")]
Wide = Annotated[WideFormat, typer.Option("--output", "-o", help="text, wide, json or yaml.")]
OneNamespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Only what is in this namespace. Default: all.")
]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="All namespaces, as without --namespace.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(epilog=_WRONG_EXITS)(with_login(status))
    app.command(epilog=_WRONG_EXITS)(with_login(why))
    app.command(epilog=_DONE_EXITS)(with_login(get))
    app.command(epilog=_DONE_EXITS)(with_login(top))
    app.command(epilog=_DRAIN_EXITS)(with_login(drain))
    app.command(epilog=_DONE_EXITS)(with_login(undrain))
    app.command(epilog=_DONE_EXITS)(with_login(release_addresses))
    app.command(epilog=_DONE_EXITS)(with_login(sysdump))
    app.command(epilog=statuses("no packet arrived.", "the connection was traced."))(with_login(trace))
    app.command(epilog=statuses("connections would, or may, fail.", "nodes can be moved."))(with_login(preflight))
    app.command(epilog=_DONE_EXITS)(with_login(version))


def _run(command: Coroutine[Any, Any, _T]) -> _T:
    return asyncio.run(command)


def _exit_if(wrong: bool) -> None:
    if wrong:
        raise typer.Exit(WRONG)


def _target(login: Login, namespace: str | None = None, system_namespace: str | None = None) -> "Target":
    """Return the cluster and namespaces that are meant. Raises UsageError if one cannot be a namespace's name."""
    from kube_nftlb.commands.cluster.queries import Target

    for each in (namespace, system_namespace):
        if each is not None:
            name_arguments.checked(each, "namespace")
    return Target(namespace=namespace, system_namespace=system_namespace, **login._asdict())


def _one_or_all(namespace: str | None, all_namespaces: bool, name: str | None = None) -> str | None:
    """Return the namespace that is meant, None for all. Raises UsageError if the options exclude each other."""
    if all_namespaces and (namespace or name):
        raise errors.UsageError(f"--all-namespaces excludes {'--namespace' if namespace else 'a name'}")
    return namespace


def status(
    wait: Annotated[
        float,
        typer.Option(parser=duration, metavar="DURATION", help="Wait until nothing is wrong, for at most so long."),
    ] = 0,
    service: Annotated[
        str,
        typer.Option(
            metavar="NAMESPACE/NAME",
            help="Only farms of this Service count; connect to it from here: its pods run `kube-nftlb echo`.",
        ),
    ] = "",
    pods: Annotated[int | None, typer.Option(min=1, help="How many pods of that Service must answer; 1.")] = None,
    namespace: OneNamespace = None,
    all_namespaces: AllNamespaces = False,
    output: Wide = WideFormat.TEXT,
    system_namespace: SystemNamespace = None,
    *,
    login: Login,
) -> None:
    """Show nodes, engines, farms, what is wrong and since when, on one screen."""
    from kube_nftlb.commands.cluster import inspecting

    if pods and not service:
        raise errors.UsageError("--pods needs --service")
    if service and (namespace or all_namespaces):
        raise errors.UsageError("--service names its namespace itself: leave out --namespace and --all-namespaces")
    where, name = name_arguments.split(service) if service else (None, "")
    if service and where is None:
        raise errors.UsageError(f"--service must be NAMESPACE/NAME, not {service!r}")
    target = _target(login, _one_or_all(namespace, all_namespaces), system_namespace)
    options = inspecting.StatusOptions(output, wait, (where, name) if where else None, pods or 1)
    _exit_if(_run(inspecting.status(target, options)))


def why(
    farm: Annotated[
        str | None,
        typer.Argument(
            help="NAME or NAMESPACE/NAME of a farm or Service; farm/NAME, svc/NAME, gateway/NAME, listenerset/NAME, "
            "tcproute/NAME, udproute/NAME. Default: all."
        ),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", "-n", help="Namespace. Default: with a name that of the context, without one all."),
    ] = None,
    all_namespaces: AllNamespaces = False,
    output: Output = Format.TEXT,
    system_namespace: SystemNamespace = None,
    *,
    login: Login,
) -> None:
    """Say in one line for each unhealthy farm what is wrong, since when, and what to do about it."""
    from kube_nftlb.commands.cluster import why as command

    target = _target(login, _one_or_all(namespace, all_namespaces, farm), system_namespace)
    _exit_if(_run(command.why(target, farm, output)))


def get(
    service: Annotated[str, typer.Argument(help="NAME, NAMESPACE/NAME or svc/NAME of a Service.")],
    namespace: Namespace = None,
    output: Output = Format.TEXT,
    *,
    login: Login,
) -> None:
    """Show a Service as a tree: its farms, and on each node its backends, who is admitted and who is masqueraded."""
    from kube_nftlb.commands.cluster import inspecting

    _run(inspecting.get(_target(login, namespace), service, output))


def top(
    node: Annotated[
        list[str] | None, typer.Option(help="Node to ask; can be repeated. Default: all, 32 at most.")
    ] = None,
    by: Annotated[By, typer.Option(help="What to sort by; new: new connections per second.")] = By.NEW,
    backends: Annotated[bool, typer.Option("--backends", help="Also show the backends of each farm.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Show it once. Default on a terminal: until Ctrl-C.")] = False,
    node_command: NodeCommand = None,
    namespace: OneNamespace = None,
    all_namespaces: AllNamespaces = False,
    output: Output = Format.TEXT,
    system_namespace: SystemNamespace = None,
    *,
    login: Login,
) -> None:
    """Show the farms by new connections, bytes and open connections, as their nodes count them now."""
    from kube_nftlb.commands.cluster import top as command

    options = command.TopOptions(tuple(node or ()), by, backends, once, output, node_command)
    target = _target(login, _one_or_all(namespace, all_namespaces), system_namespace)
    try:
        _run(command.top(target, options))
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
    timeout: Annotated[
        float | None,
        typer.Option(parser=duration, metavar="DURATION", help="How long to wait, such as 60s. Default: no limit."),
    ] = None,
    namespace: Namespace = None,
    output: Output = Format.TEXT,
    *,
    login: Login,
) -> None:
    """Send a backend, or all backends on a node, no new connections, and count down those that are open.

    It lasts until `undrain`, also if this command is interrupted; for a pod, as long as the pod.
    """
    from kube_nftlb.commands.cluster import draining

    options = draining.DrainOptions(force, wait, timeout, output)
    _exit_if(_run(draining.drain(_target(login, namespace), name, options)))


def undrain(
    name: Annotated[str, typer.Argument(metavar="BACKEND|NODE", help="As for drain.")],
    namespace: Namespace = None,
    *,
    login: Login,
) -> None:
    """Send a backend, or all backends on a node, new connections again."""
    from kube_nftlb.commands.cluster import draining

    _run(draining.undrain(_target(login, namespace), name))


def release_addresses(
    wait: Annotated[
        bool, typer.Option("--wait", help="Look again until no operator has assigned any for 5 seconds.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Also while an operator runs.")] = False,
    system_namespace: SystemNamespace = None,
    *,
    login: Login,
) -> None:
    """Take the addresses of pools from Services of all namespaces, once addresses.enabled is off or the chart gone."""
    from kube_nftlb.commands.cluster import release_addresses as command

    number = _run(command.release(_target(login, None, system_namespace), wait=wait, force=force))
    typer.echo(f"{counted(number, 'Service')} had addresses of pools, or waited for them")


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
    namespace: OneNamespace = None,
    all_namespaces: AllNamespaces = False,
    system_namespace: SystemNamespace = None,
    *,
    login: Login,
) -> None:
    """Write an archive for a bug report: objects, logs, and what nftables and nftlb have on the nodes; no secrets."""
    from kube_nftlb.commands.cluster import sysdump as command

    options = command.SysdumpOptions(file, tuple(hide or ()), tuple(node or ()), node_command)
    target = _target(login, _one_or_all(namespace, all_namespaces), system_namespace)
    path, missing = _run(command.sysdump(target, options))
    for each in missing:
        typer.echo(printable(f"missing: {each}"), err=True)
    typer.echo(path)


def trace(
    client: Annotated[str, typer.Argument(help="The client's address, or its pod: POD or NAMESPACE/POD.")],
    destination: Annotated[
        str, typer.Argument(metavar="VIP:PORT", help="Such as 10.96.0.10:80; an IPv6 address goes in brackets.")
    ],
    node: Annotated[
        str, typer.Option(help="The node that the connection comes to. Default: the client's own node.")
    ] = "",
    protocol: Annotated[L4Protocol, typer.Option(help="TCP, UDP or SCTP.")] = "TCP",
    send: Annotated[
        bool, typer.Option("--send", help="Send a probe, if the client is the node or a pod on it.")
    ] = False,
    local: Annotated[bool, typer.Option("--local", help="Trace here, not in the pod of the node's agent.")] = False,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            "--seconds",
            parser=duration,
            metavar="DURATION",
            help="How long to wait for the client: 1s to 10m.",
        ),
    ] = 30,
    node_command: NodeCommand = None,
    namespace: Namespace = None,
    output: Output = Format.TEXT,
    system_namespace: SystemNamespace = None,
    until_closed: Annotated[bool, typer.Option(hidden=True)] = False,
    *,
    login: Login,
) -> None:
    """Tell what happens to a connection on a node, and why: who lets it pass, who chooses its backend, who drops it."""
    from kube_nftlb.commands.cluster import trace as command

    if not 1 <= timeout <= _TRACE_MAX_S:
        raise errors.UsageError(f"--timeout must be from 1s to {_TRACE_MAX_S // 60}m, not {timeout:g}s")
    options = command.TraceOptions(
        client, destination, protocol, node, send, local, timeout, output, until_closed, node_command
    )
    _exit_if(_run(command.trace(_target(login, namespace, system_namespace), options)))


def preflight(
    profile: Annotated[ChartProfile, typer.Option(help="profile of the chart to install.")] = "nftlb",
    engine: Annotated[
        DefaultEngine | None, typer.Option(help="defaults.engine of the chart to install. Default: the profile's.")
    ] = None,
    output: Output = Format.TEXT,
    *,
    login: Login,
) -> None:
    """Before a move from kube-proxy: list what the cluster uses that kube-nftlb does differently, and what to do."""
    from kube_nftlb.commands.cluster import preflight as command

    _exit_if(not _run(command.preflight(_target(login), output, profile, engine)))


def version(
    client: Annotated[bool, typer.Option("--client", help="Ask no cluster.")] = False,
    output: Output = Format.TEXT,
    system_namespace: SystemNamespace = None,
    *,
    login: Login,
) -> None:
    """Show the versions of this program and, in the cluster, of operator, agents and nftlb."""
    from kube_nftlb.commands.cluster import versions

    _run(versions.version(_target(login, None, system_namespace), output, client=client))
