"""Build Envoy Gateway from its Go module, and install Envoy from its wheel, once."""

import re
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from kube_nftlb import errors
from lab import go, locks, programs, wheels
from lab.progress import Report

_MODULE = Path(__file__).parent
_LOCK = _MODULE / "envoy.lock"
_PATH = "github.com/envoyproxy/gateway"
_CRD = "charts/gateway-helm/charts/crds/crds/generated/gateway.envoyproxy.io_envoyproxies.yaml"


class Programs(NamedTuple):
    """Both programs, and the CustomResourceDefinition of Envoy Gateway's that is needed."""

    gateway: Path
    envoy: Path
    crd: Path


def version() -> str:
    """Return the version that go.mod requires, like ``v1.9.1``. Raises LabError if it requires none."""
    return go.required_version(_MODULE, _PATH)


def envoy_version() -> str:
    """Return the version that the lock file pins, like ``1.39.1``."""
    found: list[str] = re.findall(r"==(\S+)", _LOCK.read_text())
    return found[0]


def ensure(report: Report) -> Programs:
    """Return the programs, built into the cache if they are missing. Raises LabError with the end of Go's output."""
    cache = programs.cache_folder()
    target = cache / "benchmarks" / f"envoy-gateway-{version()}"
    found = Programs(target / "envoy-gateway", target / "wheel/envoy/_bin/envoy", target / "crd.yaml")
    target.parent.mkdir(parents=True, exist_ok=True)
    with locks.locked(cache / "build-envoy-gateway.lock", report) as count:
        if target.exists():
            return found
        toolchain = go.find(_MODULE, cache, report)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="build-") as folder:
            report(f"building Envoy Gateway {version()} with Go (takes minutes, once)")
            source = go.copy_source(toolchain, _MODULE, _PATH, Path(folder), cache, count)
            made = Path(folder, "made")
            made.mkdir()
            flags = "-s -w"
            go.build(toolchain, source, made / found.gateway.name, cache, ["./cmd/envoy-gateway"], flags, count)
            shutil.copyfile(source / _CRD, made / found.crd.name)
            wheels.install(_LOCK, made / "wheel")
            if not (made / found.envoy.relative_to(target)).exists():
                raise errors.LabError(f"the wheel with Envoy {envoy_version()} cannot be installed from PyPI")
            made.rename(target)
    found.envoy.chmod(0o755)
    return found
