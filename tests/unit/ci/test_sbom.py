"""The files of an image that its software bill of materials is made of."""

import io
import json
import sys
import tarfile
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock

import pytest

from tests.unit.ci.scripts import load

METADATA = "opt/lib/a.dist-info/METADATA"
OTHER = "opt/lib/b.dist-info/METADATA"


@pytest.fixture
def sbom(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, without the packages of sbom.lock, which only ``make release`` installs."""
    missing = [
        "cyclonedx",
        *(f"cyclonedx.{each}" for each in ("model", "model.bom", "model.component", "model.dependency")),
        *(f"cyclonedx.{each}" for each in ("output", "output.json", "schema", "validation", "validation.json")),
        "packageurl",
    ]
    for name in missing:
        monkeypatch.setitem(sys.modules, name, MagicMock())
    return load("sbom.py")


def tar(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


@pytest.mark.parametrize(
    ("upper", "left"),
    [
        pytest.param({}, {METADATA: b"1", OTHER: b"1"}, id="nothing"),
        pytest.param({METADATA: b"2"}, {METADATA: b"2", OTHER: b"1"}, id="a file that is replaced"),
        pytest.param({"opt/lib/a.dist-info/.wh.METADATA": b""}, {OTHER: b"1"}, id="a file that is removed"),
        pytest.param({"opt/lib/.wh.a.dist-info": b""}, {OTHER: b"1"}, id="a directory that is removed"),
        pytest.param({"./opt/.wh.lib": b""}, {}, id="a directory above that is removed"),
        pytest.param({METADATA: b"2", "opt/lib/.wh..wh..opq": b""}, {METADATA: b"2"}, id="contents that are replaced"),
        pytest.param({"opt/lib/.wh.a": b""}, {METADATA: b"1", OTHER: b"1"}, id="the beginning of a name"),
    ],
)
def test_an_upper_layer_has(sbom: ModuleType, tmp_path: Path, upper: dict[str, bytes], left: dict[str, bytes]) -> None:
    layers = {"lower": tar({METADATA: b"1", OTHER: b"1"}), "upper": tar(upper)}
    manifest = json.dumps([{"Layers": list(layers)}]).encode()
    (tmp_path / "image.tar").write_bytes(tar({"manifest.json": manifest, **layers}))
    assert sbom.files(tmp_path / "image.tar") == left
