"""The files that are generated from the code: CRDs, reference pages and the chart's README."""

from collections.abc import Mapping
from pathlib import Path

from kube_nftlb import errors
from kube_nftlb.api.schema import crd
from kube_nftlb.commands import metrics_page, reference_page


def crds(directory: Path) -> dict[Path, str]:
    """Return the CustomResourceDefinitions, by file."""
    chart = directory.parent / "charts/kube-nftlb/files/crds"
    # A chart can only include files from its own folder, so it has copies.
    folders = [directory, *([chart] if chart.is_dir() else [])]
    return {
        folder / name: crd.render(definition) for name, definition in crd.definitions().items() for folder in folders
    }


def pages(directory: Path) -> dict[Path, str]:
    """Return the pages about fields, annotations and metrics, by file."""
    return {directory / "reference.md": reference_page.page(), directory / "metrics.md": metrics_page.page()}


def write(texts: Mapping[Path, str], command: str, *, check: bool) -> None:
    """Write the files that are out of date. With ``check``, raise UsageError if there are any."""
    stale = [path for path, text in texts.items() if not path.exists() or path.read_text() != text]
    if check and stale:
        raise errors.UsageError(f"out of date, run `{command}`: {', '.join(map(str, stale))}")
    for path in stale:
        path.write_text(texts[path])
