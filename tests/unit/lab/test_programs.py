import pytest

from kube_nftlb import errors
from lab import build, versions


def test_the_newest_kubernetes_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(versions.VARIABLE, raising=False)
    oldest = versions.supported()[-1]
    assert versions.of(None) == versions.newest() > oldest
    monkeypatch.setenv(versions.VARIABLE, oldest.name)
    assert versions.of(None) == oldest == versions.of(oldest.name)


def test_real_kubelets_are_no_newer_than_their_containerd_allows() -> None:
    limit = versions.of(versions.KUBELET)
    assert {each.name: versions.of_kubelets(each) for each in versions.supported()} == {
        each.name: min(each, limit) for each in versions.supported()
    }
    assert versions.newest().minor - limit.minor <= 3, "the skew that Kubernetes allows"


def test_another_kubernetes_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(errors.LabError, match=r"must be one of 1\.\d+, .*, not '1\.20'"):
        versions.of("1.20")


def test_a_module_requires_the_version_of_its_folder() -> None:
    assert [version.module.name for version in versions.supported()] == ["1.37", "1.36", "1.35"]


def test_versions_of_kubernetes_programs() -> None:
    assert build.kubernetes_version("Kubernetes v1.34.4\n") == (1, 34)
    assert build.kubernetes_version("Client Version: v1.33.0-rc.1\nKustomize Version: v5.7.1\n") == (1, 33)
    assert build.kubernetes_version("what?") is None
