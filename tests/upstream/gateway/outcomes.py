"""The outcomes in what the tests of the Gateway API print. Computation only."""

import re
from collections.abc import Iterator

from tests.upstream.records import FAILED, PASSED, SKIPPED, Outcome

_RESULT = re.compile(r"^    --- (PASS|FAIL|SKIP): TestConformance/(\w+) \(([\d.]+)s\)$", re.MULTILINE)
_WORDS = {"PASS": PASSED, "FAIL": FAILED, "SKIP": SKIPPED}
_FAILURE = re.compile(
    r"^\s+Error Trace:.*?^\s+Test:\s+TestConformance/(?P<test>\w+).*?$(?:\s+Messages:\s+(?P<words>.*?)$)?",
    re.MULTILINE | re.DOTALL,
)
_ERROR = re.compile(r"^\s+Error:\s+(.*?)$", re.MULTILINE)
_LENGTH = 240


def parse(log: str, reasons: dict[str, str]) -> list[Outcome]:
    """Return the outcomes of the tests that were run, or left out for one of ``reasons``, in the order of their names.

    ``log`` is the output of ``go test -v``. Tests of features that nobody claims are not among them.
    """
    failures = dict(_failures(log))
    found = []
    for word, test, seconds in _RESULT.findall(log):
        if word != "SKIP":
            found.append(Outcome(test, _WORDS[word], float(seconds), failures.get(test, "") if word == "FAIL" else ""))
        elif test in reasons:
            found.append(Outcome(test, SKIPPED, 0, reasons[test]))
    return sorted(found, key=lambda each: each.test)


def _failures(log: str) -> Iterator[tuple[str, str]]:
    """Yield each test with its failures, the first one last."""
    for match in reversed(list(_FAILURE.finditer(log))):
        error = _ERROR.search(match[0])
        yield match["test"], (match["words"] or (error[1] if error else ""))[:_LENGTH].strip()
