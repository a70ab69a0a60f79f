"""Count the rules, chains and elements in a node's ruleset."""

import json
from collections import Counter
from typing import Any

from lab.lab import Lab

_LISTED_WITHIN_S = 300


def count(lab: Lab, node: str) -> dict[str, int]:
    """Return the number of rules, chains and elements of maps and sets on a node, in both address families."""
    if lab.proxy in ("kube-proxy-iptables", "kube-proxy-ipvs"):
        saved = [
            lab.exec(node, program, timeout_s=_LISTED_WITHIN_S).stdout
            for program in ("iptables-save", "ip6tables-save")
        ]
        return count_iptables("".join(saved))
    done = lab.exec(node, "nft", "-j", "list", "ruleset", timeout_s=_LISTED_WITHIN_S)
    return count_nftables(json.loads(done.stdout))


def count_nftables(listed: dict[str, Any]) -> dict[str, int]:
    """Count in the output of ``nft -j list ruleset``; elements include those of anonymous maps and sets in rules."""
    kinds = Counter(kind for entry in listed["nftables"] for kind in entry)
    named = sum(
        len(each.get("elem", ()))
        for entry in listed["nftables"]
        for kind, each in entry.items()
        if kind in ("map", "set")
    )
    anonymous = sum(_anonymous(entry["rule"].get("expr", ())) for entry in listed["nftables"] if "rule" in entry)
    return {"rules": kinds["rule"], "chains": kinds["chain"], "elements": named + anonymous}


def _anonymous(expression: Any) -> int:
    if isinstance(expression, dict):
        return sum(
            len(each) if kind == "set" and isinstance(each, list) else _anonymous(each)
            for kind, each in expression.items()
        )
    return sum(map(_anonymous, expression)) if isinstance(expression, list) else 0


def count_iptables(saved: str) -> dict[str, int]:
    """Count in the output of ``iptables-save``."""
    lines = saved.splitlines()
    return {
        "rules": sum(line.startswith("-A ") for line in lines),
        "chains": sum(line.startswith(":") for line in lines),
        "elements": 0,
    }
