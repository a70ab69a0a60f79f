"""Events that are only recorded."""

from collections.abc import Iterable

from kube_nftlb.kube.event_limits import Finding
from kube_nftlb.kube.events import Events, Subject


class RecordingEvents(Events):
    """What is reported of objects, each as its kind and name, such as ``Service web``."""

    def __init__(self) -> None:
        self.reports: list[tuple[Subject, list[Finding]]] = []
        """All, in their order."""
        self.reported: dict[tuple[str, str], list[tuple[str, str]]] = {}
        """The newest reasons and messages, by the object and what of it is meant."""
        self.news: list[tuple[str, str, str]] = []
        """What was resolved: the object, the reason and the message."""

    def report(self, subject: Subject, findings: Iterable[Finding], about: str = "") -> None:
        found = list(findings)
        self.reports.append((subject, found))
        self.reported[_shown(subject), about] = [(finding.reason, finding.message) for finding in found]

    def report_resolved(self, subject: Subject, reason: str, message: str) -> None:
        self.news.append((_shown(subject), reason, message))


def _shown(subject: Subject) -> str:
    return f"{subject.resource.kind} {subject.name}"
