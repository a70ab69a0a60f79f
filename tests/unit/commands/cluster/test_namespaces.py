"""The farms of a namespace are counted, and one that does not exist has none that could be healthy."""

import pytest

from kube_nftlb import errors
from kube_nftlb.commands.cluster import inspecting
from kube_nftlb.commands.cluster.inspecting import StatusOptions
from kube_nftlb.commands.cluster.queries import Target
from kube_nftlb.kube.resources import FARMS, NAMESPACES, JsonObject, Resource
from tests.builders import raw_farm
from tests.unit.commands.cluster.test_inspecting import STATUS, WithWarnings, why

JUST_NOW = "2200-01-01T00:00:00Z"
PENDING = {"type": "Programmed", "status": "False", "reason": "Pending", "lastTransitionTime": JUST_NOW}


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ([STATUS, STATUS], "all 2 farms are healthy\n"),
        ([STATUS, {**STATUS, "conditions": [PENDING]}], "2 farms: 1 healthy, 1 just changed\n"),
        ([{}, STATUS, {"conditions": [PENDING]}], "3 farms: 1 healthy, 1 just changed, 1 new, without a status yet\n"),
        ([], "there are no farms in the namespace default\n"),
    ],
)
async def test_why_counts_no_farm_as_healthy_that_may_yet_fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], statuses: list[JsonObject], expected: str
) -> None:
    kube = WithWarnings()
    kube.put(NAMESPACES, {"metadata": {"name": "default"}})
    for number, each in enumerate(statuses):
        farm = raw_farm(f"farm-{number}", status=each)
        farm["metadata"]["creationTimestamp"] = JUST_NOW
        kube.put(FARMS, farm)
    assert not await why(monkeypatch, kube, None, namespace="default")
    assert capsys.readouterr().out == expected


class NoNamespaces(WithWarnings):
    """Refuses Namespaces."""

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> JsonObject:
        if resource == NAMESPACES:
            raise errors.KubeError(403, "Forbidden", "cannot get namespaces")
        return await super().get(resource, name, namespace)


async def test_a_namespace_that_does_not_exist_is_not_healthy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kube = WithWarnings()
    options = StatusOptions(wait_s=60)
    with pytest.raises(errors.UsageError, match="there is no namespace nosuch"):
        await why(monkeypatch, kube, None, namespace="nosuch")
    with pytest.raises(errors.UsageError, match="there is no namespace nosuch"):
        await inspecting.status(Target(namespace="nosuch"), options)
    assert not await why(monkeypatch, NoNamespaces(), None, namespace="nosuch"), "who knows"
    assert not await inspecting.status(Target(namespace="nosuch"), options)
    shown = capsys.readouterr()
    assert shown.err == "there are no farms in the namespace nosuch\n"
    assert shown.out.startswith(shown.err)
    assert "FARMS      0\n" in shown.out
