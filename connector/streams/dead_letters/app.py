"""Watches the topic of dead letters: counts by table, code and time."""

from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping, MutableMapping
from typing import Any, Final, NamedTuple

import faust
import msgspec
import structlog
from faust.streams import Stream
from faust.web import Request, Response, View

from headrace.connector.streams.connection import RAW, table_of_bytes
from headrace.connector.streams.dead_letters.letters import DeadLetter
from headrace.connector.streams.kit import end
from headrace.connector.streams.tally import Place, Tally
from headrace.plugins import FatalError, HeadraceError, Sink

WINDOW_SECONDS: Final = 3_600
SHOWN_MAX: Final = 100
EXCEEDED_STATUS: Final = 4
_FACTS: Final = (
    *("number", "code", "reason", "table", "kind", "stage", "place", "job", "split"),
    *("lost_ms", "partition", "offset", "value_bytes", "refused"),
)


class TooManyDeadLettersError(FatalError):
    """More records were dead-lettered in a window than the user allows."""

    code = "too_many_dead_letters"
    exit_status = EXCEEDED_STATUS


class DeadLetterWindow(NamedTuple):
    """A code, a table, and the second since 1970 at which the window begins."""

    code: str
    table: str
    begin_s: int


class DeadLetterCounts:
    """Counts dead letters into *names* and *sums*, any mappings of bytes; each once."""

    def __init__(
        self,
        names: MutableMapping[bytes, bytes],
        sums: MutableMapping[bytes, bytes],
        *,
        window_seconds: int = WINDOW_SECONDS,
        count_max: int | None = None,
    ) -> None:
        """Continue from their content; *count_max* is the limit of each window in total."""
        self._tally = Tally(names, sums)
        self._window_seconds = window_seconds
        self._count_max = count_max
        self._known: Counter[DeadLetterWindow] | None = None
        self._log = structlog.stdlib.get_logger()
        self.newest: deque[DeadLetter] = deque(maxlen=SHOWN_MAX)

    def take(self, letter: DeadLetter) -> bool:
        """Count a dead letter; return whether it is new. Warn of the first of each window.

        Raises:
            TooManyDeadLettersError: its window has more than allowed.

        """
        lost_s = (letter.lost_ms or 0) // 1_000
        begin_s = lost_s // self._window_seconds * self._window_seconds
        window = DeadLetterWindow(letter.code, letter.table, begin_s)
        place = Place(letter.topic, letter.partition, letter.offset)
        if self._known is None:  # Not earlier: an app reads its tables when it starts.
            self._known = Counter(self.windows())
        if not self._tally.take(window, letter.name, place):
            return False
        self.newest.append(letter)
        self._known[window] += 1
        if self._known[window] == 1:
            self._log.warning(
                "dead_letter_seen",
                error_code=letter.code,
                table=letter.table,
                stage=letter.stage,
                place=letter.place,
                number=letter.number,
            )
        self._check(letter.topic, begin_s)
        return True

    def _check(self, topic: str, begin_s: int) -> None:
        """Check the current count of a window, over all codes and tables."""
        if self._known is None or self._count_max is None:
            return
        count = sum(found for each, found in self._known.items() if each.begin_s == begin_s)
        if count > self._count_max:
            raise TooManyDeadLettersError(
                f"{count} within {self._window_seconds} s, allowed are {self._count_max}",
                place=f"topic {topic}",
                hint="`headrace dlq list` has them",
            )

    def windows(self) -> Mapping[DeadLetterWindow, int]:
        """Return the number of each window."""
        groups = self._tally.groups()
        return {
            DeadLetterWindow(*group): groups[group].number  # type: ignore[arg-type]  # As `take` made them.
            for group in sorted(groups)
        }

    def json(self) -> Mapping[str, Any]:  # Any: JSON.
        """Return the counts, and the newest dead letters without content, as JSON."""
        return {
            "windows": [{**w._asdict(), "count": n} for w, n in self.windows().items() if n],
            "newest": [{name: getattr(letter, name) for name in _FACTS} for letter in self.newest],
        }


async def dead_letters(stream: Stream[Any]) -> AsyncIterator[DeadLetter]:
    """Yield the dead letters of an agent's *stream*; Faust acknowledges them afterwards."""
    async for event in stream.events():
        message = event.message
        yield DeadLetter.of(
            *(message.topic, message.partition, message.key, message.value, message.headers),
            offset=message.offset,
        )


def watch(
    app: faust.App,
    sink: Sink,
    *,
    window_seconds: int = WINDOW_SECONDS,
    count_max: int | None = None,
    seen: Callable[[DeadLetter], None] | None = None,
) -> DeadLetterCounts:
    """Make *app* count and show the dead letters in the topic of *sink*; return the counts.

    *seen* is called with each, on the event loop. If there are more than *count_max* in a window,
    the app ends.

    Raises:
        HeadraceError: the topic does not exist, or no broker answers.

    """
    partitions = len(sink.parts([""]))
    names, sums = (
        table_of_bytes(app, f"dead-letter-{name}", partitions) for name in ("names", "sums")
    )
    counts = DeadLetterCounts(names, sums, window_seconds=window_seconds, count_max=count_max)

    @app.agent(app.topic(sink.topic_of(""), **RAW))
    async def count(stream: Any) -> None:  # noqa: ANN401 (Faust's streams are generic)
        async for letter in dead_letters(stream):
            try:
                if counts.take(letter) and seen is not None:
                    seen(letter)
            except HeadraceError as error:
                await end(app, error)

    @app.page("/dead-letters/")
    async def show(view: View, request: Request) -> Response:
        del request
        return view.bytes(msgspec.json.encode(counts.json()), content_type="application/json")

    return counts
