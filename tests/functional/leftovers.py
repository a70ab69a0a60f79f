"""What tests have left in labs, and what the API server refused our programs there.

Looked for once in each lab, when all its tests are over.
"""

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from lab.lab import Lab
from lab.state import LabFiles
from tests import labs as shared
from tests.functional.cluster import Cluster

_KNOWS_NO_ROLES = '\\"system:discovery\\" not found'
"""Said by an API server that has just started: it has not even read the role that it makes itself."""
_SERVES = re.compile(r"^I(\d{4} \d\d:\d\d:\d\d)\S* .* Serving securely on ", re.MULTILINE)
"""Logged by an API server when it begins, at a month, a day and a time of the clock."""
_READS_ROLES = timedelta(seconds=15)
"""How long it may then refuse what some roles allow: its caches fill one after the other."""


def found(labs: Iterable[Lab]) -> Iterator[str]:
    """Delete the namespaces of tests, and yield a sentence for each lab in which a node has anything of them.

    Yield one, too, for each log that tells of a missing right, and for a lab that cannot be looked at: the tests there
    are over, and none of them is to fail for it.
    """
    for lab in labs:
        try:
            yield from _found(lab)
        except Exception as error:
            yield f"cannot look at what tests left in the lab {lab.name}: {error!r}"


def _found(lab: Lab) -> Iterator[str]:
    files = LabFiles.of(lab.name)
    if not files.log("operator", None).exists():
        return  # another proxy runs there
    with contextlib.closing(Cluster(lab)) as cluster:
        try:
            cluster.kept_nothing()
        except AssertionError as error:
            yield f"{error} in the lab {lab.name}"
    began = beginnings(lab.log_path("apiserver").read_text(), datetime.now(UTC).year)
    agents = (files.log("agent", node.name) for node in lab.nodes)
    # Some have not been started.
    for log in filter(Path.exists, (files.log("operator", None), *agents)):
        # The API server says this also of an Event in a namespace that is being deleted.
        if lines := [line for line in refused(log.read_text(), began) if "being terminated" not in line]:
            yield f"the API server refused what {log.stem} of the lab {lab.name} needs: {lines[0]}"


def end_with_group(nodeid: str, kind: str, lab: Lab, forget: Callable[[], None]) -> None:
    """Stop the shared lab of a kind after the last of the tests that stay together with this one, which alone use it.

    What they have left makes the run fail at its end, not the last test, which may be innocent. ``forget`` is called
    before the lab ends.
    """
    ending = shared.with_last_of(nodeid)
    ending.callback(shared.end, kind)
    ending.callback(forget)
    ending.callback(lambda: shared.note_leftovers(found([lab])))


def beginnings(log: str, year: int) -> list[datetime]:
    """When an API server has begun to serve, by its log."""
    return [datetime.strptime(f"{year}{at}", "%Y%m%d %H:%M:%S").astimezone() for at in _SERVES.findall(log)]


def refused(log: str, began: Iterable[datetime] = ()) -> list[str]:
    """The lines of a log that tell of a missing right; not of an API server that has just begun.

    For a moment it knows no roles, and refuses everybody everything.
    """
    reading = [(start, start + _READS_ROLES) for start in began]
    away_until, found = datetime.min.replace(tzinfo=UTC), []
    for line in log.splitlines():
        if "cannot connect to" in line or " broke: " in line:
            away_until = _time(line) + timedelta(seconds=10)
        elif "403 Forbidden" in line and _KNOWS_NO_ROLES not in line:
            at = _time(line)
            if at > away_until and not any(start <= at < end for start, end in reading):
                found.append(line)
    return found


def _time(line: str) -> datetime:
    """When a line of a log was written, in either of its formats."""
    at = json.loads(line)["timestamp"] if line.startswith("{") else line.partition(" ")[0]
    return datetime.fromisoformat(at)
