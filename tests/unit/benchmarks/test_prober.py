from benchmarks.prober import Outcomes


def told(*ended):
    outcomes = Outcomes()
    for number, success in enumerate(ended):
        outcomes.begin(number * 10)
        if success is not None:
            outcomes.end(number, success, number * 10 + 1)
    return outcomes


def test_the_first_that_is_established_counts():
    assert told(False, False, True, True).first_success == 21
    assert told(False, None).first_success is None


def test_it_refuses_since_the_first_of_three_failures_in_a_row():
    assert told(True, True, False, False, False).refuses_since() == 20


def test_it_may_still_answer_while_connections_are_under_way():
    assert told(True, None, False, False, False).refuses_since() is None
    assert told(True, False, False).refuses_since() is None


def test_a_success_among_failures_begins_anew():
    assert told(True, False, False, True, False, False, False).refuses_since() == 40
    assert told(True, False, False, False, True).refuses_since() is None
