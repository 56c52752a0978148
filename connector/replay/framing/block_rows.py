"""Blocks of framed entries as Arrow rows, for frames and streams of Spark. Does not import pyspark.

A row is a block, or the order of a split; `split` is the number of the split in the plan. Spark
sends the rows of a split to one task, which may get several splits.
"""

import itertools
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa

AS_SINK: Final = "sink"
"""The option `format` of a frame of such rows."""
BLOCK_ROWS: Final = "split int, part binary, block binary"
SPLIT: Final = "split"
_SCHEMA: Final = pa.schema([(SPLIT, pa.int32()), ("part", pa.binary()), ("block", pa.binary())])
BLOCK_NAMES: Final = tuple(_SCHEMA.names)
_ROW_BYTES: Final = 1024 * 1024  # The size of blocks in one batch.

# A split, its order, and a block: either order or block is None.
Row = tuple[int, bytes | None, bytes | None]


def batches_of(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """Yield *rows* in batches of about a MiB."""
    waiting: list[Row] = []
    size = 0
    for row in rows:
        waiting.append(row)
        size += sum(len(each) for each in row[1:] if each is not None)
        if size >= _ROW_BYTES:
            yield _batch(waiting)
            waiting, size = [], 0
    if waiting:
        yield _batch(waiting)


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, bytes | None, memoryview]]:
    """Yield the rows of *batches*: the split, its order, and the block, or no bytes."""
    for batch in batches:
        splits, parts, blocks = (batch.column(each) for each in _SCHEMA.names)
        for number in range(batch.num_rows):
            block = blocks[number].as_buffer()
            yield (
                splits[number].as_py(),
                parts[number].as_py(),
                memoryview(b"") if block is None else memoryview(block),
            )


def _batch(rows: Iterable[Row]) -> pa.RecordBatch:
    splits, parts, blocks = zip(*rows, strict=True)
    columns = [pa.array(splits, pa.int32()), pa.array(parts, pa.binary()), _joined(blocks)]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def _joined(blocks: Sequence[bytes | None]) -> pa.Array:
    """Return a column of *blocks*, whose bytes are copied at most once."""
    whole = [block for block in blocks if block is not None]
    if len(whole) < len(blocks):
        return pa.array(blocks, pa.binary())
    offsets = array("i", itertools.accumulate(map(len, whole), initial=0))
    content = whole[0] if len(whole) == 1 else b"".join(whole)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    return pa.Array.from_buffers(pa.binary(), len(blocks), buffers)
