"""The tests that take over five seconds, which runs start first: ``slow.toml``.

``python -m tests.slow`` renews it from ``.ci/durations-*.json``, which ``make test`` and ``make test-rest`` write.
"""

import json
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

from tests.distribution import ROOT, shares_a_lab

_RECORDS = ROOT / ".ci"
_FILE = Path(__file__).parent / "slow.toml"
_STEP_S = 5
_HEADER = """\
# The seconds of tests that take over 5, rounded to 5: these start first. `python -m tests.slow` renews it after
# `make test` or `make test-rest`, of the tests that ran. What differs little stays, so that only real changes show.
"""


def seconds() -> dict[str, int]:
    """Return the seconds that slow tests take, by their names."""
    found: dict[str, int] = tomllib.loads(_FILE.read_text())
    return found


def renewed(known: Mapping[str, int], tests: Mapping[str, Mapping[str, float]]) -> dict[str, int]:
    """Return what slow tests take, by what was known of them and the seconds of each phase of those that ran. Pure."""
    result = dict(known)
    for nodeid, phases in tests.items():
        took = sum(took for phase, took in phases.items() if phase != "setup" or not _starts_labs(nodeid))
        steps = round(took / _STEP_S)
        if not steps or abs(took - known.get(nodeid, 0)) >= _STEP_S:
            result[nodeid] = steps * _STEP_S
    return {nodeid: took for nodeid, took in result.items() if took}


def _starts_labs(nodeid: str) -> bool:
    """Return True if what a test does first may be to wait for a lab, which others would then have started."""
    return shares_a_lab(nodeid.partition("::")[0])


def _collected() -> set[str]:
    """Return the names of all tests."""
    query = [sys.executable, "-m", "pytest", "--collect-only", "-q"]
    return set(subprocess.run(query, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines())


def text(slow: Mapping[str, int]) -> str:
    """Return the contents of the file. Pure."""
    return _HEADER + "".join(f"{json.dumps(nodeid)} = {took}\n" for nodeid, took in sorted(slow.items()))


def main() -> None:
    """Write the file anew, without tests that are gone."""
    found, there = seconds(), _collected()
    for record in sorted(_RECORDS.glob("durations-*.json"), key=lambda file: file.stat().st_mtime):
        took = json.loads(record.read_text())["tests"]
        found = renewed(found, {nodeid: phases for nodeid, phases in took.items() if nodeid in there})
    _FILE.write_text(text({nodeid: took for nodeid, took in found.items() if nodeid in there}))


if __name__ == "__main__":
    main()
