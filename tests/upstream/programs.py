"""The tests of Kubernetes and of the Gateway API and the programs that they need, built once from their Go modules."""

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from lab import build, debian, go, locks, programs, versions
from lab.progress import Count

_MODULES = Path(__file__).parent / "modules"
# hostPort is made of its rules.
_DEBIAN_PACKAGES = {"iptables": "iptables"}

KUBERNETES = versions.pinned(_MODULES / "suite" / "go.mod")
"""The version of the tests, and of the cluster in which they run."""
TESTS = "e2e.test"
GINKGO = "ginkgo"
AGNHOST = "agnhost"
REGRESSION = "regression-issue-74839"
COREDNS = "coredns"
GATEWAY_TESTS = "gateway.test"
ECHO = "echo-basic"
WHOAMI = "whoami"


class _Package(NamedTuple):
    module: str
    name: str
    how: tuple[str, ...] = go.BUILD


_PACKAGES = {
    AGNHOST: _Package("suite", "k8s.io/kubernetes/test/images/agnhost"),
    REGRESSION: _Package("suite", "k8s.io/kubernetes/test/images/regression-issue-74839"),
    GINKGO: _Package("suite", "github.com/onsi/ginkgo/v2/ginkgo"),
    TESTS: _Package("suite", "k8s.io/kubernetes/test/e2e", go.BUILD_TESTS),
    COREDNS: _Package("coredns", "."),
    GATEWAY_TESTS: _Package("gateway", ".", go.BUILD_TESTS),
    ECHO: _Package("gateway", "sigs.k8s.io/gateway-api/conformance/echo-basic"),
    WHOAMI: _Package("whoami", "."),
}
OF_KUBERNETES = (AGNHOST, REGRESSION, GINKGO, TESTS, COREDNS)
OF_GATEWAY_API = (GATEWAY_TESTS, ECHO, WHOAMI)


def ensure(report: Callable[[str], None], wanted: Collection[str] = OF_KUBERNETES) -> Mapping[str, Path]:
    """Return programs by name; missing ones are built or installed. Raises LabError."""
    if missing := [package for program, package in _DEBIAN_PACKAGES.items() if programs.find(program) is None]:
        debian.install(missing, report)
    cache = programs.cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    places = {name: _folder(cache, _PACKAGES[name].module) / name for name in wanted}
    with locks.locked(cache / "build-upstream.lock", report) as count:
        to_build = [name for name, place in places.items() if not place.exists()]
        for number, name in enumerate(to_build, 1):
            report(f"building {name} with Go ({number} of {len(to_build)}; takes minutes, once)")
            toolchain = go.find(_MODULES / _PACKAGES[name].module, cache, report)
            _build(toolchain, _PACKAGES[name], places[name], cache, count)
    return places


def _build(toolchain: Path, package: _Package, target: Path, cache: Path, count: Count) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="build-") as folder:
        # Go writes beside go.mod, and this folder may be read-only.
        source = Path(folder, "source")
        shutil.copytree(_MODULES / package.module, source)
        built = Path(folder, target.name)
        flags = build.linker_flags(KUBERNETES)
        go.build(toolchain, source, built, cache, [package.name], flags, count, package.how)
        built.rename(target)


def _folder(cache: Path, module: str) -> Path:
    """Return the folder of a module's programs, which is another one for other versions and sources."""
    sources = b"".join(path.read_bytes() for path in sorted((_MODULES / module).iterdir()))
    return cache / "upstream" / f"{module}-{hashlib.sha256(sources).hexdigest()[:12]}"
