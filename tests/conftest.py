"""The distribution of tests over processes."""

from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

_TESTS = Path(__file__).parent
_LABS = {"functional": 3, "functional/conformance": 1, "image": 1}
"""The number of labs of each kind that a small machine carries; a process has one lab for all tests of a folder."""
_ORDER = ("e2e", "functional", "image", "docs", "contract", "chart", "unit")
"""Those that take longest first: short ones fill the gaps at the end."""


class _ByLab(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no type hints
    """Files stay whole, and the files of a lab stay together, in turns by the alphabet; unit tests go one by one."""

    def _split_scope(self, nodeid: str) -> str:
        file = _TESTS.parent / nodeid.partition("::")[0]
        folder = file.parent.relative_to(_TESTS).as_posix()
        if file.name == "test_pages.py" or folder.partition("/")[0] == "unit":
            # A page has a lab of its own, and unit tests share nothing.
            return nodeid
        if folder not in _LABS:
            return str(file)
        return f"{folder} {sorted(file.parent.glob('test_*.py')).index(file) % _LABS[folder]}"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _ByLab:
    """Return the scheduler, which keeps the order of the tests."""
    config.option.loadscopereorder = False
    return _ByLab(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests by ``_ORDER``."""
    items.sort(key=lambda item: _ORDER.index(item.path.relative_to(_TESTS).parts[0]))
