"""The contents of nftlb's start-up file, and the times at which it is written."""

import json
from pathlib import Path

import pytest

from kube_nftlb.agent.engine.nftlb.startup_file import StartupFile
from kube_nftlb.agent.engine.snapshot_file import SAVE_EVERY_S, SAVE_WITHIN_S
from tests.builders.nftlb import backend, farm


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "nftlb.json"


def saved(path: Path) -> list[str]:
    return [entry["name"] for entry in json.loads(path.read_text())["farms"]] if path.exists() else []


def save(file: StartupFile, now: float = 0, *, present: int = 1, conflict: str = "", busy: bool = False) -> None:
    file.save_if_due(now, present=present, in_conflict=lambda each: each.name == conflict, busy=busy)


def test_only_verified_farms_are_saved(path: Path) -> None:
    file = StartupFile(path)
    save(file)
    assert not path.exists()
    file.verified(farm("a"))
    file.verified(farm("b"))
    file.forget("b")
    save(file)
    assert saved(path) == ["a"]
    assert not path.with_suffix(".new").exists()


@pytest.mark.parametrize(
    ("name", "text", "has"),
    [
        ("nftlb.json", '{"farms": [{"name": "a"}]}', True),
        ("nftlb.json", '{"farms": []}', False),
        ("nftlb.json", "garbage", True),
        ("nftlb.loading", '{"farms": []}', True),
        ("nftlb.failed", '{"farms": [{"name": "a"}]}', False),
    ],
)
def test_it_tells_whether_nftlb_has_farms_to_load(path: Path, name: str, text: str, has: object) -> None:
    assert not StartupFile(path).has_farms()
    path.with_name(name).write_text(text)
    assert StartupFile(path).has_farms() is has


def test_it_is_written_only_if_a_farm_has_changed(path: Path) -> None:
    file = StartupFile(path)
    file.verified(farm("a"))
    save(file)
    path.unlink()
    file.verified(farm("a"))
    file.forget("b")
    save(file, 1000)
    file.save([farm("a")], in_conflict=lambda _: False)
    assert not path.exists()
    file.verified(farm("a", backend("pod", 2)))
    save(file, 1000)
    assert saved(path) == ["a"]


@pytest.mark.parametrize(
    ("now", "busy", "names"),
    [
        (SAVE_EVERY_S - 0.1, False, ["a"]),
        (SAVE_EVERY_S, False, ["a", "b"]),
        (SAVE_WITHIN_S - 0.1, True, ["a"]),
        (SAVE_WITHIN_S, True, ["a", "b"]),
    ],
)
def test_it_is_written_less_often_while_changes_come(path: Path, now: float, busy: object, names: list[str]) -> None:
    file = StartupFile(path)
    file.verified(farm("a"))
    save(file, 0)
    file.verified(farm("b"))
    save(file, now, present=2, busy=bool(busy))
    assert saved(path) == names


def test_while_changes_come_a_failed_write_is_not_repeated_at_once(path: Path) -> None:
    file = StartupFile(path)
    file.verified(farm("a"))
    path.with_suffix(".new").mkdir()
    with pytest.raises(IsADirectoryError):
        save(file, busy=True)
    save(file, SAVE_WITHIN_S - 1, busy=True)
    with pytest.raises(IsADirectoryError):
        save(file, SAVE_WITHIN_S, busy=True)


@pytest.mark.parametrize(("present", "names"), [(2, ["a", "b"]), (3, [])])
def test_it_is_not_written_with_most_farms_missing(path: Path, present: int, names: list[str]) -> None:
    file = StartupFile(path)
    file.verified(farm("a"))
    file.verified(farm("b"))
    save(file, present=present, busy=True)
    assert saved(path) == names


def test_a_farm_that_has_given_an_address_away_waits_for_a_quiet_moment(path: Path) -> None:
    file = StartupFile(path)
    file.verified(farm("a"))
    file.verified(farm("b"))
    save(file, present=2, conflict="a", busy=True)
    assert saved(path) == ["b"]
    save(file, SAVE_EVERY_S, present=2, conflict="a")
    assert saved(path) == ["a", "b"]


@pytest.mark.parametrize(
    ("present", "conflict", "names"), [("ab", "", "ab"), ("a", "", "ab"), ("abcd", "", "abcd"), ("abc", "c", "ab")]
)
def test_at_the_end_of_the_agent_it_also_gets_the_farms_that_are_not_verified_yet(
    path: Path, present: str, conflict: str, names: str
) -> None:
    file = StartupFile(path)
    file.verified(farm("a", backend("old", 2)))
    save(file)
    file.verified(farm("b"))
    file.save([farm(name) for name in present], in_conflict=lambda each: each.name == conflict)
    assert saved(path) == list(names)
    first = json.loads(path.read_text())["farms"][0]
    assert [each["name"] for each in first["backends"]] == ["old"], "as it was verified"


def test_a_verified_farm_that_is_missing_is_lost(path: Path) -> None:
    file = StartupFile(path)
    file.verified(farm("a"))
    assert file.lost({})
    assert not file.lost({"a": farm("a"), "b": farm("b")})
    file.forget("a")
    assert not file.lost({})
