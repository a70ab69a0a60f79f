import pytest

from kube_nftlb import errors
from kube_nftlb.operator.sync.farm_writer import FarmRefusedError, Outcome, classify


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(errors.KubeUnreachableError("gone"), Outcome.RETRY, id="the API server is away"),
        pytest.param(errors.KubeError(500, "InternalError", "etcd"), Outcome.RETRY, id="it is in trouble"),
        pytest.param(errors.KubeError(429, "TooManyRequests", "slow down"), Outcome.RETRY, id="it has too much to do"),
        pytest.param(
            errors.ConflictError(409, "Conflict", "uid mismatch"), Outcome.RETRY, id="the farm became another one"
        ),
        pytest.param(errors.NotFoundError(404, "NotFound", "namespace"), Outcome.OBSOLETE, id="the namespace is gone"),
        pytest.param(
            errors.KubeError(403, "Forbidden", "namespace x because it is being terminated"),
            Outcome.OBSOLETE,
            id="it is going",
        ),
    ],
)
def test_a_failed_write_means(error: errors.KubeError | errors.KubeUnreachableError, expected: Outcome) -> None:
    assert classify(error) is expected


@pytest.mark.parametrize(
    "message",
    ["etcdserver: request is too large", "rpc error: trying to send message larger than max (2159011 vs. 2097152)"],
)
def test_a_farm_that_is_too_large_for_etcd_is_refused_and_not_retried(message: str) -> None:
    with pytest.raises(FarmRefusedError, match=r"too large|larger than max"):
        classify(errors.KubeError(500, "InternalError", message))


@pytest.mark.parametrize("status", [400, 403, 422])
def test_a_refusal_is_told_with_the_api_servers_words(status: int) -> None:
    with pytest.raises(FarmRefusedError, match="spec is wrong"):
        classify(errors.KubeError(status, "Invalid", "spec is wrong"))
