"""The writers of a pipeline: one that all splits share or, exactly once, one for each split."""

from headrace.connector.obs.blame import making
from headrace.plugins import Clock, Sink, TransactionalWriter, Writer


class Writers:
    """See the module. Belongs to the data thread."""

    def __init__(self, sink: Sink, clock: Clock) -> None:
        """Open the shared writer, which dead letters always need.

        Raises the errors of `Sink.open`.
        """
        self.sink = sink
        self._clock = clock
        self._own: dict[str, tuple[int, TransactionalWriter]] = {}
        self._hurries = False
        self.transactional = sink.is_transactional
        with making(sink, "opened"):
            self.shared: Writer = sink.open()

    def of(self, split: str) -> Writer:
        """Return the writer for the records of *split*; exactly once, after `claimed`."""
        return self._own[split][1] if self.transactional else self.shared

    def claimed(self, split: str, token: int) -> TransactionalWriter:
        """Return the writer of a split that was claimed with *token*: each claim has a new one."""
        known = self._own.get(split)
        if known is not None and known[0] == token:
            return known[1]
        self.leave(split)
        with making(self.sink, f"opened for split {split}"):
            writer = self.sink.open_split(split)
        writer.hurry(hurries=self._hurries)
        self._own[split] = (token, writer)
        return writer

    def leave(self, split: str) -> None:
        """Close the writer of a split that is given back or was lost, if it has one."""
        known = self._own.pop(split, None)
        if known is not None:
            known[1].close()

    def window_ms(self) -> int | None:
        """Return how many ms a transaction may stay open; None without a bound."""
        return min((writer.window_ms for _, writer in self._own.values()), default=None)

    def hurry(self, *, hurries: bool) -> None:
        """Make all writers send at once, or after more records."""
        if hurries is not self._hurries:
            self._hurries = hurries
            for writer in (self.shared, *(writer for _, writer in self._own.values())):
                writer.hurry(hurries=hurries)

    def drain(self, deadline_ms: int) -> bool:
        """Run all writers, each for its share of the time; return whether all is settled."""
        writers = [self.shared, *(writer for _, writer in self._own.values())]
        settled = True
        for place, writer in enumerate(writers):
            now_ms = self._clock.monotonic_ms()
            share_ms = max(0, deadline_ms - now_ms) // (len(writers) - place)
            settled &= writer.drain(now_ms + share_ms)
        return settled

    def close(self) -> None:
        """Close all writers."""
        for split in list(self._own):
            self.leave(split)
        self.shared.close()
