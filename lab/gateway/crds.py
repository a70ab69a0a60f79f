"""Take the CustomResourceDefinitions of the Gateway API's standard channel from its Go module, once."""

import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from lab import go, locks, programs
from lab.progress import Count, Report

_MODULE = Path(__file__).parent
_PATH = "sigs.k8s.io/gateway-api"
_CHANNEL = "config/crd/standard"
_EXPERIMENTAL = _MODULE / "experimental"
_GATEWAYS = "gateway.networking.k8s.io_gateways.yaml"
_LEFT_OUT = "*_vap_*"
"""The policy that keeps an older or experimental version from replacing these."""


def version() -> str:
    """Return the version that go.mod requires, like ``v1.6.3``. Raises LabError if it requires none."""
    return go.required_version(_MODULE, _PATH)


def ensure(report: Report) -> Path:
    """Return the folder with a YAML file for each CRD, fetched into the cache if it is missing. Raises LabError."""

    def fill(made: Path, source: _Source) -> None:
        found = go.download(source.toolchain, source.module, _PATH, source.cache, source.progress) / _CHANNEL
        shutil.copytree(found, made, ignore=shutil.ignore_patterns(_LEFT_OUT), copy_function=shutil.copyfile)
        made.chmod(0o755)

    saying = f"fetching the CustomResourceDefinitions of the Gateway API {version()}"
    return _once(version(), _MODULE, saying, fill, report)


def experimental_version() -> str:
    """Return the version of the Gateways of ``ensure_experimental``. Raises LabError if go.mod requires none."""
    return go.required_version(_EXPERIMENTAL, _PATH)


def ensure_experimental(report: Report) -> Path:
    """Return a folder with the same, but for Gateways: they are those of the experimental channel. Raises LabError."""
    newer, standard = experimental_version(), ensure(report)

    def fill(made: Path, source: _Source) -> None:
        found = go.download_zip(source.toolchain, source.module, _PATH, newer, source.cache, source.progress)
        shutil.copytree(standard, made)
        with zipfile.ZipFile(found) as archive:
            text = archive.read(f"{_PATH}@{newer}/config/crd/experimental/{_GATEWAYS}")
        (made / _GATEWAYS).write_bytes(text)

    saying = f"fetching the experimental Gateways of the Gateway API {newer}"
    return _once(f"{version()}-experimental-{newer}", _EXPERIMENTAL, saying, fill, report)


class _Source(NamedTuple):
    """Where a module comes from: what the functions of ``go`` want."""

    toolchain: Path
    module: Path
    cache: Path
    progress: Count


def _once(name: str, pinned: Path, saying: str, fill: Callable[[Path, _Source], None], report: Report) -> Path:
    """Return a folder of the cache, made by ``fill`` of the module that ``pinned`` requires if it is missing."""
    cache = programs.cache_folder()
    target = cache / "gateway-api" / name
    target.parent.mkdir(parents=True, exist_ok=True)
    with locks.locked(cache / "gateway-api.lock", report) as count:
        if target.exists():
            return target
        toolchain = go.find(pinned, cache, report)
        with tempfile.TemporaryDirectory(dir=cache, prefix="build-") as folder:
            # Go writes beside go.mod, and the folder of the module may be read-only.
            module, made = Path(folder, "module"), Path(folder, "crds")
            shutil.copytree(pinned, module)
            report(saying)
            fill(made, _Source(toolchain, module, cache, count))
            made.rename(target)
    return target
