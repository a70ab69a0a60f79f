"""How tests are shared out where several processes run them."""

from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

_TESTS = Path(__file__).parent
_LABS = {"functional": 4, "functional/conformance": 2, "image": 1}
"""How many labs of each kind a small machine carries; a lab serves all tests of its folder that run in one process."""


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
    """Decide which tests a process gets."""
    return _ByLab(config, log)
