"""``python -m tests.upstream.gateway``: run the conformance tests of the Gateway API, and make their page."""

import argparse
import os
import sys
from pathlib import Path

from kube_nftlb import errors
from tests.upstream import progress, records
from tests.upstream.gateway import cluster, report, suite


def main() -> int:
    """Run the tests with each engine. Return 0 if none fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.upstream.gateway", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("dist/gateway"), metavar="DIR", help="folder of the records")
    parser.add_argument("--engines", default=",".join(report.ENGINES), metavar="NAME,...")
    parser.add_argument("--only", default="", metavar="TEST", help="run one test, and keep no record")
    parser.add_argument("--hold", action="store_true", help="only start the cluster, and keep it")
    arguments = parser.parse_args()
    failed = False
    try:
        for engine in arguments.engines.split(","):
            with cluster.running(f"gateway-{os.getpid()}", engine, progress.say) as lab:
                if arguments.hold:
                    progress.hold(lab)
                    continue
                progress.say(f"running the tests with the engine {engine}: {arguments.out}/{engine}.txt")
                run = suite.run(lab, engine, arguments.only, arguments.out)
                failed |= any(each.outcome == records.FAILED for each in run.outcomes)
                if not arguments.only:
                    records.write(arguments.out, run)
    except errors.LabError as error:
        print(error, file=sys.stderr)
        return 1
    if not arguments.hold and not arguments.only:
        print(report.write(arguments.out, arguments.out))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
