"""Write the software bill of materials of an image, in CycloneDX 1.6: ``sbom.py ARCHIVE VERSION TARGET``.

ARCHIVE is what ``docker save`` writes, for any architecture; nothing in it runs. debsbom lists Debian's packages; those
of Python, and nftlb, are added, since dpkg does not know them. Needs the packages of sbom.lock.
"""

import email.parser
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.dependency import Dependency
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

DPKG = "var/lib/dpkg/"
NFTLB = re.compile(r"^version=(.+)$", re.MULTILINE)
NFTLB_SOURCE = re.compile(r"^source=nftlb=(.+)$", re.MULTILINE)


def files(archive: Path) -> dict[str, bytes]:
    """Return the files of the image that tell what is in it, by path."""
    found: dict[str, bytes] = {}
    with tarfile.open(archive) as image:
        (manifest,) = json.load(image.extractfile("manifest.json"))
        for name in manifest["Layers"]:
            with tarfile.open(fileobj=image.extractfile(name)) as layer:
                members = {PurePosixPath(member.name): member for member in layer}
                # Whiteouts are about the layers below alone, wherever they stand in this one.
                gone = {removed(path) for path in members if path.name.startswith(".wh.")}
                found = {path: content for path, content in found.items() if gone.isdisjoint(with_parents(path))}
                for path, member in members.items():
                    if member.isfile() and tells(str(path)):
                        found[str(path)] = layer.extractfile(member).read()
    return found


def with_parents(path: str) -> list[PurePosixPath]:
    """Return a path and the directories that it is in."""
    return [PurePosixPath(path), *PurePosixPath(path).parents]


def removed(whiteout: PurePosixPath) -> PurePosixPath:
    """Return what a whiteout removes, with all below: a file or directory, or the contents of its own directory."""
    opaque = whiteout.name == ".wh..wh..opq"
    return whiteout.parent if opaque else whiteout.with_name(whiteout.name.removeprefix(".wh."))


def tells(path: str) -> bool:
    """Return True if a file tells what is in the image."""
    return path.startswith(DPKG) or path.endswith(".dist-info/METADATA") or path == "usr/share/doc/nftlb/build"


def debian(found: dict[str, bytes], version: str) -> Bom:
    """Return what debsbom makes of dpkg's database."""
    with tempfile.TemporaryDirectory() as folder:
        for path, content in found.items():
            if path.startswith(DPKG):
                Path(folder, path).parent.mkdir(parents=True, exist_ok=True)
                Path(folder, path).write_bytes(content)
        out = Path(folder, "sbom")
        command = [Path(sys.executable).with_name("debsbom"), "generate", "--root", folder, "-t", "cdx", "-o", out]
        what = ["--distro-name", "kube-nftlb", "--distro-version", version, "--cdx-schema-version", "1.6"]
        done = subprocess.run([*command, *what], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"debsbom failed: {done.stderr}")
        return Bom.from_json(json.loads(Path(folder, "sbom.cdx.json").read_text()))


def others(found: dict[str, bytes]) -> Iterator[Component]:
    """Yield the packages of Python, and nftlb."""
    for path, content in found.items():
        if path.endswith(".dist-info/METADATA"):
            metadata = email.parser.BytesParser().parsebytes(content, headersonly=True)
            name, version = metadata["Name"], metadata["Version"]
            purl = PackageURL("pypi", name=re.sub(r"[-_.]+", "-", name).lower(), version=version)
            yield component(name, version, purl, metadata["Summary"])
    recipe = found["usr/share/doc/nftlb/build"].decode()
    source = PackageURL("deb", "debian", "nftlb", NFTLB_SOURCE.search(recipe)[1], {"arch": "source"})
    words = "Built from Debian's source package with the patches in /usr/share/doc/nftlb"
    yield component("nftlb", NFTLB.search(recipe)[1], source, words)


def component(name: str, version: str, purl: PackageURL, description: str) -> Component:
    """Return a component that is known by its package URL."""
    return Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY if purl.type == "pypi" else ComponentType.APPLICATION,
        bom_ref=purl.to_string(),
        purl=purl,
        description=description,
    )


def main(archive: Path, version: str, target: Path) -> None:
    """Write the list of an archive, once it is valid."""
    found = files(archive)
    bom = debian(found, version)
    added = list(others(found))
    bom.components.update(added)
    root = next(each for each in bom.dependencies if each.ref == bom.metadata.component.bom_ref)
    for each in added:
        root.dependencies.add(Dependency(each.bom_ref))
    text = JsonV1Dot6(bom).output_as_string(indent=1)
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise SystemExit(f"not valid CycloneDX: {error}")
    target.write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
