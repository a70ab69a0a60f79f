"""Take the CustomResourceDefinitions of the Gateway API's standard channel from its Go module, once."""

import shutil
import tempfile
import zipfile
from pathlib import Path

from lab import go, locks, programs
from lab.progress import Report

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
    cache = programs.cache_folder()
    target = cache / "gateway-api" / version()
    target.parent.mkdir(parents=True, exist_ok=True)
    with locks.locked(cache / "gateway-api.lock", report) as count:
        if target.exists():
            return target
        toolchain = go.find(_MODULE, cache, report)
        with tempfile.TemporaryDirectory(dir=cache, prefix="build-") as folder:
            # Go writes beside go.mod, and the folder of the module may be read-only.
            module, made = Path(folder, "module"), Path(folder, "crds")
            shutil.copytree(_MODULE, module)
            report(f"fetching the CustomResourceDefinitions of the Gateway API {version()}")
            found = go.download(toolchain, module, _PATH, cache, count) / _CHANNEL
            shutil.copytree(found, made, ignore=shutil.ignore_patterns(_LEFT_OUT), copy_function=shutil.copyfile)
            made.chmod(0o755)
            made.rename(target)
    return target


def experimental_version() -> str:
    """Return the version of the Gateways of ``ensure_experimental``. Raises LabError if go.mod requires none."""
    return go.required_version(_EXPERIMENTAL, _PATH)


def ensure_experimental(report: Report) -> Path:
    """Return a folder with the same, but for Gateways: they are those of the experimental channel. Raises LabError."""
    cache, newer, standard = programs.cache_folder(), experimental_version(), ensure(report)
    target = cache / "gateway-api" / f"{version()}-experimental-{newer}"
    with locks.locked(cache / "gateway-api.lock", report) as count:
        if target.exists():
            return target
        toolchain = go.find(_EXPERIMENTAL, cache, report)
        with tempfile.TemporaryDirectory(dir=cache, prefix="build-") as folder:
            module, made = Path(folder, "module"), Path(folder, "crds")
            shutil.copytree(_EXPERIMENTAL, module)
            report(f"fetching the experimental Gateways of the Gateway API {newer}")
            found = go.download_zip(toolchain, module, _PATH, newer, cache, count)
            shutil.copytree(standard, made)
            with zipfile.ZipFile(found) as archive:
                text = archive.read(f"{_PATH}@{newer}/config/crd/experimental/{_GATEWAYS}")
            (made / _GATEWAYS).write_bytes(text)
            made.rename(target)
    return target
