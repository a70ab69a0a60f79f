"""Compare the agent table in the kernel with the desired state."""

from collections import Counter

from kube_nftlb.agent.table.layout import TABLE
from kube_nftlb.netfilter.readback import TableReader
from kube_nftlb.netfilter.transaction import State


async def drift(reader: TableReader, wanted: State) -> str | None:
    """Return how the kernel deviates, or None. Rules and elements are counted, not compared."""
    rules = {chain.name: len(chain.rules) for chain in wanted.chains.values() if chain.rules}
    if (found := await reader.rule_counts(TABLE)) != rules:
        different = sorted(name for name in found.keys() | rules.keys() if found[name] != rules.get(name, 0))
        return f"the chain {different[0]} of the table inet {TABLE} was changed"
    elements = Counter(name for name, _ in wanted.elements)
    for name, named in wanted.sets.items():
        found_elements = await reader.element_count(TABLE, name)
        if named.held is not None or not named.elements:
            right = found_elements == (elements[name] if named.held is None else named.held)
        else:
            # The kernel may have merged adjacent intervals: only an empty set is certainly wrong.
            right = found_elements > 0
        if not (right or named.dynamic):
            return f"the {named.kind} {name} of the table inet {TABLE} was changed"
    return None
