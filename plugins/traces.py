"""What a job leaves beside what it reads, so that it is not disposed of."""

import msgspec


class Trace(msgspec.Struct, frozen=True):
    """A note that a job left at *place* of what its split needs there.

    `state` stands for the state of the job that wrote it and is `mine` or another's; `begun` says
    that the split has committed something, `age_seconds` when the note was written last.
    """

    place: str
    job: str
    state: str
    split: str
    mine: bool
    begun: bool
    age_seconds: float
