from typing import Literal

import pytest

from kube_nftlb import names
from kube_nftlb.environment import NumberRanges
from kube_nftlb.operator.farms.builder import Profile, build
from kube_nftlb.operator.model.permissions import Permissions
from kube_nftlb.operator.model.pods import parse_pod, slim
from kube_nftlb.settings import OperatorSettings
from tests.builders import raw_pod, service

SOME = Permissions(
    marks=NumberRanges(((0x10000, 0xF0000), (7, 7)), "0x10000-0xf0000,7"),
    queues=NumberRanges(((0, 3),), "0-3"),
    helpers=frozenset(["ftp", "sip"]),
)


@pytest.mark.parametrize(
    ("key", "value", "permissions", "message"),
    [
        ("mark", "0x1000", Permissions(), "the mark 0x1000 is not allowed; the administrator allows none; it is"),
        ("mark", "0x20000", SOME, None),
        ("mark", "0x100000", SOME, "the mark 0x100000 is not allowed; the administrator allows 0x10000-0xf0000,7; it"),
        ("queue", "3", Permissions(), "the queue 3 is not allowed; the administrator allows none; it is ignored"),
        ("queue", "3", SOME, None),
        ("queue", "4", SOME, "the queue 4 is not allowed; the administrator allows 0-3; it is ignored"),
        ("helper", "ftp", Permissions(), None),
        ("helper", "ftp", SOME, None),
        ("helper", "irc", SOME, "the helper irc is not allowed; the administrator allows ftp, sip; none is used"),
        ("helper", "ftp", Permissions(helpers=frozenset()), "helper ftp is not allowed; the administrator allows none"),
    ],
)
def test_an_annotation_gets_what_the_administrator_allows(
    key: str, value: str, permissions: Permissions, message: str | None
) -> None:
    built = build(service(annotations={key: value, "mode": "dnat"}), profile=Profile(permissions=permissions))
    spec = built.farms[0].spec
    assert spec["mode"] == "dnat", "the other annotations apply"
    assert (spec.get(key, "none") == "none") == (message is not None)
    told = [problem.message for problem in built.problems]
    assert len(told) == (message is not None)
    if message is not None:
        assert told[0].startswith(f"{names.ANNOTATION_PREFIX}{key}: ")
        assert message in told[0]


@pytest.mark.parametrize(("value", "taken"), [("7", True), ("8", False)])
def test_a_pod_gets_the_marks_that_are_allowed(value: str, taken: bool) -> None:
    kept = slim(raw_pod(annotations={"mark": value}))
    assert kept is not None
    built = build(service(), ["a"], lambda _: parse_pod(kept).given, Profile(permissions=SOME))
    assert [each["mark"] for each in built.farms[0].spec["backendsFrom"][0]["overrides"]] == [7] * taken
    assert ["the mark 0x8 is not allowed" in problem.message for problem in built.problems] == [True] * (not taken)


@pytest.mark.parametrize(
    ("default", "asked", "engines", "served_by"),
    [
        ("nftlb", "nftables", {"nftlb", "nftables"}, "nftables"),
        ("nftlb", "nftables", {"nftlb"}, "nftlb"),
        ("nftlb", "nftables", set(), "nftlb"),
        ("nftables", "nftlb", {"nftables"}, "nftables"),
        ("auto", "nftlb", {"nftables"}, "nftables"),
    ],
)
def test_an_annotation_chooses_among_the_engines_that_are_allowed(
    default: Literal["nftlb", "nftables", "auto"], asked: str, engines: set[str], served_by: str
) -> None:
    profile = Profile(engine=default, permissions=Permissions(engines=frozenset(engines)))
    built = build(service(annotations={"engine": asked}), profile=profile)
    assert [each.spec["engine"] for each in built.farms] == [served_by]
    told = [problem.message for problem in built.problems]
    assert [f"the engine {asked} is not allowed; the administrator allows" in each for each in told] == (
        [] if asked in engines else [True]
    )


def test_by_default_no_marks_and_queues_are_allowed_and_all_helpers() -> None:
    settings = OperatorSettings.from_environment({})
    asked = Permissions(
        settings.source_address_ranges,
        settings.annotation_marks,
        settings.annotation_queues,
        settings.annotation_helpers,
        settings.annotation_engines,
    )
    assert asked == Permissions()


def test_settings_name_numbers_ranges_and_words() -> None:
    settings = OperatorSettings.from_environment(
        {
            "KUBE_NFTLB_ANNOTATION_MARKS": "0x10000-0xf0000,7",
            "KUBE_NFTLB_ANNOTATION_QUEUES": "all",
            "KUBE_NFTLB_ANNOTATION_HELPERS": "none",
            "KUBE_NFTLB_ANNOTATION_ENGINES": "nftlb",
        }
    )
    assert settings.annotation_marks == SOME.marks
    assert settings.annotation_queues.include(65535)
    assert settings.annotation_helpers == frozenset()
    assert settings.annotation_engines == {"nftlb"}
