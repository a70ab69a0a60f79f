"""The programs that have changed nftables, and the farms that are compared after that."""

from kube_nftlb.agent.sync.foreign_changes import Audit, ForeignChanges


class Watch:
    def __init__(self) -> None:
        self.names: set[str] = set()

    def others(self) -> set[str]:
        names, self.names = self.names, set()
        return names

    @property
    def pending(self) -> bool:
        return bool(self.names)


def test_changes_by_others_are_suspect_until_everything_was_compared() -> None:
    watch = Watch()
    foreign = ForeignChanges(watch)
    foreign.notice()
    assert (foreign.suspected, foreign.table_suspected, foreign.programs) == (False, False, set())
    watch.names = {"nft"}
    assert foreign.pending
    foreign.notice()
    assert not foreign.pending
    watch.names = {"firewalld"}
    foreign.notice()
    foreign.notice()
    assert (foreign.suspected, foreign.table_suspected) == (True, True)
    assert foreign.programs == {"nft", "firewalld"}
    foreign.compared()
    assert not foreign.suspected
    watch.names = {"iptables"}
    foreign.notice()
    assert (foreign.suspected, foreign.programs) == (True, {"iptables"})


def test_an_audit_begins_some_time_after_a_change() -> None:
    audit = Audit(every_s=60, batch=2)
    assert not audit.due(1000)
    audit.changed(0)
    assert (audit.due(59), audit.due(60)) == (False, True)


def test_a_later_change_does_not_put_an_audit_off() -> None:
    audit = Audit(every_s=60, batch=2)
    audit.changed(0)
    audit.changed(50)
    assert audit.due(60)


def test_an_audit_can_begin_at_once() -> None:
    audit = Audit(every_s=60, batch=2)
    audit.changed(0)
    audit.begin(1)
    assert audit.due(1)


def test_an_audit_takes_all_farms_a_few_at_a_time() -> None:
    audit = Audit(every_s=60, batch=2)
    audit.start("abc")
    assert [audit.take(), audit.take(), audit.take()] == [["a", "b"], ["c"], []]


def test_an_audit_in_progress_is_ended_before_the_next() -> None:
    audit = Audit(every_s=60, batch=2)
    audit.start("abc")
    audit.begin(0)
    assert not audit.due(0)
    audit.take()
    assert not audit.due(0)
    audit.take()
    assert audit.due(0)


def test_an_audit_that_has_begun_is_no_longer_due() -> None:
    audit = Audit(every_s=60, batch=2)
    audit.begin(0)
    audit.start("a")
    audit.take()
    assert not audit.due(1000)
