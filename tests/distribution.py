"""Which tests stay together in one process, and which start first. Reads the tests' files."""

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
_STAGES = (("e2e", "image"), ("docs", "functional"), ("contract", "chart", "unit"))
"""First what is one chain of tests, longer than all else; last short tests, which fill the gaps at the end.

A process that has run a contract test stays in a network namespace of its own, where it reaches no lab of others.
"""
_ORDER = [suite for stage in _STAGES for suite in stage]
"""The order of what is not known to be slow, within its stage."""
_SHARING = ("functional", "functional/conformance", "functional/features")
"""The folders whose tests share a lab and disturb nobody: any process may run any of them."""
_FEATURES = (ROOT / "tests/functional/features", ROOT / "tests/e2e")
_DISTURBING = {
    "functional/disturbing": ("disturbed",),
    "functional/faults": ("disturbed",),
    "functional/features/disturbing": ("disturbed by features", "disturbed by more features"),
    "functional/features/announcing": ("announcing",),
    "functional/features/announcing_bgp": ("bgp",),
    "functional/features/gateway": ("gateway",),
    "functional/features/operations": ("operations",),
    "functional/conformance/disturbing": ("conformance disturbed",),
    "e2e": ("e2e",),
}
"""The labs of tests that disturb each other, among which a folder's files take turns; a process runs all of a lab's."""


def together(nodeid: str) -> str:
    """Return what has the same name for all tests that stay together: a lab, a file, or the test by itself."""
    return _together(nodeid.partition("::")[0]) or nodeid


@functools.cache
def _together(file: str) -> str:
    """Return the lab or the file whose tests stay together, or nothing if tests of this file go one by one."""
    path = ROOT / file
    folder = _folder(file)
    if labs_of_folder := _DISTURBING.get(folder):
        return labs_of_folder[sorted(path.parent.glob("test_*.py")).index(path) % len(labs_of_folder)]
    if folder == "unit/benchmarks":
        # They read and compute the same of the published records.
        return file
    if folder.partition("/")[0] == "unit" or path.name == "test_pages.py" or shares_a_lab(file):
        return ""
    return file


def is_feature(file: Path) -> bool:
    """Return True for what kube-nftlb does beyond what any service proxy must, and its installation on real nodes."""
    return any(file.is_relative_to(folder) for folder in _FEATURES)


def shares_a_lab(file: str) -> bool:
    """Return True for a file whose tests share a lab with others, which any of them may start."""
    return _folder(file) in _SHARING and not _has_fixtures_of_its_own(file)


def order(nodeids: Iterable[str], seconds: Mapping[str, int]) -> Callable[[str], tuple[int, int, int, bool]]:
    """Return the key by which to sort tests: in a stage first those that take longest with all that stays together."""
    totals: Counter[str] = Counter()
    for nodeid in nodeids:
        totals[together(nodeid)] += seconds.get(nodeid, 0)

    def key(nodeid: str) -> tuple[int, int, int, bool]:
        file = nodeid.partition("::")[0]
        suite = _folder(file).partition("/")[0]
        stage = next(number for number, suites in enumerate(_STAGES) if suite in suites)
        return stage, -totals[together(nodeid)], _ORDER.index(suite), shares_a_lab(file)

    return key


def _folder(file: str) -> str:
    return Path(file).parent.relative_to("tests").as_posix()


@functools.cache
def _has_fixtures_of_its_own(file: str) -> bool:
    text = (ROOT / file).read_text()
    return any(f'scope="{scope}"' in text for scope in ("module", "package"))
