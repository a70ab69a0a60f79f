"""The records of a run of Kubernetes' tests, and the page that is made of them."""

import re
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest

from kube_nftlb import errors
from tests.upstream import __main__ as main
from tests.upstream import groups, images, records, report, suite
from tests.upstream.records import FAILED, PASSED, SKIPPED, Outcome, Run

ROOT = Path(__file__).parents[3]
PUBLISHED = ROOT / "tests/upstream/published"
SERVICES = "[sig-network] Services should serve"


def spec(name: str, state: str, message: str = "") -> dict[str, Any]:
    return {
        "ContainerHierarchyTexts": ["[sig-network] Services"],
        "LeafNodeType": "It",
        "LeafNodeText": name,
        "State": state,
        "RunTime": 1_500_000_000,
        **({"Failure": {"Message": message}} if message else {}),
    }


def run(subject: str, *outcomes: Outcome) -> Run:
    description = {
        "began": "2026-01-01T00:00:00Z",
        "commit": "abc",
        "kernel": "6.18",
        "cores": 2,
        "load_average": [0.4, 0.3, 0.2],
        "tests": 2,
        "minutes": 3,
    }
    return Run(subject, "v1.36.3", [description], list(outcomes))


def test_the_page_matches_the_records() -> None:
    made = report.page(report.read(PUBLISHED))
    assert made == (ROOT / "docs" / report.PAGE).read_text(), (
        f"python -m {report.__name__} {PUBLISHED} --docs docs makes it"
    )


def test_outcomes_are_those_of_tests_that_were_run() -> None:
    setup = {**spec("", "passed"), "LeafNodeType": "BeforeSuite"}
    specs = [
        setup,
        spec("b", "timedout", "\n  too late for svc-1234\nand more"),
        spec("a", "passed"),
        spec("skips itself", "skipped", "needs IPVS"),
        spec("not selected", "skipped"),
        spec("stopped by hand", "interrupted", "interrupted"),
    ]
    assert records.outcomes([{"SpecReports": specs}]) == [
        Outcome("[sig-network] Services a", PASSED, 1.5),
        Outcome("[sig-network] Services b", FAILED, 1.5, "too late for ..."),
        Outcome("[sig-network] Services skips itself", SKIPPED, 1.5, "needs IPVS"),
    ]


def test_what_passes_alone_has_passed_at_the_second_try() -> None:
    first = run("kube-proxy", Outcome("a", FAILED, 9, "late"), Outcome("b", PASSED, 1), Outcome("c", FAILED, 1, "no"))
    again = run("kube-proxy", Outcome("a", PASSED, 2), Outcome("c", FAILED, 3, "no"))
    assert records.retried(first, again).outcomes == [
        Outcome("a", PASSED, 2, tries=2),
        Outcome("b", PASSED, 1),
        Outcome("c", FAILED, 3, "no", tries=2),
    ]


def test_a_later_run_replaces_the_outcomes_of_its_tests_alone(tmp_path: Path) -> None:
    records.write(tmp_path, run("kube-proxy", Outcome("a", FAILED, 1, "no"), Outcome("b", PASSED, 1)))
    old = records.read(tmp_path, "kube-proxy")
    both = records.merged(old, run("kube-proxy", Outcome("a", PASSED, 2)))
    assert both.outcomes == [Outcome("a", PASSED, 2), Outcome("b", PASSED, 1)]
    assert len(both.runs) == 2


def test_a_defect_is_a_failure_of_ours_alone() -> None:
    runs = [
        run("kube-proxy", Outcome("a", PASSED, 1), Outcome("b", FAILED, 1), Outcome("c", PASSED, 1)),
        run("kube-nftlb-nftlb", Outcome("a", FAILED, 1), Outcome("b", FAILED, 1), Outcome("d", FAILED, 1)),
    ]
    assert report.defects(runs) == ["a", "d"], "also one that kube-proxy was not tried with"


def test_the_page_tells_which_commits_had_changes() -> None:
    made, words = run("kube-proxy", Outcome("a", PASSED, 1)), "A commit with `-dirty`"
    assert words not in report.page([made])
    made.runs[0]["commit"] = "abc-dirty"
    assert words in report.page([made])


def test_a_run_of_no_test_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "_run", lambda *_: run("kube-proxy"))
    with pytest.raises(errors.LabError, match=f"no test was run: see {tmp_path}/log.txt"):
        suite.run(Mock(), "kube-proxy", groups.GROUPS, 1, tmp_path)


def test_a_cluster_that_was_kept_by_hand_leaves_the_records_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["upstream", "--hold", "--subjects", "kube-proxy", "--out", str(tmp_path)])
    monkeypatch.setattr("tests.upstream.cluster.running", MagicMock())
    monkeypatch.setattr("tests.upstream.progress.time", Mock(**{"sleep.side_effect": KeyboardInterrupt}))
    assert main.main() == 0
    assert list(tmp_path.iterdir()) == []


def test_a_choice_of_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["upstream", "--subjects", "unknown"])
    with pytest.raises(SystemExit):
        main.main()


def test_the_page_tells_failures_of_ours_from_those_of_both_and_what_was_not_run() -> None:
    ours, both, skipped = (f"{SERVICES} {word}" for word in ("ours", "both", "skipped"))
    made = report.page(
        [
            run(
                "kube-proxy",
                Outcome(ours, PASSED, 1),
                Outcome(both, FAILED, 1, "x | y"),
                Outcome(skipped, SKIPPED, 0, "no"),
            ),
            run("kube-nftlb-nftlb", Outcome(ours, FAILED, 1, "late"), Outcome(both, FAILED, 1, "x | y")),
        ]
    )
    ours_first = re.compile(
        r"### Tests that pass with kube-proxy\n.*ours.*### Tests that fail with kube-proxy too\n.*both", re.DOTALL
    )
    assert ours_first.search(made)
    assert "| Services | 1 passed, 1 failed, 1 skipped | 2 failed |" in made
    assert "- kube-nftlb (engine nftlb): 1 of Services, Conntrack, " in made
    assert "| DNS | not run | not run |" in made
    assert "it says: x \\| y" in made
    assert "| no | Services should serve skipped |" in made
    assert "- kube-nftlb (engine nftables): Services, Conntrack, " in made


@pytest.mark.parametrize(
    ("test", "name"),
    [
        ("[sig-network] Services should serve a basic endpoint from pods [Conformance]", "services"),
        ("[sig-network] LoadBalancers ExternalTrafficPolicy: Local [Feature:LoadBalancer] works", "loadbalancers"),
        ("[sig-network] [Feature:IPv6DualStack] Granular Checks", "dual-stack"),
        ("[sig-network] EndpointSliceMirroring should mirror", "endpointslice"),
        ("[sig-network] NetworkPolicy denies", None),
        ("[sig-apps] Services are not these", None),
    ],
)
def test_a_test_belongs_to_the_group_that_its_name_begins_with(test: str, name: str | None) -> None:
    group = groups.of(test)
    assert (group.name if group else None) == name
    assert bool(re.search(groups.focus(groups.GROUPS), test)) == (name is not None)


def test_images_are_known_by_the_name_of_their_repository() -> None:
    listed = (
        "registry.k8s.io/e2e-test-images/agnhost:2.55\nregistry.k8s.io/e2e-test-images/agnhost:2.63.0\nnot an image\n"
    )
    assert list(images.tags(listed)) == ["agnhost"]
    assert len(images.tags(listed)["agnhost"]) == 2


def test_the_page_says_what_passed_at_the_second_try_alone() -> None:
    found = Outcome(f"{SERVICES} a", PASSED, 1, tries=2), Outcome(f"{SERVICES} b", PASSED, 1)
    assert "| 2 passed (1 at the second try) |" in report.page([run("kube-proxy", *found)])
