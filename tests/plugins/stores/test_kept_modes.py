"""Which requests for a mode count, and which answers stay."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.plugins.stores.kept_modes import (
    AskedMode,
    KeptModes,
    LogMode,
    ModeAnswer,
    ModeOutcome,
    asked_of,
    last_request,
    newest,
)

LOGS = ("n1", "n2")
# As the command service makes them: each number is of one request.
requests = st.lists(st.tuples(st.sampled_from(("", *LOGS)), st.sampled_from(("log", "realtime"))))
PLACES = {"n1": {"offset": 5}}
DONE = ModeAnswer(ModeOutcome.SUCCEEDED, "", 7, {"offset": 3})


@given(requests, st.data())
def test_the_newest_request_counts(made: list[tuple[str, str]], data: st.DataObject) -> None:
    """However requests are put together, for each log it is the last one that is about it."""
    given = [{log: AskedMode(number, mode)} for number, (log, mode) in enumerate(made, 1)]
    asked: dict[str, AskedMode] = {}
    for each in data.draw(st.permutations(given)):
        asked = newest(asked, each)

    assert len(made) == last_request(asked)
    for log in LOGS:
        about = [each for one in given for name, each in one.items() if name in ("", log)]
        assert (about[-1] if about else None) == asked_of(asked, log)


def test_an_answer_stays() -> None:
    """Another owner answers only what has no answer yet, at the committed place."""
    mine = ModeAnswer(ModeOutcome.FELL_BACK, "backlog", 9)
    now = KeptModes({}, {"n1": LogMode(mode="log", request=2, answer=mine)})
    before = KeptModes({}, {"n1": LogMode(mode="realtime", request=2, answer=DONE)})
    pending = KeptModes({}, {"n1": LogMode(mode="realtime", request=2)})
    older = KeptModes({}, {"n1": LogMode(mode="realtime", request=1, answer=DONE)})

    kept = now.after(before, PLACES).logs["n1"]
    assert ("log", DONE) == (kept.mode, kept.answer)
    for known in (None, pending, older):
        kept = now.after(known, PLACES).logs["n1"]
        assert (mine.outcome, {"offset": 5}) == (kept.answer.outcome, kept.answer.place)


def test_an_owner_that_has_not_heard_keeps_a_later_answer() -> None:
    """A request that it does not know yet is not forgotten."""
    now = KeptModes({}, {"n1": LogMode(mode="log", request=1, answer=DONE)})
    later = KeptModes({}, {"n1": LogMode(mode="realtime", request=2, answer=DONE)})

    assert (2, DONE) == (
        now.after(later, PLACES).logs["n1"].request,
        now.after(later, PLACES).logs["n1"].answer,
    )
