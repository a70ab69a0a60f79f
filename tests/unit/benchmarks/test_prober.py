from benchmarks.prober import Outcomes


def outcomes(*ended: bool | None) -> Outcomes:
    outcomes = Outcomes()
    for number, success in enumerate(ended):
        outcomes.begin(number * 10)
        if success is not None:
            outcomes.end(number, success, number * 10 + 1)
    return outcomes


def test_the_first_established_connection_counts() -> None:
    assert outcomes(False, False, True, True).first_success == 21
    assert outcomes(False, None).first_success is None


def test_it_refuses_since_the_first_of_three_failures_in_a_row() -> None:
    assert outcomes(True, True, False, False, False).refuses_since() == 20


def test_it_may_still_answer_while_connections_are_in_progress() -> None:
    assert outcomes(True, None, False, False, False).refuses_since() is None
    assert outcomes(True, False, False).refuses_since() is None


def test_a_success_resets_the_failures() -> None:
    assert outcomes(True, False, False, True, False, False, False).refuses_since() == 40
    assert outcomes(True, False, False, False, True).refuses_since() is None
