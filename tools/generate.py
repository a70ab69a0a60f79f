"""Write the files that are generated from the code, or check that they are up to date.

``python -m tools.generate [--check] [crds] [reference] [chart]`` in the folder of the project; without names, all.
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from kube_nftlb.api.schema import crd
from tools import chart, metrics_page, reference_page, settings_page

_CHART: Final = Path("charts/kube-nftlb")


def crds() -> dict[Path, str]:
    """Return the CustomResourceDefinitions, by file."""
    # A chart can only include files from its own folder, so it has copies.
    folders = (Path("crds"), _CHART / "files/crds")
    return {
        folder / name: crd.render(definition) for name, definition in crd.definitions().items() for folder in folders
    }


def pages() -> dict[Path, str]:
    """Return the pages about fields, annotations, settings and metrics, by file."""
    docs = Path("docs")
    return {
        docs / "reference.md": reference_page.page(),
        docs / "settings.md": settings_page.page(),
        docs / "metrics.md": metrics_page.page(),
    }


TARGETS: Final[Mapping[str, Callable[[], dict[Path, str]]]] = {
    "crds": crds,
    "reference": pages,
    "chart": lambda: chart.texts(_CHART),
}
"""What can be generated, by the target of the Makefile."""


def main() -> int:
    """Generate, or check. Return the exit status: 1 if a file is out of date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, []], help="default: all")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is out of date")
    options = parser.parse_args()
    failed = False
    for target in options.targets or TARGETS:
        texts = TARGETS[target]()
        stale = [path for path, text in texts.items() if not path.exists() or path.read_text() != text]
        if options.check and stale:
            print(f"out of date, run `make {target}`: {', '.join(map(str, stale))}", file=sys.stderr)
            failed = True
        elif not options.check:
            for path in stale:
                path.write_text(texts[path])
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
