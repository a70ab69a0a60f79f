from pathlib import Path

import pytest

from kube_nftlb import files


def test_a_file_that_is_replaced_is_one_text_or_the_other_and_has_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "farms.json"
    files.replace(path, "old", mode=0o600)
    with path.open() as reading:
        files.replace(path, "new", mode=0o600)
        assert reading.read() == "old"
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_written_beside_it_leaves_it_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "farms.json"
    files.replace(path, "old")
    path.with_suffix(".new").mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        files.replace(path, "new")
    assert path.read_text() == "old"
