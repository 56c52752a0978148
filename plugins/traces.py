"""The notes that a job leaves beside its data, so that it is not disposed of."""

import msgspec


class Trace(msgspec.Struct, frozen=True):
    """A note of a job at *place* about the data that its split needs there.

    `state` represents the state of the job that wrote it, and is `mine` or another's; `begun`: the
    split has committed something; `age_seconds` is the time since the note was written.
    """

    place: str
    job: str
    state: str
    split: str
    mine: bool
    begun: bool
    age_seconds: float
