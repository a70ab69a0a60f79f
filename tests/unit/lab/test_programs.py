from lab import build, go


def test_versions_of_kubernetes_programs() -> None:
    assert build.kubernetes_version("Kubernetes v1.34.4\n") == (1, 34)
    assert build.kubernetes_version("Client Version: v1.33.0-rc.1\nKustomize Version: v5.7.1\n") == (1, 33)
    assert build.kubernetes_version("what?") is None


def test_versions_of_go() -> None:
    assert go.version_of("go version go1.26.8 linux/amd64\n") == (1, 26)
    assert go.version_of("go version devel") is None
