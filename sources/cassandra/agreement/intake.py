"""Feeds the entries of one log after another to a pump's splits: the loop of the live path.

An entry is framed, its first update's key gives the token and thereby the split, the raw bytes give
the digest, agreement decides, and the copy that completes the agreement is stored raw in the
split's `AgreedMutations`. Separate so that it can be compiled as one loop. For one thread.
"""

from array import array

from headrace.plugins import MiscountError
from headrace.sources.cassandra.agreement.protocols import ContentComparer, FurtherRead, Incoming
from headrace.sources.cassandra.agreement.rules import Agreement
from headrace.sources.cassandra.commitlog.framer import Framer
from headrace.sources.cassandra.errors import CorruptSegmentError
from headrace.sources.cassandra.mutation.errors import BadMutationError
from headrace.sources.cassandra.mutation.parser import Cutter
from headrace.sources.cassandra.native import constants, ops
from headrace.sources.cassandra.native.growable import Block
from headrace.sources.cassandra.ring.replica_groups import Groups
from headrace.sources.cassandra.schema.layout import Catalogue

# Reasons to skip an entry; indexes of `skipped`, per log.
SKIP_REASONS = ("system", "unknown_table", "not_selected", "counter")
_HALF, _LOW, _FILE = 0x8000_0000, 0xFFFF_FFFF, (1 << 48) - 1  # _FILE: see `manifest.file_of`.
_GROUP = 64  # Entries whose look-ups overlap.
_LAST_BYTES = 1024  # Of an entry: enough for its first write time, unless its key is long.
_SPARE_MAX = 64  # Kept for reuse of their memory.
_REASONS = 4
_SYSTEM, _UNKNOWN, _NOT_SELECTED, _COUNTER = 0, 1, 2, 3
_KNOWN, _NEW = 1, 2  # Results.
_NEVER = -(1 << 63)
_HIGHEST, _LOWEST = (1 << 63) - 1, -(1 << 63)
_TABLE_ID_BYTES, _HEAD_BYTES = 16, 40  # The head always contains an entry's first table id.
_NAME_BASED = 3  # The UUID version of system tables' ids: made from their names.
_UNKNOWN_MAX = 1000  # Distinct unknown table ids remembered for reports.
_DATA_FIRST, _META_FIRST = 64 * 1024, 256
_DATA_KEPT = 1024 * 1024
# The view of an `AgreedMutations` while its block grows.
_NO_DATA = memoryview(bytearray())
_NO_META = memoryview(array("q"))


class AgreedMutations:
    """Agreed mutations of one split, raw, in the order of emission.

    Mutation i is data[start:end] with the numbers meta[i * AGREED_WIDTH:]: start, end, log slot,
    segment, position, copies, messaging version, flags (`flags`: those of all), number of the
    epoch, and the halves of the digest.
    """

    def __init__(self) -> None:
        """Start empty."""
        self.data_block = Block("B", _DATA_FIRST)
        self.data = self.data_block.view()
        self.meta_block = Block("q", constants.AGREED_WIDTH * _META_FIRST)
        self.meta = self.meta_block.view()
        self.count = self.size = self.flags = 0
        # Of the first and the last mutation: the record's number, and the time of agreement; 0:
        # there are also others.
        self.first_number = self.last_number = 0
        self.first_ms = self.last_ms = 0

    def append(self, view: ops.View, start: int, end: int, *fields: int) -> None:
        """Append a copy of view[start:end]; *fields* are the other arguments of `add`."""
        at = self.add(end - start, *fields)
        ops.copy(self.data, at, view, start, end)
        self.first_number = self.last_number = 0

    def add(  # noqa: PLR0913, PLR0917 (one mutation, field by field, without an object)
        self,
        length: int,
        host: int,
        segment: int,
        position: int,
        copies: int,
        messaging: int,
        epoch: int,
        d0: int,
        d1: int,
    ) -> int:
        """Return the position in `data` for its bytes; *copies* is the result of `Agreement`."""
        at = self.size
        flags = copies & ~constants.COPIES if copies > 0 else constants.LATE
        if at + length > len(self.data):
            self._grow_data(length)
        base = self.count * constants.AGREED_WIDTH
        if base == len(self.meta):
            self._grow_meta()
        self.meta[base + constants.AGREED_START] = at
        self.meta[base + constants.AGREED_END] = at + length
        self.meta[base + constants.AGREED_HOST] = host
        self.meta[base + constants.AGREED_SEGMENT] = segment & _FILE
        self.meta[base + constants.AGREED_POSITION] = position
        self.meta[base + constants.AGREED_COPIES] = (
            copies if copies > 0 else -copies
        ) & constants.COPIES
        self.meta[base + constants.AGREED_MESSAGING] = messaging
        self.meta[base + constants.AGREED_FLAGS] = flags
        self.meta[base + constants.AGREED_EPOCH] = epoch
        ops.put_digest(self.meta, base + constants.AGREED_DIGEST, d0, d1)
        self.size += length
        self.count += 1
        self.flags |= flags
        return at

    def checksum(self) -> int:
        """Return the sum of their digests, modulo 2**128."""
        found = memoryview(array("q", [0, 0]))
        for number in range(self.count):
            at = number * constants.AGREED_WIDTH + constants.AGREED_DIGEST
            ops.add_checksum(found, 0, self.meta, at)
        return int.from_bytes(ops.take_words(found, 2), "little")

    def clear(self) -> None:
        """Forget all mutations and keep the memory."""
        self.count = self.size = self.flags = 0

    def _grow_data(self, length: int) -> None:
        size = max(2 * len(self.data), self.size + length)
        self.data = _NO_DATA
        try:
            self.data_block.grow(size)
        except BufferError:  # The encoder still has a read-only view of what it encoded last.
            kept, self.data_block = self.data_block.view(), Block("B", size)
            ops.copy(self.data_block.view(), 0, kept, 0, self.size)
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
    """The treatment of entries of each table of an epoch's catalogue, by its index there."""

    def __init__(self, catalogue: Catalogue, epoch: int) -> None:
        """Ignore all tables; *epoch* is the number stored with their agreed mutations."""
        self.catalogue = catalogue
        self.cutter = Cutter(catalogue)
        self.epoch = epoch
        self.treatment = memoryview(array("i", [constants.IGNORED] * max(1, len(catalogue.tables))))
        self.keyspace = memoryview(array("i", [0] * max(1, len(catalogue.tables))))
        self.selected: dict[bytes, int] = {}

    def treat(self, table: int, treatment: int, keyspace: int) -> None:
        """Set the treatment of catalogue table *table*, and its keyspace's number."""
        self.treatment[table] = treatment
        self.keyspace[table] = keyspace
        if treatment == constants.SELECTED:
            self.selected[self.catalogue.tables[table].table_id.bytes] = keyspace

    def hidden(self, raw: bytes) -> int:
        """Return the keyspace of a selected table whose id is in *raw*; -1 without one."""
        for table_id, keyspace in self.selected.items():
            if table_id in raw:
                return keyspace
        return -1


class Intake:
    """The splits of a pump, their progress in each log, and the loop that feeds them.

    A log is identified by its number in the job, `host`. In a log that a split does not read, its
    place is at the end.
    """

    def __init__(self, hosts: int, key: bytes, splits: int) -> None:
        """*hosts* is the number of logs; the ring is divided into *splits*.

        *key* is the 16 secret bytes of the digest.
        """
        self.hosts = hosts
        self.splits = splits
        # The start of the places of a split, host by host; -1: it is not owned.
        self.rows = memoryview(array("i", [-1] * splits))
        self.places = memoryview(array("q"))
        self.rows_free: list[int] = []
        self.book_splits = memoryview(array("i", [0] * max(1, hosts)))
        self.book_tokens = memoryview(array("q", [_LOWEST] * max(1, hosts)))
        self.k0 = int.from_bytes(key[:8], "little")
        self.k1 = int.from_bytes(key[8:16], "little")
        self.has_further = memoryview(bytearray(splits))  # Whether `further` is set.
        self.further: list[FurtherRead | None] = [None] * splits
        self.agreements = [Agreement(Groups(0))] * splits
        self.comparers: list[ContentComparer | None] = [None] * splits
        self.newest = 0  # Write time in the suspect.
        self.agreed = [AgreedMutations()] * splits
        self.sequence = 0
        self.fullest = 0  # Mutations in the fullest `AgreedMutations`.
        self.fresh: set[int] = set()  # Splits with mutations in their `AgreedMutations`.
        self.now_ms = 0  # Since 1970, as the pump set it last.
        self.liveliest = 0  # The most records of a split, among those fed since the pump reset it.
        self.waiting = 0
        self.notes = memoryview(array("q", bytes(8 * constants.NOTE_WORDS * _GROUP)))
        self.digests = memoryview(array("Q", bytes(16 * _GROUP)))
        self.spare: list[AgreedMutations] = []
        self.skipped = memoryview(array("q", bytes(8 * len(SKIP_REASONS) * self.hosts)))
        self.unknown: dict[bytes, str] = {}
        self.held = 0  # Bytes of agreed mutations in all splits.
        # The sum of the positions of entries that were skipped, passed or given to a split, in the
        # last run: it must equal that of the framer, modulo 2**64.
        self.settled = 0
        self.framed = 0  # Bytes of the entries of the last run.
        self.receiving = memoryview(bytearray(max(1, self.hosts)))  # A stream, per host.
        self.incoming: list[Incoming | None] = [None] * self.hosts
        self.progress = memoryview(array("Q", [0] * max(1, self.hosts)))
        # The beginning of the last entry that a split was given.
        self.last = memoryview(bytearray(_LAST_BYTES))
        self.last_bytes = 0

    # ---- the fields of a place and of a note ----

    def _place(self, split: int, host: int) -> int:
        """Return the start of a split's place in *host*'s log; -1: the split is not owned."""
        row = self.rows[split]
        return row + constants.PLACE_WORDS * host if row >= 0 else -1

    def _noted(self, i: int, field: int) -> int:
        return self.notes[i * constants.NOTE_WORDS + field]

    def _set_noted(self, i: int, field: int, value: int) -> None:
        self.notes[i * constants.NOTE_WORDS + field] = value

    # ---- how far each split has come in each log ----

    def make_places(self, split: int) -> None:
        """Create the places of *split*, in logs that it does not read."""
        if not self.rows_free:
            self._grow_places()
        self.rows[split] = self.rows_free.pop()
        for host in range(self.hosts):
            self.unassign(split, host)

    def clear_places(self, split: int) -> None:
        """Remove the places of *split*, if it has any."""
        if self.rows[split] >= 0:
            self.rows_free.append(self.rows[split])
        self.rows[split] = -1

    def _grow_places(self) -> None:
        """Allocate room for twice as many splits."""
        width = constants.PLACE_WORDS * max(1, self.hosts)
        size = len(self.places)
        places = memoryview(array("q", bytes(8 * max(width, 2 * size))))
        places[:size] = self.places
        self.places = places
        self.rows_free.extend(range(size, len(places), width))

    def assign(self, split: int, host: int, log_slot: int) -> None:
        """Make *split* read *host*'s log from its start; *log_slot* is its number in the records.

        Its count starts over.
        """
        place = self._place(split, host)
        self.places[place + constants.PLACE_LOG_SLOT] = log_slot
        self.places[place + constants.PLACE_READ] = 0
        self.resume_at(split, host, 0, 0)

    def unassign(self, split: int, host: int) -> None:
        """Make *split* skip all of *host*'s log."""
        self.resume_at(split, host, _HIGHEST, _HIGHEST)

    def resume_at(self, split: int, host: int, segment: int, position: int) -> None:
        """Make *split* skip *host*'s log up to this position (line 11)."""
        place = self._place(split, host)
        self.places[place + constants.PLACE_SEGMENT] = segment
        self.places[place + constants.PLACE_OFFSET] = position

    def read_of(self, split: int, host: int) -> int:
        """Return how many entries of *host*'s log *split* has read since it got a log slot."""
        return self.places[self._place(split, host) + constants.PLACE_READ]

    def keep_books(self, host: int, split: int, token: int) -> None:
        """Make *split* count *host*'s entries without a split, by its place for *token*."""
        self.book_splits[host] = split
        self.book_tokens[host] = token

    # ---- the input of the splits ----

    def begin_again(self) -> None:
        """Forget which log is furthest behind, since no split reads any."""
        for host in range(self.hosts):
            self.progress[host] = 0

    def own(self, split: int, agreement: Agreement | None) -> None:
        """Start feeding *split*, or end it with None; it reads no log yet: see `assign`."""
        if self.rows[split] >= 0:
            self.held -= self.agreed[split].size
        self.clear_places(split)
        self.agreed[split] = AgreedMutations()
        self.fresh.discard(split)
        self.comparers[split] = None
        self.read_further(split, None)
        if agreement is not None:
            self.agreements[split] = agreement
            self.make_places(split)

    def count_on(self, split: int) -> None:
        """Give new records higher numbers than those of *split*: they are newer."""
        self.sequence = max(self.sequence, self.agreements[split].number)

    def read_further(self, split: int, further: FurtherRead | None) -> None:
        """Make *split* also skip the entries in *further*, if any."""
        self.has_further[split] = further is not None
        self.further[split] = further

    def take(self, split: int) -> AgreedMutations:
        """Return the agreed mutations of *split* so far and start a new `AgreedMutations`."""
        agreed = self.agreed[split]
        self.held -= agreed.size
        self.agreed[split] = self.spare.pop() if self.spare else AgreedMutations()
        self.fresh.discard(split)
        if agreed.count == self.fullest:
            self.fullest = max([self.agreed[other].count for other in self.fresh], default=0)
        return agreed

    def give_back(self, agreed: AgreedMutations) -> None:
        """Reuse the memory of an `AgreedMutations` that is no longer read."""
        if len(self.spare) < _SPARE_MAX and len(agreed.data) <= _DATA_KEPT:
            agreed.clear()
            self.spare.append(agreed)

    def run(  # noqa: PLR0913, PLR0917 (the input, and the limits)
        self,
        framer: Framer,
        host: int,
        routes: Routes,
        bytes_max: int,
        held_max: int,
        mutations_max: int,
    ) -> int:
        """Feed entries, by *routes*, until a limit is reached.

        The limits: *bytes_max* read, *held_max* bytes in all splits, *mutations_max* agreed in one
        of them. Returns the last result of the framer: ENTRY after a limit, LIMIT or FINISHED; or
        SCHEMA_CHANGE or UNKNOWN_TABLE, for the entry before the framer's position.
        """
        self.routes = routes
        framer.defers = self.rows[self.book_splits[host]] < 0  # The books' split reports damage.
        before, self.settled, self.last_bytes = framer.found, 0, 0
        begin, self.framed = framer.at - framer.beside, 0
        stop_at = framer.at + bytes_max
        found = constants.ENTRY
        try:
            while (
                found == constants.ENTRY
                and framer.at < stop_at
                and self.held < held_max
                and self.fullest < mutations_max
            ):
                group = min(_GROUP, mutations_max - self.fullest)
                try:
                    found = self._gather(framer, host, group, held_max - self.held, stop_at)
                finally:  # Also the entries before one that cannot be framed.
                    self._decide(framer, host)
        except CorruptSegmentError:  # The entries before the damage are complete.
            self._compare(framer, before, begin)
            raise
        if found == constants.UNKNOWN_TABLE:
            self.settled += framer.at  # See `again`.
        self._compare(framer, before, begin)
        return found

    def _compare(self, framer: Framer, before: int, begin: int) -> int:
        """Check that each entry in the bytes of this run was found, and was given to a split.

        *before* is the framer's sum before the run, *begin* its position, without skipped bytes.
        """
        if framer.at - framer.beside - begin != self.framed:
            raise _miscount("the entries of the log are not all of its bytes", framer)
        if framer.found - before != self.settled:
            raise _miscount("entries were found in the log, and no split got them", framer)
        return 0

    def _gather(self, framer: Framer, host: int, group: int, room: int, stop_at: int) -> int:
        """Frame a *group* of entries in the window, and prefetch their records.

        No entry of it starts at or after *stop_at*.

        A look-up misses the cache twice; requested together, the misses of a group overlap. The
        group ends with the entry that exceeds *room* bytes: a limit is exceeded by at most one
        mutation.
        """
        self.waiting = 0
        room = min(room + framer.at, stop_at)
        while True:
            if framer.is_gathered and framer.passes(stop_at):
                return constants.ENTRY
            found = framer.next_entry()
            if found == constants.ENTRY:
                found = self._route(framer, host)
                self.framed += framer.end - framer.start + constants.ENTRY_OVERHEAD
            if found != constants.ENTRY:
                return found
            if self.waiting == group or framer.at >= room or not framer.has_next():
                return constants.ENTRY

    def last_entry(self) -> bytes:
        """Return the beginning of the last entry that the last run gave to a split; or nothing."""
        return ops.take(self.last, 0, self.last_bytes)

    def again(self, framer: Framer, host: int, routes: Routes) -> None:
        """Route the entry at which the last run stopped, after its table was looked up."""
        self.routes = routes
        self.waiting = self.settled = 0
        if self._route(framer, host) == constants.UNKNOWN_TABLE:
            raise AssertionError("a table id that was asked about is remembered")
        self._decide(framer, host)
        if self.settled != framer.at:
            raise _miscount("an entry was found in the log, and no split got it", framer)

    def _route(self, framer: Framer, host: int) -> int:
        """Skip an entry, or add it to the group to decide next."""
        at = framer.start
        if framer.messaging >= constants.MESSAGING_60:
            at += 1
        updates = framer.window[at]  # A count above 127 takes more bytes; none of those means 1.
        at = at + 1 if updates < constants.VINT_MORE else framer.after_vint(at)
        table = -1
        if at + _TABLE_ID_BYTES <= framer.end:
            high, low = ops.u64(framer.window, at), ops.u64(framer.window, at + 8)
            table = self.routes.catalogue.find(high, low)
        if table < 0:
            return self._pass_over(framer, host, at, updates)
        treatment = self.routes.treatment[table]
        if treatment == constants.SELECTED or (
            updates != 1 and treatment in (constants.NEIGHBOUR, constants.COUNTER)
        ):
            self._note(framer, host, self.routes.keyspace[table], self._after_id(framer, at))
        elif treatment == constants.SCHEMA:
            framer.check()
            self._skip(framer, host, table, _SYSTEM)
            return constants.SCHEMA_CHANGE
        elif treatment == constants.COUNTER:
            self._skip(framer, host, table, _COUNTER)
        else:
            self._skip(framer, host, table, _NOT_SELECTED)
        return constants.ENTRY

    def _after_id(self, framer: Framer, at: int) -> int:
        """Return the position of the partition key of the update at *at*."""
        at += _TABLE_ID_BYTES
        if framer.messaging >= constants.MESSAGING_60:
            at = framer.after_vint(at)  # The schema epoch of 6.0.
        return at

    def _skip(self, framer: Framer, host: int, table: int, reason: int) -> None:
        """Count an entry without a split, if it is new to the split that counts them.

        *table* is the first table that it changes, in the catalogue; -1: an unknown one.
        """
        if table >= 0 and self.routes.treatment[table] == constants.SELECTED:
            raise _miscount("an entry of a delivered table was about to be skipped", framer)
        self.settled += framer.at
        split = self.book_splits[host]
        place = self._place(split, host)
        if place >= 0 and not self._is_passed(framer, split, host, place, self.book_tokens[host]):
            self.skipped[host * _REASONS + reason] += 1

    def _note(self, framer: Framer, host: int, keyspace: int, at: int) -> None:
        """Add an entry to the group, unless its split is not ours or has read it (line 11)."""
        length = framer.vint(at)
        at = framer.behind
        if length < 0 or at + length > framer.end:
            framer.check()
            raise BadMutationError(
                "the partition key is cut short",
                place=f"{framer.place}: entry that ends at {framer.at}",
                hint="its checksum is right: the writer is of a version this release cannot read",
            )
        token = ops.token(framer.window, at, at + length)
        # The ring in equal parts, by the upper half of the token shifted to start at 0.
        split = ((((token >> 32) + _HALF) & _LOW) * self.splits) >> 32
        place = self._place(split, host)
        if place >= 0:
            framer.check()
        if place >= 0 and not self._is_passed(framer, split, host, place, token):
            self._add(framer, split, keyspace, token, place)
        else:
            self.settled += framer.at

    def _is_passed(self, framer: Framer, split: int, host: int, place: int, token: int) -> int:
        if self._has_seen(place, framer.segment_id, framer.at):
            return 1
        return self._was_read(framer, split, host, token) if self.has_further[split] else 0

    def _was_read(self, framer: Framer, split: int, host: int, token: int) -> int:
        further = self.further[split]
        assert further is not None  # noqa: S101 (`further` is set)
        return further.has_seen(host, token, framer.segment_id, framer.at)

    def _has_seen(self, place: int, segment: int, position: int) -> int:
        if segment != self.places[place + constants.PLACE_SEGMENT]:
            return int(segment < self.places[place + constants.PLACE_SEGMENT])
        return int(position <= self.places[place + constants.PLACE_OFFSET])

    def _add(self, framer: Framer, split: int, keyspace: int, token: int, place: int) -> None:
        i = self.waiting
        self._set_noted(i, constants.NOTE_SPLIT, split)
        self._set_noted(i, constants.NOTE_KEYSPACE, keyspace)
        self._set_noted(i, constants.NOTE_TOKEN, token)
        self._set_noted(i, constants.NOTE_START, framer.start)
        self._set_noted(i, constants.NOTE_END, framer.end)
        self._set_noted(i, constants.NOTE_POSITION, framer.at)
        self._set_noted(i, constants.NOTE_PLACE, place)
        self.waiting += 1

    def _decide(self, framer: Framer, host: int) -> None:
        """Hash the group's entries and let the splits decide about them, in log order."""
        ops.siphash_all(
            framer.window,
            self.notes,
            constants.NOTE_START,
            constants.NOTE_WORDS,
            self.waiting,
            self.k0,
            self.k1,
            self.digests,
        )
        for i in range(self.waiting):
            agreement = self.agreements[self._noted(i, constants.NOTE_SPLIT)]
            agreement.fetch_slot(self.digests[2 * i])
        for i in range(self.waiting):
            agreement = self.agreements[self._noted(i, constants.NOTE_SPLIT)]
            token = self._noted(i, constants.NOTE_TOKEN)
            keyspace = self._noted(i, constants.NOTE_KEYSPACE)
            found = agreement.fetch_record(self.digests[2 * i], token, keyspace)
            self._set_noted(i, constants.NOTE_RECORD, found)
        for i in range(self.waiting):
            self._observe(framer, host, i)
        if self.waiting:
            start = self._noted(self.waiting - 1, constants.NOTE_START)
            end = self._noted(self.waiting - 1, constants.NOTE_END)
            self.last_bytes = min(end - start, _LAST_BYTES)
            ops.copy(self.last, 0, framer.window, start, start + self.last_bytes)

    def _observe(self, framer: Framer, host: int, i: int) -> None:
        split = self._noted(i, constants.NOTE_SPLIT)
        start, end = self._noted(i, constants.NOTE_START), self._noted(i, constants.NOTE_END)
        position = self._noted(i, constants.NOTE_POSITION)
        place = self._noted(i, constants.NOTE_PLACE)
        log_slot = self.places[place + constants.PLACE_LOG_SLOT]
        self.places[place + constants.PLACE_READ] += 1
        self.settled += position
        agreement = self.agreements[split]
        agreement.given_sum += self.digests[2 * i]
        agreement.number = self.sequence
        agreement.likely = self._noted(i, constants.NOTE_RECORD)
        agreement.streamed = self.receiving[host] and self._is_streamed(framer, host, i)
        copies = agreement.observe(
            log_slot,
            self.digests[2 * i],
            self.digests[2 * i + 1],
            self._noted(i, constants.NOTE_KEYSPACE),
            self._noted(i, constants.NOTE_TOKEN),
            framer.segment_id,
            position,
            end - start,
        )
        self.liveliest = max(self.liveliest, agreement.live)
        if copies == constants.SUSPECT:
            copies = self._compare_content(framer, log_slot, split, agreement, i)
        self.sequence = agreement.number
        self.progress[host] = agreement.touched
        if copies != 0:
            agreed = self.agreed[split]
            at = agreed.add(
                end - start,
                log_slot,
                framer.segment_id,
                position,
                copies,
                framer.messaging,
                self.routes.epoch,
                agreement.named0,
                agreement.named1,
            )
            ops.copy(agreed.data, at, framer.window, start, end)
            self.held += end - start
            self.fullest = max(self.fullest, agreed.count)
            if agreed.count == 1:
                agreed.first_number, agreed.first_ms = agreement.touched, self.now_ms
                self.fresh.add(split)
            agreed.last_number, agreed.last_ms = agreement.touched, self.now_ms

    def _compare_content(
        self, framer: Framer, log_slot: int, split: int, agreement: Agreement, i: int
    ) -> int:
        """Publish the suspect unless its content is known (line 17).

        It is new if all of it was written after everything published of its token.
        """
        start, end = self._noted(i, constants.NOTE_START), self._noted(i, constants.NOTE_END)
        position = self._noted(i, constants.NOTE_POSITION)
        slot = agreement.suspect
        comparer = self.comparers[split]
        if comparer is not None:
            newest = agreement.newest_published(slot)
            if not self._is_newer(framer, start, end, newest):
                decision = comparer.decide(slot)
                if decision == _KNOWN:
                    agreement.know(slot)
                if decision != _NEW:
                    return 0
                newest = agreement.newest_published(slot)
            agreement.learn_newest(slot, max(newest, self.newest))
        return agreement.publish(slot, log_slot, framer.segment_id, position, end - start)

    def receive(self, host: int, incoming: Incoming | None) -> None:
        """Set *incoming*, which knows the streams that *host* receives; None: no stream."""
        self.receiving[host] = incoming is not None
        self.incoming[host] = incoming

    def _is_streamed(self, framer: Framer, host: int, i: int) -> int:
        """Return whether part of an entry was written before its node started a stream."""
        incoming = self.incoming[host]
        assert incoming is not None  # noqa: S101 (the host receives)
        start, end = self._noted(i, constants.NOTE_START), self._noted(i, constants.NOTE_END)
        head = bytes(framer.window[start : start + _HEAD_BYTES])
        before = incoming.written_before(framer.segment_id, head, framer.messaging)
        return 0 if before == _NEVER or self._is_newer(framer, start, end, before) else 1

    def _is_newer(self, framer: Framer, start: int, end: int, newest: int) -> int:
        """Return whether all of an entry was written after *newest*; 1 if it cannot be parsed."""
        self.newest = newest
        cutter = self.routes.cutter
        try:
            cutter.cut(framer.window, start, end, framer.messaging)
        except BadMutationError:  # The encoder raises this again, and quarantines the entry.
            return 1
        cutter.span()
        self.newest = cutter.newest
        return 1 if cutter.oldest > newest else 0

    def _pass_over(self, framer: Framer, host: int, at: int, updates: int) -> int:
        """Skip an entry whose first table is unknown. Return whether its id needs a look-up.

        If it may contain a selected table after that, it is treated like that table's entries: its
        bytes are kept if they cannot be parsed.
        """
        framer.check()
        table_id = ops.take(framer.window, at, min(at + _TABLE_ID_BYTES, framer.end))
        if len(table_id) == _TABLE_ID_BYTES and table_id[6] >> 4 == _NAME_BASED:
            self._skip(framer, host, -1, _SYSTEM)
            return constants.ENTRY
        if table_id not in self.unknown and len(self.unknown) < _UNKNOWN_MAX:
            return constants.UNKNOWN_TABLE
        keyspace = self.routes.hidden(framer.entry()) if updates != 1 else -1
        if keyspace >= 0:
            self._note(framer, host, keyspace, self._after_id(framer, at))
        else:
            self._skip(framer, host, -1, _UNKNOWN)
        return constants.ENTRY

    def remember(self, table_id: bytes, place: str) -> None:
        """Remember an id that was not found; its entries are counted from now on."""
        self.unknown.setdefault(table_id, place)


def _miscount(message: str, framer: Framer) -> MiscountError:
    return MiscountError(message, place=f"{framer.place}: before byte {framer.at}")
