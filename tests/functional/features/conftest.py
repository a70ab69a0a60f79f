"""What kube-nftlb does beyond what any service proxy must: `make test-rest` runs these tests, `make test` does not."""

from pathlib import Path

import pytest

_FOLDER = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_FOLDER):
            item.add_marker(pytest.mark.feature)
