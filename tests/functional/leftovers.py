"""What tests have left in the labs that they share: looked for once, when all are over."""

import contextlib
from collections.abc import Iterable, Iterator

from lab.lab import Lab
from tests.functional.cluster import Cluster


def found(labs: Iterable[Lab]) -> Iterator[str]:
    """Delete the namespaces of tests, and yield a sentence for each lab in which farms of them stay."""
    for lab in labs:
        with contextlib.closing(Cluster(lab)) as cluster:
            try:
                cluster.kept_nothing()
            except AssertionError as error:
                yield f"{error} in the lab {lab.name}: {cluster.node_farms()}"
