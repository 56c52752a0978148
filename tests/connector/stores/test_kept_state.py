"""A state that is made into entries is read back from them, and says only what changes."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.connector.stores import TableCounts
from headrace.connector.stores.kept_state import KeptState, chunks_in
from headrace.plugins import EncodedPosition

CHUNKS = st.dictionaries(st.text("abc", min_size=1, max_size=2), st.binary(max_size=3))


@given(before=CHUNKS, after=CHUNKS, note=st.text(max_size=5), head=st.binary(max_size=5))
def test_entries(before: dict[str, bytes], after: dict[str, bytes], note: str, head: bytes) -> None:
    """Chunks never change: those that are known are not written again, others go."""
    after = {**after, **{name: before[name] for name in after if name in before}}

    def state(chunks: dict[str, bytes], seq: int) -> KeptState:
        return KeptState(
            key="k",
            token=seq,
            seq=seq,
            moved=3,
            position=EncodedPosition(head, chunks),
            counters={"ks.t": TableCounts(2, 1, 1)},
            note=note,
        )

    kept: dict[str, bytes] = {}
    for number, chunks in enumerate((before, after)):
        entries = state(chunks, number).entries(chunks_in(kept))
        assert entries.keys() - {"head"} == {
            f"chunk/{name}" for name in chunks_in(kept) ^ chunks.keys()
        }
        for name, content in entries.items():
            kept.pop(name, None)
            if content is not None:
                kept[name] = content
        assert state(chunks, number) == KeptState.of(kept, "here")
    assert chunks_in(kept) == after.keys()
