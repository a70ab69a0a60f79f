"""Build MetalLB's programs from its Go module, once, and keep what its manifest has for a cluster."""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from lab import go, locks
from lab.metallb.plan import CONTROLLER, SPEAKER
from lab.progress import Report

_MODULE = Path(__file__).parent
_PATH = "go.universe.tf/metallb"
_PACKAGES = {CONTROLLER: "controller", SPEAKER: "speaker"}
"""The folders of the programs in the module, by what the lab calls them."""
_CRDS, _MANIFEST = "config/crd/bases", "config/manifests/metallb-native.yaml"


def version() -> str:
    """Return the version that go.mod requires, like ``v0.16.1``. Raises LabError if it requires none."""
    return go.required_version(_MODULE, _PATH)


def programs(cache: Path, report: Report) -> Mapping[str, Path]:
    """Return the programs, built into the cache if missing. Raises LabError with the end of Go's output."""
    target = _folder(cache)
    target.parent.mkdir(parents=True, exist_ok=True)
    with locks.locked(cache / "build-metallb.lock", report) as count:
        if not target.exists():
            toolchain = go.find(_MODULE, cache, report)
            report(f"building MetalLB {version()} with Go (takes minutes, once)")
            with tempfile.TemporaryDirectory(dir=target.parent, prefix="build-") as folder:
                source = go.copy_source(toolchain, _MODULE, _PATH, Path(folder), cache, count)
                made = Path(folder, "made")
                made.mkdir()
                packages = [f"./{package}" for package in _PACKAGES.values()]
                go.build(toolchain, source, made, cache, packages, "-s -w", count)
                for name, package in _PACKAGES.items():
                    (made / package).rename(made / name)
                shutil.copytree(source / _CRDS, crds(made))
                shutil.copyfile(source / _MANIFEST, manifest(made))
                made.rename(target)
    return {name: target / name for name in _PACKAGES}


def there(cache: Path) -> bool:
    """Return True if the programs have been built."""
    return _folder(cache).exists()


def crds(folder: Path) -> Path:
    """Return the folder with a YAML file for each CustomResourceDefinition, beside the programs in a folder."""
    return folder / "crds"


def manifest(folder: Path) -> Path:
    """Return the manifest of MetalLB's native mode, beside the programs in a folder."""
    return folder / "native.yaml"


def _folder(cache: Path) -> Path:
    return cache / "metallb" / version()
