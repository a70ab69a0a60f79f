"""``kube-nftlb preflight``: ask the API server what a cluster uses that kube-nftlb does differently, and print it."""

import asyncio
from typing import Any, Final

from kube_nftlb.commands.before.finding import Survey, text
from kube_nftlb.commands.before.judge import is_safe, judge, verdict
from kube_nftlb.commands.cluster import terminal
from kube_nftlb.commands.cluster.options import Format
from kube_nftlb.commands.cluster.queries import Target, connected, get_or_none, list_if_allowed
from kube_nftlb.commands.profiles import ChartProfile
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import CONFIG_MAPS, DAEMON_SETS, NETWORK_POLICIES, NODES, SERVICES
from kube_nftlb.prose import counted
from kube_nftlb.settings import DefaultEngine

_SYSTEM: Final = "kube-system"
_OBJECTS_MAX: Final = 100


async def preflight(target: Target, output: Format, profile: ChartProfile, engine: DefaultEngine | None) -> bool:
    """Print what was found. Return True if nodes can be moved.

    ``profile`` and ``engine`` are values of the installation to come; None: the engine of the profile. Raises
    KubeError if the user may not list Nodes and Services.
    """
    async with terminal.progress("asking the API server"), connected(target) as kube:
        survey = await _survey(kube)
    findings = judge(survey, profile, engine)
    safe = is_safe(findings)
    if output is not Format.TEXT:
        listed = [
            {**each._asdict(), "objects": each.objects[:_OBJECTS_MAX], "count": len(each.objects)} for each in findings
        ]
        terminal.show_data({"safe": safe, "findings": listed}, output)
        return safe
    terminal.show(*(terminal.plain(text(each)) for each in findings))
    number = f"{counted(len(survey.services), 'Service')} on {counted(len(survey.nodes), 'node')}"
    terminal.show(terminal.plain(f"{number}: {verdict(findings)}"))
    return safe


async def _survey(kube: Kube) -> Survey:
    version: dict[str, Any]
    version, nodes, services, daemon_sets, kube_proxy, cilium = await asyncio.gather(
        kube.request("GET", "/version"),
        kube.list(NODES),
        kube.list(SERVICES),
        list_if_allowed(kube, DAEMON_SETS),
        get_or_none(kube, CONFIG_MAPS, "kube-proxy", _SYSTEM),
        get_or_none(kube, CONFIG_MAPS, "cilium-config", _SYSTEM),
    )
    policies = await list_if_allowed(kube, NETWORK_POLICIES)
    return Survey(version, nodes.items, services.items, daemon_sets, kube_proxy, cilium, policies)
