"""``kube-nftlb check --before``: ask the API server, and print."""

from kube_nftlb.commands.before.finding import names_of, text
from kube_nftlb.commands.before.judge import is_safe, judge
from kube_nftlb.commands.before.survey import survey
from kube_nftlb.commands.cluster import terminal
from kube_nftlb.commands.cluster.asking import Target, connected
from kube_nftlb.commands.cluster.options import Format
from kube_nftlb.settings import DefaultEngine

_OBJECTS_MAX = 100


async def before(target: Target, output: Format, engine: DefaultEngine) -> bool:
    """Print what was found. Return True if nodes can be moved."""
    async with terminal.progress("asking the API server"), connected(target) as kube:
        seen = await survey(kube)
    findings = judge(seen, engine)
    safe = is_safe(findings)
    if output is not Format.TEXT:
        listed = [
            {**each._asdict(), "objects": each.objects[:_OBJECTS_MAX], "count": len(each.objects)} for each in findings
        ]
        terminal.show_data({"safe": safe, "findings": listed}, output)
        return safe
    terminal.show(*(terminal.plain(text(each)) for each in findings))
    blocking = names_of(dict.fromkeys(each.reason for each in findings if each.severity == "blocks"))
    end = "nodes can be moved" if safe else f"do not move nodes yet: {blocking}"
    terminal.show(terminal.plain(f"{len(seen.services)} Services on {len(seen.nodes)} nodes: {end}"))
    return safe
