"""Requests modes of a job's logs, and reports the outcomes from the store alone.

A request is a note that workers read. They store their answers with the positions of their splits,
under their tokens; a request has succeeded for a log when the owner of each split says so.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from headrace.connector.stores.note_copy import NoteCopy
from headrace.plugins.config.realtime_options import LOG
from headrace.plugins.stores.kept_modes import (
    ALL_LOGS,
    NO_SUCH_LOG,
    AskedMode,
    KeptModes,
    LogMode,
    ModeAnswer,
    ModeOutcome,
    ModeRequest,
    Place,
    asked_of,
    last_request,
    newest,
)

_WORST_FIRST: Final = (
    ModeOutcome.FAILED,
    ModeOutcome.FELL_BACK,
    ModeOutcome.REFUSED,
    ModeOutcome.SUCCEEDED,
)
Kept = Sequence[KeptModes | None]
"""The modes that the owner of each split stored."""


class ModeChange(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a request for the log `node`, or for all logs that are not known yet.

    `begin` is the committed place of the log at the request, `end` that at the answer.
    """

    request: int
    node: str
    asked: str
    outcome: ModeOutcome
    reason: str
    begin: Place
    end: Place
    asked_ms: int
    ended_ms: int | None


class NodeMode(msgspec.Struct, frozen=True, kw_only=True):
    """The mode in which some splits read the log `node`; `asked` is empty without a request.

    It is the one that their owners stored last. Without a node it is the mode of all logs.
    """

    node: str
    mode: str
    asked: str
    since_ms: int | None
    reason: str
    splits: int
    of_splits: int


class JobModes:
    """Requests and modes of jobs. Use it from the thread of *notes* only."""

    def __init__(self, notes: NoteCopy) -> None:
        """Read nothing yet."""
        self._notes = notes

    def ask(
        self, job: str, mode: str, *, node: str, places: Mapping[str, Place], now_ms: int
    ) -> int:
        """Request a mode; return the number of the request. Raises StoreUnavailableError."""
        board, store = self._notes.board, self._notes.store(job)
        kept = list(store.modes().values())
        with self._notes.transaction():
            known = [board.wanted(job).modes, *(each.asked for each in kept if each)]
            number = 1 + max(map(last_request, known))
            board.ask_mode(job, node, AskedMode(number, mode))
        asked = ModeRequest(request=number, node=node, mode=mode, asked_ms=now_ms, places=places)
        store.mode_requests().update(
            lambda before: sorted(
                [*(_archived(each, kept) for each in before), asked], key=lambda r: r.request
            )
        )
        return number

    def changes(self, job: str) -> Sequence[ModeChange]:
        """Return the outcomes of the last requests, newest first, by log."""
        store = self._notes.store(job)
        kept = list(store.modes().values())
        found: list[ModeChange] = []
        later: list[ModeRequest] = []
        for request in reversed(store.mode_requests().all()):
            found += [_change(request, node, kept, later) for node in _nodes(request, kept)]
            later.append(request)
        return found

    def modes(self, job: str) -> Sequence[NodeMode]:
        """Return the modes of the logs; empty for a job without splits."""
        kept = list(self._notes.store(job).modes().values())
        asked: Mapping[str, AskedMode] = self._notes.board.wanted(job).modes
        for each in kept:
            asked = newest(asked, each.asked if each else {})
        nodes = _nodes_of(kept) or ([ALL_LOGS] if kept else [])
        return [mode for node in nodes for mode in _node_modes(node, kept, asked)]


def least_places(described: Iterable[tuple[str, Place]]) -> Mapping[str, Place]:
    """Return, for each log by name, the earliest place of any split in it."""
    found: dict[str, Place] = {}
    for node, place in described:
        found[node] = min(found.get(node, place), place, key=_order)
    return found


def _order(place: Place) -> tuple[int, ...]:
    return tuple(part if isinstance(part, int) else 0 for part in place.values())


def _nodes_of(kept: Kept) -> list[str]:
    return sorted({
        node
        for each in kept if each
        for node, mode in each.logs.items()
        if mode.answer.reason != NO_SUCH_LOG
    })  # fmt: skip


def _nodes(request: ModeRequest, kept: Kept) -> Sequence[str]:
    """Return the logs that a request is about, as far as they are known."""
    if request.node != ALL_LOGS:
        return [request.node]
    return sorted({*request.answers, *_nodes_of(kept)}) or [ALL_LOGS]


def _change(
    request: ModeRequest, node: str, kept: Kept, later: Sequence[ModeRequest]
) -> ModeChange:
    answer = request.answers.get(node) or _answer(request.request, node, kept)
    if answer.outcome is ModeOutcome.PENDING:
        # The last one in `later` is the next request.
        next_one = [each for each in later if each.node in (ALL_LOGS, node)][-1:]
        for each in next_one:
            reason = f"request {each.request}"
            answer = ModeAnswer(ModeOutcome.SUPERSEDED, reason, each.asked_ms)
    return ModeChange(
        request=request.request,
        node=node,
        asked=request.mode,
        outcome=answer.outcome,
        reason=answer.reason,
        begin=request.places.get(node, {}),
        end=answer.place,
        asked_ms=request.asked_ms,
        ended_ms=answer.ended_ms,
    )


def _answer(request: int, node: str, kept: Kept) -> ModeAnswer:
    """Return the answer of all owners of splits; it is pending while one has none."""
    answers: list[ModeAnswer] = []
    for each in kept:
        mode = each.logs.get(node) if each else None
        if mode is None or mode.request != request:
            return ModeAnswer()
        answers.append(mode.answer)
    if not answers or any(answer.outcome is ModeOutcome.PENDING for answer in answers):
        return ModeAnswer()
    worst = min(answers, key=lambda answer: _WORST_FIRST.index(answer.outcome))
    ended_ms = max(answer.ended_ms or 0 for answer in answers)
    places = [answer.place for answer in answers if answer.place]
    return replace(worst, ended_ms=ended_ms, place=min(places, key=_order, default={}))


def _archived(request: ModeRequest, kept: Kept) -> ModeRequest:
    """Return a request with its present answers: those to the next request replace them."""
    answers = {node: _answer(request.request, node, kept) for node in _nodes(request, kept)}
    ended = {n: a for n, a in answers.items() if a.outcome is not ModeOutcome.PENDING}
    return replace(request, answers={**ended, **request.answers})


def _node_modes(node: str, kept: Kept, asked: Mapping[str, AskedMode]) -> Sequence[NodeMode]:
    """Return the modes in which splits read a log: several if their owners differ."""
    without = LogMode(mode=LOG)  # An owner that never changed its mode stores none.
    shown = [(each.logs.get(node) if each else None) or without for each in kept]
    last = asked_of(asked, node)
    found = []
    for mode in sorted({each.mode for each in shown}):
        alike = [each for each in shown if each.mode == mode]
        newest_one = max(alike, key=lambda each: each.since_ms or 0)
        found.append(
            NodeMode(
                node=node,
                mode=mode,
                asked=last.mode if last else "",
                since_ms=newest_one.since_ms,
                reason=newest_one.reason,
                splits=len(alike),
                of_splits=len(shown),
            )
        )
    return found
