import json

from tests.functional.leftovers import refused


def test_a_right_that_is_missing_is_told_from_an_api_server_that_starts() -> None:
    def line(second: int, error: str) -> str:
        return json.dumps({"error": error, "timestamp": f"2026-01-01T00:00:{second:02}.000000Z"})

    away, forbidden = "the watch of pods broke: ClientPayloadError()", "403 Forbidden: pods is forbidden"
    assert refused("\n".join((line(1, away), line(4, forbidden)))) == []
    assert refused("\n".join((line(1, away), line(20, forbidden), "-- operator ended"))) == [line(20, forbidden)]
    assert refused(line(1, forbidden)) == [line(1, forbidden)]
    missing = f'{forbidden}: RBAC: [clusterrole.rbac.authorization.k8s.io "{{}}" not found]'
    assert refused(line(1, missing.format("system:discovery"))) == []
    assert refused(line(1, missing.format("kube-nftlb-agent"))) != []
