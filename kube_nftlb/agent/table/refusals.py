"""Find out whose contents the kernel refuses in the agent table, by halves."""

from collections.abc import Awaitable, Callable, Iterable, Sequence

from kube_nftlb.agent.table.layout import EARLIER, ENVIRONMENT, POOLS
from kube_nftlb.agent.table.policies import farm_of, policy_of, rules_owner

Check = Callable[[Sequence[str]], Awaitable[str | None]]
"""Returns why the kernel refuses a table with the contents of these and nobody else's, or None."""


def subject(owner: str) -> str | None:
    """Return who is at fault if the kernel refuses the contents of an owner.

    That is a farm, by its name on the node, or a policy or all pools, by the owner of their sets; None for what is the
    agent's own.
    """
    return None if owner in (ENVIRONMENT, EARLIER) else farm_of(owner)


def owners(of: str) -> tuple[str, ...]:
    """Return all owners that a subject has."""
    return (of,) if of == POOLS or policy_of(of) is not None else (of, rules_owner(of))


async def refused(subjects: Iterable[str], check: Check) -> dict[str, str]:
    """Return the subjects whose contents the kernel refuses, and why; none if it refuses the agent's own too."""
    found = sorted(set(subjects))
    if not found or await check([]) is not None:
        return {}
    policies = [each for each in found if policy_of(each) is not None]
    farms = [each for each in found if policy_of(each) is None]
    # The rules of farms refer to the sets of policies, which refer to nothing.
    of_policies = await _among(policies, check)
    return of_policies | await _among(farms, check)


async def _among(subjects: Sequence[str], check: Check) -> dict[str, str]:
    if not subjects or (message := await check(subjects)) is None:
        return {}
    if len(subjects) == 1:
        return {subjects[0]: message}
    half = len(subjects) // 2
    return await _among(subjects[:half], check) | await _among(subjects[half:], check)
