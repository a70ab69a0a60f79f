"""A change of one Service is felt by no other, of whichever engine: no connection fails, and none waits.

KUBE_NFTLB_BYSTANDER_FARMS has the numbers of farms to do it with, 10 by default; ``make bystanders`` does it with more.
"""

import contextlib
import os

import pytest

from tests import engine
from tests.bystanders.edits import Others
from tests.bystanders.stage import Stage
from tests.bystanders.verdict import attempts, judge, summary, told
from tests.functional.cluster import Cluster
from tests.functional.faults import suite

FARMS_VARIABLE = "KUBE_NFTLB_BYSTANDER_FARMS"
_FARMS = [int(number) for number in os.environ.get(FARMS_VARIABLE, "10").split()]


@pytest.mark.alone
@pytest.mark.parametrize("farms", _FARMS)
@pytest.mark.timeout(600 + 2 * max(_FARMS))
def test_nobody_feels_the_edits_of_others(cluster: Cluster, own_namespace: str, farms: int) -> None:
    with (
        cluster.namespace() as theirs,
        cluster.namespace() as doomed,
        contextlib.closing(Stage(cluster, own_namespace, farms, engine.BOTH)) as stage,
    ):
        others = Others(cluster, theirs, doomed, engine.BOTH, stage.patience_s)
        with stage.hammered() as results:
            edits = list(others.edits())
    print(summary(results, edits))
    felt = judge(results, edits)
    for metric, number in (("attempts", attempts(results)), ("changes of others", len(edits)), ("felt", len(felt))):
        suite.record("bystanders", metric, "", number, farms=farms)
    assert all(record["attempts"] > 100 for result in results.values() for record in result["streams"].values())
    assert told(felt) == []
    assert [edit for edit in edits if edit.problem] == []
