"""The Faust app of an audit: counts messages, compares periodically, shows `/audit/`."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import faust
import msgspec
import structlog
from faust.types import TP
from faust.web import Request, Response, View

from headrace.connector.streams.audit.comparing import Audit, Books
from headrace.connector.streams.audit.counted import CountedChanges
from headrace.connector.streams.kit import Consumer, end
from headrace.plugins import HeadraceError

SECONDS: Final = 30.0


class Auditor:
    """The audit that an app repeats; `last` is the newest result, None before the first."""

    def __init__(
        self,
        consumer: Consumer,
        counted: CountedChanges,
        read_books: Callable[[], Books],
        tables: Sequence[str],
    ) -> None:
        """Compare changes *counted* by an app from the topics of *consumer*. Raises as `audit`."""
        self.last: Audit | None = None
        self._tables = tables
        topics = {consumer.topic_of(table): consumer.partitions(table) for table in tables}
        self._places = [TP(topic, n) for topic, count in topics.items() for n in range(count)]
        self._consumer = consumer
        self._counted = counted
        self._read_books = read_books
        self._books: Books | None = None  # Those of the previous comparison.
        self._log = structlog.stdlib.get_logger()

    async def compare(self, app: faust.App) -> Audit:
        """Compare the counted changes with the books; warn of differences.

        Raises:
            HeadraceError: the books cannot be read.

        """
        books = await asyncio.to_thread(self._read_books)
        # After the books, so that all they contain precedes these ends.
        ends = dict(await app.consumer.highwaters(*self._places))
        unread = await self._consumer.behind(app, ends)
        # Deliveries are booked later. So the books must stay the same for a while.
        is_moving = books != self._books
        self._books = books
        audit = Audit.of(self._counted, books, self._tables, is_moving=is_moving, unread=unread)
        self._tell(audit)
        self.last = audit
        return audit

    def _tell(self, audit: Audit) -> None:
        before = self.last
        if audit.unread:
            self._log.info("audit_behind", partitions=[*audit.unread])
            return
        for line in audit.differences():
            self._log.warning("audit_differs", found=line)
        if not audit.differences() and (before is None or before.unread or before.differences()):
            self._log.info("audit_agrees", tables=[*audit.tables])


def audit(
    app: faust.App,
    consumer: Consumer,
    read_books: Callable[[], Books],
    *tables: str,
    seconds: float = SECONDS,
) -> Auditor:
    """Make *app* count the changes of *tables* and periodically compare with the books.

    The app's tables keep what was counted, so a message still counts after its topic has removed
    it. Only an app of one process can compare, because it has all partitions.

    Raises:
        ConfigError: the topics of the tables have different numbers of partitions.
        HeadraceError: a topic does not exist, or no broker answers.

    """
    names, sums = (
        consumer.table_beside(app, f"audit-{name}", *tables) for name in ("names", "sums")
    )
    counted = CountedChanges(names, sums)
    auditor = Auditor(consumer, counted, read_books, tables)

    @app.agent(consumer.topic(app, *tables))
    async def count(stream: Any) -> None:  # noqa: ANN401 (Faust's streams are generic)
        async for change in consumer.changes(stream):
            try:
                counted.take(change)
            except HeadraceError as error:
                await end(app, error)

    @app.timer(seconds)  # type: ignore[untyped-decorator]  # Faust's.
    async def compare() -> None:
        await app.tables.wait_until_recovery_completed()
        try:
            await auditor.compare(app)
        except HeadraceError as error:
            structlog.stdlib.get_logger().warning("audit_pauses", error=str(error))

    @app.page("/audit/")
    async def show(view: View, request: Request) -> Response:
        del request
        found = {} if auditor.last is None else auditor.last.json()
        return view.bytes(msgspec.json.encode(found), content_type="application/json")

    return auditor
