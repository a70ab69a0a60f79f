"""How many rules, chains and elements a node's ruleset has."""

import json
from collections import Counter
from typing import Any

from kube_nftlb.lab.lab import Lab

_LISTED_WITHIN_S = 300


def count(lab: Lab, node: str) -> dict[str, int]:
    """The rules, chains and elements of maps and sets on a node, of both address families."""
    if lab.proxy in ("kube-proxy-iptables", "kube-proxy-ipvs"):
        saved = [
            lab.exec(node, program, timeout_s=_LISTED_WITHIN_S).stdout
            for program in ("iptables-save", "ip6tables-save")
        ]
        return count_iptables("".join(saved))
    done = lab.exec(node, "nft", "-j", "list", "ruleset", timeout_s=_LISTED_WITHIN_S)
    return count_nftables(json.loads(done.stdout))


def count_nftables(listed: dict[str, Any]) -> dict[str, int]:
    """Count in what ``nft -j list ruleset`` prints."""
    kinds = Counter(kind for entry in listed["nftables"] for kind in entry)
    elements = sum(
        len(each.get("elem", ()))
        for entry in listed["nftables"]
        for kind, each in entry.items()
        if kind in ("map", "set")
    )
    return {"rules": kinds["rule"], "chains": kinds["chain"], "elements": elements}


def count_iptables(saved: str) -> dict[str, int]:
    """Count in what ``iptables-save`` prints."""
    lines = saved.splitlines()
    return {
        "rules": sum(line.startswith("-A ") for line in lines),
        "chains": sum(line.startswith(":") for line in lines),
        "elements": 0,
    }
