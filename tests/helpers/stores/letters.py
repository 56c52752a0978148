"""Dead letters in the state of a job that has not run."""

from typing import Final

from headrace.connector.foundation.processes import this_process
from headrace.connector.stores import Commit, Loss
from headrace.connector.stores.note_copy import NoteCopy
from headrace.plugins import NumberPosition

SPLIT: Final = "in.jsonl"


def keep_letters(notes: NoteCopy, job: str, count: int) -> None:
    """Give *job* dead letters `{"n": 0}`, `{"n": 1}` and so on, of a disk that was full."""
    store, owner = notes.store(job), this_process()
    store.register([SPLIT])
    store.enroll(owner)
    tokens = store.claim(owner.worker, store.leases(), 10_000)
    losses = [
        Loss(
            kind="dead_letter",
            table="s.t",
            place=str(number),
            code="away",
            message="the disk was full",
            content=b'{"n": %d}' % number,
        )
        for number in range(count)
    ]
    commit = Commit(
        split=SPLIT,
        plan=1,
        token=tokens[SPLIT],
        owner=owner.worker,
        previous=0,
        seq=1,
        position=NumberPosition(7).encode(),
        counters={},
        losses=losses,
    )
    assert not store.commit([commit])
