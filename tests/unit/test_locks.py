"""The two lock files: the image has the versions that were tested."""

import re
import tomllib
from pathlib import Path

_CHECKOUT = Path(__file__).parents[2]


def pinned(name: str) -> dict[str, str]:
    lines = (_CHECKOUT / name).read_text().splitlines()
    return {match[1]: match[2] for line in lines if (match := re.match(r"([a-z0-9.-]+)==(\S+)", line))}


def test_the_image_has_the_versions_that_are_tested() -> None:
    tested = pinned("requirements.lock")
    assert {name: tested.get(name) for name in pinned("requirements-image.lock")} == pinned("requirements-image.lock")


def test_the_image_has_all_that_is_needed_and_no_tools() -> None:
    project = tomllib.loads((_CHECKOUT / "pyproject.toml").read_text())
    in_image = pinned("requirements-image.lock").keys()

    def names(requirements: list[object]) -> set[str]:
        return {re.split(r"[<>=\[; ]", text)[0].lower() for text in requirements if isinstance(text, str)}

    assert names(project["project"]["dependencies"]) <= in_image
    assert not names(project["dependency-groups"]["dev"]) & in_image
