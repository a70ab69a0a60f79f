"""The start-up file while nftlb loads it."""

from pathlib import Path

from kube_nftlb.nftlb import loading


def test_a_file_that_was_loaded_has_its_name_again(tmp_path: Path) -> None:
    file = tmp_path / "nftlb.json"
    file.write_text("farms")
    loaded = loading.begin(file)
    assert loaded is not None
    assert loaded.read_text() == "farms"
    loading.done(file)
    assert file.read_text() == "farms"
    assert [each.name for each in tmp_path.iterdir()] == ["nftlb.json"]


def test_a_file_over_which_nftlb_ended_is_not_loaded_again(tmp_path: Path) -> None:
    file = tmp_path / "nftlb.json"
    file.write_text("deadly")
    assert loading.begin(file)
    assert loading.begin(file) is None
    loading.done(file)
    assert not file.exists()
    file.write_text("without the farm at fault")
    assert loading.begin(file)
    loading.done(file)
    assert file.read_text() == "without the farm at fault"
    loading.remove(file)
    assert not list(tmp_path.iterdir())


def test_a_file_that_was_written_meanwhile_is_the_newer_one(tmp_path: Path) -> None:
    file = tmp_path / "nftlb.json"
    file.write_text("old")
    loading.begin(file)
    file.write_text("new")
    loading.done(file)
    assert file.read_text() == "new"
    assert len(list(tmp_path.iterdir())) == 1


def test_without_a_file_nftlb_starts_empty(tmp_path: Path) -> None:
    assert loading.begin(tmp_path / "nftlb.json") is None
    loading.done(tmp_path / "nftlb.json")


def test_a_file_that_cannot_be_renamed_is_loaded_all_the_same(tmp_path: Path) -> None:
    file = tmp_path / "nftlb.json"
    file.write_text("farms")
    (tmp_path / "nftlb.loading").mkdir()
    (tmp_path / "nftlb.failed").write_text("an earlier one")
    assert loading.begin(file) == file
