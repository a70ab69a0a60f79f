"""The versions of Kubernetes that a lab can run, each pinned by the Go module in its folder."""

import os
import re
from pathlib import Path
from typing import NamedTuple

from kube_nftlb import errors

VARIABLE = "KUBE_NFTLB_LAB_KUBERNETES"
"""The environment variable with the minor version that labs run if they are not told."""
KUBELET = "1.35"
"""The newest version whose kubelet runs with containerd 1.6, which Debian 12 has: later ones ask for containerd 2."""
MODULES = Path(__file__).parent / "kubernetes"
_REQUIRED = re.compile(r"^(?:require |\t)k8s\.io/kubernetes (v(\d+)\.(\d+)\.\d+)$", re.MULTILINE)


class Version(NamedTuple):
    """A version of Kubernetes."""

    major: int
    minor: int
    full: str
    """As its programs print it, like ``v1.36.3``."""

    @property
    def name(self) -> str:
        """The name of its minor version, like ``1.36``."""
        return f"{self.major}.{self.minor}"

    @property
    def module(self) -> Path:
        """The folder with the go.mod and go.sum of its programs."""
        return MODULES / self.name


def supported() -> list[Version]:
    """Return all versions, the newest first."""
    return sorted((pinned(path) for path in MODULES.glob("*/go.mod")), reverse=True)


def newest() -> Version:
    """Return the newest version."""
    return supported()[0]


def of(name: str | None) -> Version:
    """Return the version with this name, by default $KUBE_NFTLB_LAB_KUBERNETES or the newest. Raises LabError."""
    found = {version.name: version for version in supported()}
    wanted = name or os.environ.get(VARIABLE) or newest().name
    if wanted not in found:
        raise errors.LabError(f"the version of Kubernetes must be one of {', '.join(found)}, not {wanted!r}")
    return found[wanted]


def of_kubelets(control_plane: Version) -> Version:
    """Return the version of real kubelets at a control plane: it may be three minor versions older."""
    return min(control_plane, of(KUBELET))


def pinned(module: Path) -> Version:
    """Return the version that a go.mod requires. Raises LabError if it requires none."""
    if (match := _REQUIRED.search(module.read_text())) is None:
        raise errors.LabError(f"{module} does not require a version of k8s.io/kubernetes")
    return Version(int(match[2]), int(match[3]), match[1])
