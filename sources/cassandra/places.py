"""How far each split of a pump has come in each log, and the log's number in its records.

Separate from the loop that asks for each entry, `intake`. For one thread.
"""

from array import array

_HIGHEST = (1 << 63) - 1
_LOWEST = -_HIGHEST - 1
# Numbers of a place: segment and offset of the marker that the split resumed from, the log's seat,
# and how many of its entries were read.
_PLACE, _SEAT, _READ = 4, 2, 3


class Places:
    """The places of the splits that are owned, for all logs: by host, the log's number in the job.

    A split that does not read a log has passed all of it.
    """

    def __init__(self, hosts: int, splits: int) -> None:
        """Own none of the *splits*; *hosts* is how many logs there are."""
        self.hosts = hosts
        self.splits = splits
        # Where the places of a split begin, host by host; -1: it is not owned.
        self.rows = memoryview(array("i", [-1] * splits))
        self.places = memoryview(array("q"))
        self.rows_free: list[int] = []
        self.book_splits = memoryview(array("i", [0] * max(1, hosts)))
        self.book_tokens = memoryview(array("q", [_LOWEST] * max(1, hosts)))

    def make_places(self, split: int) -> None:
        """Let *split* have places, in logs that it does not read."""
        if not self.rows_free:
            self._grow_places()
        self.rows[split] = self.rows_free.pop()
        for host in range(self.hosts):
            self.unseat(split, host)

    def clear_places(self, split: int) -> None:
        """Forget the places of *split*, if it has any."""
        if self.rows[split] >= 0:
            self.rows_free.append(self.rows[split])
        self.rows[split] = -1

    def _grow_places(self) -> None:
        """Make room for twice as many splits."""
        width = _PLACE * max(1, self.hosts)
        size = len(self.places)
        places = memoryview(array("q", bytes(8 * max(width, 2 * size))))
        places[:size] = self.places
        self.places = places
        self.rows_free.extend(range(size, len(places), width))

    def seat(self, split: int, host: int, seat: int) -> None:
        """Let *split* read *host*'s log from its start; *seat* is its number in the records.

        What was counted of it begins anew.
        """
        place = self.rows[split] + _PLACE * host
        self.places[place + _SEAT] = seat
        self.places[place + _READ] = 0
        self.resume_at(split, host, 0, 0)

    def unseat(self, split: int, host: int) -> None:
        """Let *split* pass over all of *host*'s log."""
        self.resume_at(split, host, _HIGHEST, _HIGHEST)

    def resume_at(self, split: int, host: int, segment: int, position: int) -> None:
        """Let *split* pass over what *host*'s log holds up to here (line 11)."""
        place = self.rows[split] + _PLACE * host
        self.places[place] = segment
        self.places[place + 1] = position

    def read_of(self, split: int, host: int) -> int:
        """Return how many entries of *host*'s log *split* has read since it has a seat there."""
        return self.places[self.rows[split] + _PLACE * host + _READ]

    def keep_books(self, host: int, split: int, token: int) -> None:
        """Let *split* count what *host*'s log has of no split, by how far it has read *token*."""
        self.book_splits[host] = split
        self.book_tokens[host] = token
