"""What `python -m bench.live` sees of a node, without one."""

import json
import subprocess
import sys
import time
from pathlib import Path

from helpers.jobs.children import until
from helpers.settings.native_modules import ROOT


def test_each_growth_of_an_index_file_is_seen_once(tmp_path: Path) -> None:
    """With its time and its segment; a file that is being written has no offset yet."""
    folder, out = tmp_path / "cdc_raw", tmp_path / "durable.txt"
    folder.mkdir()
    index = folder / "CommitLog-7-17_cdc.idx"
    arguments = json.dumps({"folder": str(folder), "out": str(out)})
    began = time.time_ns()
    with subprocess.Popen(  # noqa: S603 (ours)
        [sys.executable, "-m", "bench.live_ends", "watch", arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert "ready\n" == child.stdout.readline()
        for text in ("", "100", "100", "250\nCOMPLETED"):
            index.write_text(text)
            seen = [100] if text == "100" else [100, 250] if text else []
            until(lambda wanted=seen: wanted == [at for *_, at in lines(out)], "not seen")  # type: ignore[misc]
        child.terminate()
        assert 0 == child.wait(60)

    assert [17, 17] == [segment for _, segment, _ in lines(out)]
    times = [at for at, *_ in lines(out)]
    assert began <= times[0] <= times[1] <= time.time_ns()


def lines(path: Path) -> list[tuple[int, int, int]]:
    """Return what was written so far."""
    if not path.exists():
        return []
    split = (line.split() for line in path.read_text().splitlines(keepends=True) if "\n" in line)
    return [(int(at), int(segment), int(offset)) for at, segment, offset in split]
