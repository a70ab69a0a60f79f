"""``python -m tests.upstream``: run Kubernetes' end-to-end tests with each service proxy, and make their page."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from kube_nftlb import errors
from lab.lab import Lab
from tests.upstream import cluster, progress, records, report, suite
from tests.upstream.groups import GROUPS, Group
from tests.upstream.subjects import SUBJECTS, Subject


def main() -> int:
    """Run the suite. Return 0 if no test fails with kube-nftlb that did not fail with kube-proxy."""
    parser = argparse.ArgumentParser(prog="python -m tests.upstream", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("dist/upstream"), metavar="DIR", help="folder of the records")
    parser.add_argument("--only", default="", metavar="GROUP,...", help=", ".join(group.name for group in GROUPS))
    parser.add_argument(
        "--subjects", default="", metavar="NAME,...", help=", ".join(subject.name for subject in SUBJECTS)
    )
    parser.add_argument("--processes", type=int, default=5, help="tests at the same time")
    parser.add_argument("--hold", action="store_true", help="only start the cluster, and keep it")
    arguments = parser.parse_args()
    groups = [group for group in GROUPS if _is_chosen(group.name, arguments.only)]
    subjects = [subject for subject in SUBJECTS if _is_chosen(subject.name, arguments.subjects)]
    if not groups or not subjects:
        parser.error("no test is chosen: see the names in --help")
    try:
        for subject in subjects:
            with cluster.running(f"upstream-{os.getpid()}", subject, progress.say) as lab:
                if arguments.hold:
                    progress.hold(lab)
                else:
                    _try(lab, subject, groups, arguments.processes, arguments.out)
    except errors.LabError as error:
        print(error, file=sys.stderr)
        return 1
    if arguments.hold:
        return 0
    print(report.write(arguments.out, arguments.out))
    return 1 if report.defects(report.read(arguments.out)) else 0


def _try(lab: Lab, subject: Subject, groups: Sequence[Group], processes: int, out: Path) -> None:
    logs = out / "logs" / subject.name
    progress.say(f"running {', '.join(group.title for group in groups)}: {logs}/log.txt")
    run = suite.run(lab, subject.name, groups, processes, logs)
    if failed := [each.test for each in run.outcomes if each.outcome == records.FAILED]:
        # Side by side, tests disturb each other, and a slow machine does the rest.
        progress.say(f"running {len(failed)} that failed again, one after another")
        run = records.retried(run, suite.run_again(lab, subject.name, failed, logs / "again"))
    records.write(out, records.merged(records.read(out, subject.name), run))


def _is_chosen(name: str, wanted: str) -> bool:
    return not wanted or name in wanted.split(",")


if __name__ == "__main__":
    sys.exit(main())
