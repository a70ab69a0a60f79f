"""The output of ``nft list ruleset`` without what is empty. No I/O."""

import re
from collections import Counter
from typing import Final

_TABLE: Final = re.compile(r"^table .*?^\}\n", re.MULTILINE | re.DOTALL)
_BLOCK: Final = re.compile(r"^\t(map|set|chain) \S+ \{\n((?:\t\t.*\n)*)\t\}\n\n?", re.MULTILINE)


def shorter(ruleset: str) -> str:
    """Return a ruleset without maps and sets that have no elements and chains that have no rules.

    A comment at the end of each table counts what is hidden there. Chains with a hook stay.
    """
    return _TABLE.sub(lambda table: _shorter(table[0]), ruleset)


def _shorter(table: str) -> str:
    hidden: Counter[str] = Counter()

    def shown(block: re.Match[str]) -> str:
        kind, body = block[1], block[2]
        if body if kind == "chain" else "\t\telements" in body:
            return block[0]
        hidden[kind] += 1
        return ""

    text = _BLOCK.sub(shown, table)
    if not hidden:
        return text
    counted = ", ".join(f"{number} {kind}{'s' * (number > 1)}" for kind, number in sorted(hidden.items()))
    head = text.removesuffix("}\n").removesuffix("\n\n")
    return (
        f"{head}{'' if head.endswith(chr(10)) else chr(10) * 2}\t# hidden, as they are empty (--all): {counted}\n}}\n"
    )
