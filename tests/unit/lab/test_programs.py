from lab import build


def test_versions_of_kubernetes_programs() -> None:
    assert build.kubernetes_version("Kubernetes v1.34.4\n") == (1, 34)
    assert build.kubernetes_version("Client Version: v1.33.0-rc.1\nKustomize Version: v5.7.1\n") == (1, 33)
    assert build.kubernetes_version("what?") is None


def test_versions_of_go() -> None:
    assert build.go_version("go version go1.26.8 linux/amd64\n") == (1, 26)
    assert build.go_version("go version devel") is None
