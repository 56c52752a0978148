"""Feeds the entries of one log after another to the splits a pump owns: the loop of the live path.

An entry is framed, its first update's key gives the token and so the split, the raw bytes give the
digest, agreement decides, and the copy that completes the agreement is kept raw in the split's
outbox. Separate so that it can be compiled as one loop. For one thread.
"""

from array import array

from headrace.sources.cassandra import codes, native
from headrace.sources.cassandra.agreement import Agreement
from headrace.sources.cassandra.asked import FurtherRead, Incoming, Judge
from headrace.sources.cassandra.blocks import Block
from headrace.sources.cassandra.cut import Cutter
from headrace.sources.cassandra.errors import BadMutationError
from headrace.sources.cassandra.frame import Framer
from headrace.sources.cassandra.groups import Groups
from headrace.sources.cassandra.layout import Catalogue
from headrace.sources.cassandra.places import Places

# Why an entry is passed over; indexes of `skipped`, per log.
SKIP_REASONS = ("system", "unknown_table", "not_selected", "counter")
_HALF, _LOW, _FILE = 0x8000_0000, 0xFFFF_FFFF, (1 << 48) - 1  # _FILE: see `manifest.file_of`.
_GROUP = 64  # Entries whose look-ups overlap.
_NOTE = 8  # Of an entry: split, keyspace, token, start, end, position, its place, its record.
_SPARE_MAX = 64  # Outboxes kept for their memory.
_REASONS = 4
_SYSTEM, _UNKNOWN, _NOT_SELECTED, _COUNTER = 0, 1, 2, 3
_KNOWN, _NEW = 1, 2  # Verdicts.
_NEVER = -(1 << 63)
_PLACE, _SEAT, _READ = 4, 2, 3  # As in `places`.
_MESSAGING_60, _VINT_MORE = 14, 0x80
_TABLE_ID_BYTES, _HEAD_BYTES = 16, 40  # The latter has an entry's first table id for certain.
_NAME_BASED = 3  # The UUID version of system tables' ids: made from their names.
_UNKNOWN_MAX = 1000  # Distinct unknown table ids remembered for reports.
_DATA_FIRST, _META_FIRST = 64 * 1024, 256
_DATA_KEPT = 1024 * 1024
# What an outbox's view is while its block grows.
_NO_DATA = memoryview(bytearray())
_NO_META = memoryview(array("q"))


class Outbox:
    """Agreed mutations of one split, raw, in the order of emission.

    Mutation i is data[start:end] with the numbers meta[i * MAIL_WIDTH:]: start, end, seat,
    segment, position, copies, messaging version, flags (`flags`: of all), number of the epoch.
    """

    def __init__(self) -> None:
        """Start empty."""
        self.data_block = Block("B", _DATA_FIRST)
        self.data = self.data_block.view()
        self.meta_block = Block("q", codes.MAIL_WIDTH * _META_FIRST)
        self.meta = self.meta_block.view()
        self.count = self.size = self.flags = 0

    def append(self, view: native.View, start: int, end: int, *mail: int) -> None:
        """Keep a copy of view[start:end]; *mail* is what else `add` takes."""
        at = self.add(end - start, *mail)
        native.copy(self.data, at, view, start, end)

    def add(  # noqa: PLR0913, PLR0917 (one mutation, field by field, without an object)
        self,
        length: int,
        host: int,
        segment: int,
        position: int,
        copies: int,
        messaging: int,
        epoch: int,
    ) -> int:
        """Return where in `data` its bytes go; *copies* is what `Agreement` said of it."""
        at = self.size
        flags = copies & ~codes.COPIES if copies > 0 else codes.LATE
        if at + length > len(self.data):
            self._grow_data(length)
        base = self.count * codes.MAIL_WIDTH
        if base == len(self.meta):
            self._grow_meta()
        self.meta[base + codes.MAIL_START] = at
        self.meta[base + codes.MAIL_END] = at + length
        self.meta[base + codes.MAIL_HOST] = host
        self.meta[base + codes.MAIL_SEGMENT] = segment & _FILE
        self.meta[base + codes.MAIL_POSITION] = position
        self.meta[base + codes.MAIL_COPIES] = (copies if copies > 0 else -copies) & codes.COPIES
        self.meta[base + codes.MAIL_MESSAGING] = messaging
        self.meta[base + codes.MAIL_FLAGS] = flags
        self.meta[base + codes.MAIL_EPOCH] = epoch
        self.size += length
        self.count += 1
        self.flags |= flags
        return at

    def clear(self) -> None:
        """Forget all mutations and keep the memory."""
        self.count = self.size = self.flags = 0

    def _grow_data(self, length: int) -> None:
        size = max(2 * len(self.data), self.size + length)
        self.data = _NO_DATA
        try:
            self.data_block.grow(size)
        except BufferError:  # The encoder still has a view of what it encoded last, and reads only.
            kept, self.data_block = self.data_block.view(), Block("B", size)
            native.copy(self.data_block.view(), 0, kept, 0, self.size)
        finally:
            self.data = self.data_block.view()

    def _grow_meta(self) -> None:
        count = 2 * len(self.meta)
        self.meta = _NO_META
        try:
            self.meta_block.grow(count)
        finally:
            self.meta = self.meta_block.view()


class Routes:
    """What becomes of the entries of each table of an epoch's catalogue, by its index there."""

    def __init__(self, catalogue: Catalogue, epoch: int) -> None:
        """Ignore all tables; *epoch* is the number that their mail bears."""
        self.catalogue = catalogue
        self.cutter = Cutter(catalogue)
        self.epoch = epoch
        self.treatment = memoryview(array("i", [codes.IGNORED] * max(1, len(catalogue.tables))))
        self.keyspace = memoryview(array("i", [0] * max(1, len(catalogue.tables))))
        self.selected: dict[bytes, int] = {}

    def treat(self, table: int, treatment: int, keyspace: int) -> None:
        """Say how entries of catalogue table *table* are treated, and its keyspace's number."""
        self.treatment[table] = treatment
        self.keyspace[table] = keyspace
        if treatment == codes.SELECTED:
            self.selected[self.catalogue.tables[table].table_id.bytes] = keyspace

    def hidden(self, raw: bytes) -> int:
        """Return the keyspace of a selected table whose id is in *raw*; -1 when none is there."""
        for table_id, keyspace in self.selected.items():
            if table_id in raw:
                return keyspace
        return -1


class Intake(Places):
    """The splits of a pump and the loop that feeds them."""

    def __init__(self, hosts: int, key: bytes, splits: int) -> None:
        """*hosts* is how many logs there are; the ring is cut into *splits*.

        *key* is the 16 secret bytes of the digest.
        """
        super().__init__(hosts, splits)
        self.k0 = int.from_bytes(key[:8], "little")
        self.k1 = int.from_bytes(key[8:16], "little")
        self.parted = memoryview(bytearray(splits))  # Whether there is something in `further`.
        self.further: list[FurtherRead | None] = [None] * splits
        self.agreements = [Agreement(Groups(0))] * splits
        self.judges: list[Judge | None] = [None] * splits
        self.newest = 0  # Write time in the suspect.
        self.outboxes = [Outbox()] * splits
        self.sequence = 0
        self.fullest = 0  # Mutations in the outbox that holds the most.
        self.waiting = 0
        self.notes = memoryview(array("q", bytes(8 * _NOTE * _GROUP)))
        self.digests = memoryview(array("Q", bytes(16 * _GROUP)))
        self.spare: list[Outbox] = []
        self.skipped = memoryview(array("q", bytes(8 * len(SKIP_REASONS) * self.hosts)))
        self.unknown: dict[bytes, str] = {}
        self.held = 0  # Bytes in all outboxes.
        self.receiving = memoryview(bytearray(max(1, self.hosts)))  # A stream, per host.
        self.incoming: list[Incoming | None] = [None] * self.hosts
        self.progress = memoryview(array("Q", [0] * max(1, self.hosts)))

    def own(self, split: int, agreement: Agreement | None) -> None:
        """Begin, or with None end, feeding *split*: from no log yet; see `seat`."""
        if self.rows[split] >= 0:
            self.held -= self.outboxes[split].size
        self.clear_places(split)
        self.outboxes[split] = Outbox()
        self.judges[split] = None
        self.read_further(split, None)
        if agreement is not None:
            self.agreements[split] = agreement
            self.sequence = max(self.sequence, agreement.number)
            self.make_places(split)

    def read_further(self, split: int, further: FurtherRead | None) -> None:
        """Let *split* also pass over what *further* knows; None: nothing more."""
        self.parted[split] = further is not None
        self.further[split] = further

    def take(self, split: int) -> Outbox:
        """Hand over what *split* has agreed so far and start a new outbox."""
        outbox = self.outboxes[split]
        self.held -= outbox.size
        self.outboxes[split] = self.spare.pop() if self.spare else Outbox()
        self.fullest = max([other.count for other in self.outboxes])
        return outbox

    def give_back(self, outbox: Outbox) -> None:
        """Take an outbox that nobody reads any more, for its memory."""
        if len(self.spare) < _SPARE_MAX and len(outbox.data) <= _DATA_KEPT:
            outbox.clear()
            self.spare.append(outbox)

    def run(  # noqa: PLR0913, PLR0917 (what to feed, and the bounds)
        self,
        framer: Framer,
        host: int,
        routes: Routes,
        bytes_max: int,
        held_max: int,
        mutations_max: int,
    ) -> int:
        """Feed entries, as *routes* has them, until a bound is reached.

        The bounds: *bytes_max* read, *held_max* bytes in all outboxes, *mutations_max* mutations
        in one of them. Returns what the framer found last: ENTRY when a bound stopped it, LIMIT or
        FINISHED; or SCHEMA_CHANGE or UNKNOWN_TABLE, for the entry that the framer stands behind.
        """
        self.routes = routes
        framer.defers = self.rows[self.book_splits[host]] < 0  # Who books a log tells its damage.
        stop_at = framer.at + bytes_max
        found = codes.ENTRY
        while (
            found == codes.ENTRY
            and framer.at < stop_at
            and self.held < held_max
            and self.fullest < mutations_max
        ):
            group = min(_GROUP, mutations_max - self.fullest)
            try:
                found = self._gather(framer, host, group, held_max - self.held)
            finally:  # Also what stood before an entry that cannot be framed.
                self._decide(framer, host)
        return found

    def _gather(self, framer: Framer, host: int, group: int, room: int) -> int:
        """Frame a *group* of entries that the window holds, and let memory fetch their records.

        A look-up misses the cache twice; asked for together, the misses of a group overlap. It ends
        with the entry that goes beyond *room* bytes: a bound is passed by one mutation at most.
        """
        self.waiting = 0
        room += framer.at
        while True:
            found = framer.next_entry()
            if found == codes.ENTRY:
                found = self._route(framer, host)
            if found != codes.ENTRY:
                return found
            if self.waiting == group or framer.at >= room or not framer.has_next():
                return codes.ENTRY

    def again(self, framer: Framer, host: int, routes: Routes) -> None:
        """Route the entry that the last run stopped at, now that its table was asked about."""
        self.routes = routes
        self.waiting = 0
        if self._route(framer, host) == codes.UNKNOWN_TABLE:
            raise AssertionError("a table id that was asked about is remembered")
        self._decide(framer, host)

    def _route(self, framer: Framer, host: int) -> int:
        """Pass an entry over, or note it in the group that is decided next."""
        at = framer.start
        if framer.messaging >= _MESSAGING_60:
            at += 1
        updates = framer.window[at]  # A count above 127 takes more bytes; none of those means 1.
        at = at + 1 if updates < _VINT_MORE else framer.after_vint(at)
        table = -1
        if at + _TABLE_ID_BYTES <= framer.end:
            high, low = native.u64(framer.window, at), native.u64(framer.window, at + 8)
            table = self.routes.catalogue.find(high, low)
        if table < 0:
            return self._pass_over(framer, host, at, updates)
        treatment = self.routes.treatment[table]
        if treatment == codes.SELECTED or (
            updates != 1 and treatment in (codes.NEIGHBOUR, codes.COUNTER)
        ):
            self._note(framer, host, self.routes.keyspace[table], self._after_id(framer, at))
        elif treatment == codes.SCHEMA:
            framer.check()
            self._skip(framer, host, _SYSTEM)
            return codes.SCHEMA_CHANGE
        else:
            self._skip(framer, host, _COUNTER if treatment == codes.COUNTER else _NOT_SELECTED)
        return codes.ENTRY

    def _after_id(self, framer: Framer, at: int) -> int:
        """Return where the partition key of the update at *at* stands."""
        at += _TABLE_ID_BYTES
        if framer.messaging >= _MESSAGING_60:
            at = framer.after_vint(at)  # The schema epoch of 6.0.
        return at

    def _skip(self, framer: Framer, host: int, reason: int) -> None:
        """Count an entry that belongs to no split, if it is new to the one that counts them."""
        split = self.book_splits[host]
        row = self.rows[split]
        if row >= 0 and not self._is_passed(
            framer, split, host, row + _PLACE * host, self.book_tokens[host]
        ):
            self.skipped[host * _REASONS + reason] += 1

    def _note(self, framer: Framer, host: int, keyspace: int, at: int) -> None:
        """Add an entry to the group, unless its split is not ours or has seen it (line 11)."""
        length = framer.vint(at)
        at = framer.behind
        if length < 0 or at + length > framer.end:
            framer.check()
            raise BadMutationError(
                "the partition key is cut short",
                place=f"{framer.place}: entry that ends at {framer.at}",
                hint="its checksum is right: the writer is of a version this release cannot read",
            )
        token = native.token(framer.window, at, at + length)
        # The ring in equal parts, by the upper half of the token shifted to start at 0.
        split = ((((token >> 32) + _HALF) & _LOW) * self.splits) >> 32
        place = self.rows[split]
        if place >= 0:
            framer.check()
            place += _PLACE * host
            if not self._is_passed(framer, split, host, place, token):
                self._add(framer, split, keyspace, token, place)

    def _is_passed(self, framer: Framer, split: int, host: int, place: int, token: int) -> int:
        if self._has_seen(place, framer.segment_id, framer.at):
            return 1
        return self._was_read(framer, split, host, token) if self.parted[split] else 0

    def _was_read(self, framer: Framer, split: int, host: int, token: int) -> int:
        further = self.further[split]
        assert further is not None  # noqa: S101 (the split is parted)
        return further.has_seen(host, token, framer.segment_id, framer.at)

    def _has_seen(self, place: int, segment: int, position: int) -> int:
        if segment != self.places[place]:
            return int(segment < self.places[place])
        return int(position <= self.places[place + 1])

    def _add(self, framer: Framer, split: int, keyspace: int, token: int, place: int) -> None:
        base = self.waiting * _NOTE
        self.notes[base] = split
        self.notes[base + 1] = keyspace
        self.notes[base + 2] = token
        self.notes[base + 3] = framer.start
        self.notes[base + 4] = framer.end
        self.notes[base + 5] = framer.at
        self.notes[base + 6] = place
        self.waiting += 1

    def _decide(self, framer: Framer, host: int) -> None:
        """Digest the group's entries and let the splits decide about them, in log order."""
        native.siphash_all(
            framer.window, self.notes, 3, _NOTE, self.waiting, self.k0, self.k1, self.digests
        )
        for i in range(self.waiting):
            agreement = self.agreements[self.notes[i * _NOTE]]
            agreement.fetch_slot(self.digests[2 * i])
        for i in range(self.waiting):
            agreement = self.agreements[self.notes[i * _NOTE]]
            self.notes[i * _NOTE + 7] = agreement.fetch_record(
                self.digests[2 * i], self.notes[i * _NOTE + 2], self.notes[i * _NOTE + 1]
            )
        for i in range(self.waiting):
            self._observe(framer, host, i)

    def _observe(self, framer: Framer, host: int, i: int) -> None:
        base = i * _NOTE
        split = self.notes[base]
        start, end = self.notes[base + 3], self.notes[base + 4]
        position = self.notes[base + 5]
        place = self.notes[base + 6]
        seat = self.places[place + _SEAT]
        self.places[place + _READ] += 1
        agreement = self.agreements[split]
        agreement.number = self.sequence
        agreement.likely = self.notes[base + 7]
        agreement.streamed = self.receiving[host] and self._is_streamed(framer, host, i)
        copies = agreement.observe(
            seat,
            self.digests[2 * i],
            self.digests[2 * i + 1],
            self.notes[base + 1],
            self.notes[base + 2],
            framer.segment_id,
            position,
            end - start,
        )
        if copies == codes.SUSPECT:
            copies = self._judge(framer, seat, split, agreement, i)
        self.sequence = agreement.number
        self.progress[host] = agreement.touched
        if copies != 0:
            outbox = self.outboxes[split]
            at = outbox.add(
                end - start,
                seat,
                framer.segment_id,
                position,
                copies,
                framer.messaging,
                self.routes.epoch,
            )
            native.copy(outbox.data, at, framer.window, start, end)
            self.held += end - start
            self.fullest = max(self.fullest, outbox.count)

    def _judge(self, framer: Framer, seat: int, split: int, agreement: Agreement, i: int) -> int:
        """Publish the suspect, or not: what it says may be known (line 17).

        Nothing of it can be when all of it was written after what was published of its token.
        """
        base = i * _NOTE
        start, end = self.notes[base + 3], self.notes[base + 4]
        position = self.notes[base + 5]
        slot = agreement.suspect
        judge = self.judges[split]
        if judge is not None:
            newest = agreement.newest_published(slot)
            if not self._is_newer(framer, start, end, newest):
                verdict = judge.verdict(slot)
                if verdict == _KNOWN:
                    agreement.know(slot)
                if verdict != _NEW:
                    return 0
                newest = agreement.newest_published(slot)
            agreement.learn_newest(slot, max(newest, self.newest))
        return agreement.publish(slot, seat, framer.segment_id, position, end - start)

    def receive(self, host: int, incoming: Incoming | None) -> None:
        """Ask *incoming* which entries of *host* may be a stream's; None: it receives none."""
        self.receiving[host] = incoming is not None
        self.incoming[host] = incoming

    def _is_streamed(self, framer: Framer, host: int, i: int) -> int:
        """Say whether a part of an entry was written before its node began to receive a stream."""
        base = i * _NOTE
        incoming = self.incoming[host]
        assert incoming is not None  # noqa: S101 (the host receives)
        start, end = self.notes[base + 3], self.notes[base + 4]
        head = bytes(framer.window[start : start + _HEAD_BYTES])
        before = incoming.written_before(framer.segment_id, head, framer.messaging)
        return 0 if before == _NEVER or self._is_newer(framer, start, end, before) else 1

    def _is_newer(self, framer: Framer, start: int, end: int, newest: int) -> int:
        """Say whether all of an entry was written after *newest*; one that is unfit counts so."""
        self.newest = newest
        cutter = self.routes.cutter
        try:
            cutter.cut(framer.window, start, end, framer.messaging)
        except BadMutationError:  # The encoder will say so again, and set it aside.
            return 1
        cutter.span()
        self.newest = cutter.newest
        return 1 if cutter.oldest > newest else 0

    def _pass_over(self, framer: Framer, host: int, at: int, updates: int) -> int:
        """Pass over an entry whose first table is unknown; say when its id was never asked about.

        If it can hold a selected table behind that, it goes the way of that table's entries: its
        bytes are kept when they cannot be cut.
        """
        framer.check()
        table_id = native.take(framer.window, at, min(at + _TABLE_ID_BYTES, framer.end))
        if len(table_id) == _TABLE_ID_BYTES and table_id[6] >> 4 == _NAME_BASED:
            self._skip(framer, host, _SYSTEM)
            return codes.ENTRY
        if table_id not in self.unknown and len(self.unknown) < _UNKNOWN_MAX:
            return codes.UNKNOWN_TABLE
        keyspace = self.routes.hidden(framer.entry()) if updates != 1 else -1
        if keyspace >= 0:
            self._note(framer, host, keyspace, self._after_id(framer, at))
        else:
            self._skip(framer, host, _UNKNOWN)
        return codes.ENTRY

    def remember(self, table_id: bytes, place: str) -> None:
        """Remember an id that was asked about in vain; its entries are counted from now on."""
        self.unknown.setdefault(table_id, place)
