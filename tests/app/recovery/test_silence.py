"""Silence: what counts as time without a sign of life, and what does not."""

from __future__ import annotations

from tierfs.app.recovery.silence import Evidence, Silence

SAME = Evidence(7, 1, "a")


def test_time_counts_between_looks_that_show_the_same() -> None:
    silence = Silence(10)
    assert silence.look(SAME, 0, 1)
    assert silence.silent_s == 0, "a first look shows only what is there"
    assert not silence.look(SAME, 5, 6)
    assert not silence.look(SAME, 11, 11)
    assert silence.silent_s == 9, "from the end of one look to the start of the next"


def test_any_difference_is_a_sign_of_life() -> None:
    for other in (Evidence(8, 1, "a"), Evidence(7, 2, "a"), Evidence(7, 1, "b"), Evidence(7, 1)):
        silence = Silence(10)
        silence.look(SAME, 0, 0)
        silence.look(SAME, 5, 5)
        assert silence.look(other, 9, 9)
        assert silence.silent_s == 0


def test_time_without_a_look_that_succeeded_does_not_count() -> None:
    silence = Silence(10)
    silence.look(SAME, 0, 0)
    silence.look(SAME, 5, 5)
    silence.miss()
    silence.look(SAME, 9, 9)
    assert silence.silent_s == 5
    silence.look(SAME, 12, 12)
    assert silence.silent_s == 8


def test_a_pause_of_this_host_counts_as_one_look() -> None:
    silence = Silence(10)
    silence.look(SAME, 0, 0)
    silence.look(SAME, 3600, 3600)
    assert silence.silent_s == 10


def test_a_restart_forgets() -> None:
    silence = Silence(10)
    silence.look(SAME, 0, 0)
    silence.look(SAME, 5, 5)
    silence.restart()
    assert silence.look(SAME, 6, 6)
    assert silence.silent_s == 0
