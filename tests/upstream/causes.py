"""Why tests fail, where somebody has found out. The records have only what the tests say."""

import re

_CAUSES: tuple[tuple[str, str], ...] = ()
"""Regular expressions of test names, and the cause."""


def of(test: str) -> str:
    """Return the cause of a test's failure, or nothing."""
    return next((cause for expression, cause in _CAUSES if re.search(expression, test)), "")
