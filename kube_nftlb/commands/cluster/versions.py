"""``kube-nftlb version``: of this program and, with a cluster, of the programs that run there."""

import platform
from collections import Counter
from collections.abc import Iterable
from typing import Any

from kube_nftlb import __version__
from kube_nftlb.commands.cluster import terminal
from kube_nftlb.commands.cluster.installation import namespace_of_programs
from kube_nftlb.commands.cluster.options import Format
from kube_nftlb.commands.cluster.queries import PROGRAMS, Target, component_of, connected, list_if_allowed
from kube_nftlb.kube.resources import NFTLB_NODES, PODS, JsonObject

_VERSION = "app.kubernetes.io/version"


async def version(target: Target, output: Format, *, client: bool) -> None:
    """Print the versions; ``client`` asks no cluster. Of a cluster that cannot be asked this program's is printed."""
    versions: dict[str, Any] = {"client": __version__, "python": platform.python_version()}
    if client:
        _show(versions, output)
        return
    try:
        async with connected(target) as kube:
            server = await kube.request("GET", "/version", timeout_s=10)
            reports = await kube.list(NFTLB_NODES)
            namespace = await namespace_of_programs(kube, target)
            pods = await list_if_allowed(kube, PODS, namespace, label_selector=PROGRAMS)
    except BaseException:
        _show(versions, output)
        raise
    _show({**versions, "kubernetes": server["gitVersion"], **of_cluster(reports.items, pods)}, output)


def of_cluster(reports: Iterable[JsonObject], pods: Iterable[JsonObject] | None) -> dict[str, Any]:
    """Return the operators' version, and the number of nodes with each version of the agent and of nftlb. No I/O.

    ``pods`` are those of operator and agents; None, if the user may not list them, leaves the operator unknown.
    """
    versions = [(raw.get("status") or {}).get("versions") or {} for raw in reports]
    operators = [pod for pod in pods or () if component_of(pod) == "operator"]
    return {
        "operator": _counted((pod["metadata"].get("labels") or {}).get(_VERSION) for pod in operators),
        "agents": _counted(each.get("agent") for each in versions),
        "nftlb": _counted(each.get("nftlb") for each in versions if each.get("nftlb")),
    }


def _counted(versions: Iterable[str | None]) -> dict[str, int]:
    return dict(sorted(Counter(version or "unknown" for version in versions).items()))


def _show(versions: dict[str, Any], output: Format) -> None:
    if output is not Format.TEXT:
        terminal.show_data(versions, output)
        return
    table = terminal.columns("PROGRAM", "VERSION")
    table.add_row("kube-nftlb (here)", f"{versions['client']}, Python {versions['python']}")
    if "kubernetes" in versions:
        table.add_row("Kubernetes", terminal.plain(versions["kubernetes"]))
    for name, unit in (("operator", "pods"), ("agents", "nodes"), ("nftlb", "nodes")):
        if name in versions:
            counted = ", ".join(f"{version} ({number} {unit})" for version, number in versions[name].items())
            table.add_row(name, terminal.plain(counted) or "not known: none runs, or you may not see it")
    terminal.show(table)
