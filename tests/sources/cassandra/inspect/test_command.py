"""`headrace inspect` prints what is in segments and folders, and names what it cannot read."""

import io
import json
import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from headrace.sources.cassandra.errors import NotCdcDirectoryError
from headrace.sources.cassandra.forge.segments import segment, write_segment
from headrace.sources.cassandra.inspect.command import main
from headrace.sources.cassandra.inspect.segment_files import segment_files
from helpers.logs.forged import header
from helpers.logs.sample_log import MUTATIONS, SCHEMA, SEGMENT, SEGMENT_ID, segments
from helpers.recordings.corpora import recording

NAME = f"CommitLog-7-{SEGMENT_ID}.log"
UNREADABLE = header(parameters=b'{"compressionClass":"a.B"}')


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """Make a node's directory with the segment made by hand, its index and a schema above."""
    folder = tmp_path / "node1" / "cdc_raw"
    folder.mkdir(parents=True)
    (folder / NAME).write_bytes(SEGMENT)
    (folder / NAME.replace(".log", "_cdc.idx")).write_text("109\nCOMPLETED")
    (tmp_path / "schema.cql").write_text(SCHEMA.format(static=""))
    return folder


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    """Return what was printed, a document a line."""
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_default_form_is_changes(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without options a change is a line, with its node and place, found by the schema above."""
    assert 0 == main([str(node)])
    (found,) = lines(capsys)
    assert ("shop.users", "INSERT", {"id": 7}) == (found["table"], found["op"], found["key"])
    assert (0, 1, "node1", SEGMENT_ID, 101) == tuple(
        found[name] for name in ("index", "of", "node", "segment", "position")
    )
    assert "copies" not in found


@pytest.mark.parametrize("name", ["4.1-ops", "5.0-types", "5.0-ring"])
def test_mutations_are_cassandras(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The form `mutations` prints what Cassandra's own reader prints, node by node."""
    folder = recording(name)
    assert 0 == main(["--form", "mutations", str(folder / "segments")])
    found = capsys.readouterr().out.splitlines()
    expected = (folder / "oracle.jsonl").read_text().splitlines()
    assert len(expected) == len(found)
    for wanted, printed in zip(expected, found, strict=True):
        ours, theirs = json.loads(printed), json.loads(wanted)
        assert (theirs["segment"], theirs["position"]) == (ours["segment"], ours["position"])


def test_stats_count(capsys: pytest.CaptureFixture[str]) -> None:
    """With --stats only the counts are printed, as one object: what is in it, what not and why."""
    assert 0 == main(["--stats", str(recording("4.0-ops") / "segments")])
    printed = capsys.readouterr()
    (found,) = [json.loads(line) for line in printed.out.splitlines()]
    assert (3, 775, 0) == (found["segments"], found["mutations"], found["errors"])
    assert 939 == sum(sum(table.values()) for table in found["changes"].values())
    totals = {reason: sum(names.values()) for reason, names in found["skipped"].items()}
    assert {"batchlog": 20, "counter": 6, "paxos": 110, "system": 125, "view": 48} == totals
    assert {"system.batches": 20} == found["skipped"]["batchlog"]
    assert "" == printed.err


def test_what_is_not_printed_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """Counters and views are named on standard error: they could have been meant."""
    assert 0 == main(["--count", str(recording("4.0-ops") / "segments")])
    printed = capsys.readouterr()
    assert "939\n" == printed.out
    views, counters = printed.err.splitlines()
    assert views.startswith("note: passed over 48 mutations of materialized views: those of their")
    assert counters.startswith("note: passed over 6 changes of counter tables: ")


def test_tables_that_the_schema_lacks_are_counted(
    node: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A mutation of an unknown table is not printed but counted under its id."""
    (tmp_path / "empty.cql").write_text("CREATE KEYSPACE shop;")
    assert 0 == main(["--stats", "--schema", str(tmp_path / "empty.cql"), str(node)])
    (found,) = lines(capsys)
    assert {"unknown": {"6f0c2f803b1e11ef9d2b0f1e2d3c4b5a": 1}} == found["skipped"]
    assert 0 == found["mutations"]


def printed(capsys: pytest.CaptureFixture[str], *options: str) -> list[dict[str, object]]:
    """Return what is printed of the recording 4.0-ops, as changes, with *options*."""
    assert 0 == main([*options, str(recording("4.0-ops") / "segments")])
    return lines(capsys)


def test_tables_are_selected(capsys: pytest.CaptureFixture[str]) -> None:
    """With --tables only their changes are printed, with their place among all of the mutation."""
    everything = printed(capsys)
    names = sorted({str(change["table"]) for change in everything})
    for name in names:
        expected = [change for change in everything if change["table"] == name]
        assert expected == printed(capsys, "--tables", name)
    keyspace = names[0].partition(".")[0]
    assert everything == printed(capsys, "--tables", f"{names[0]},{keyspace}.*")
    found = printed(capsys, "--form", "mutations", "--tables", names[0])
    assert all(names[0] in [u["table"] for u in updates(line)] for line in found)
    assert {str(change["mutation"]) for change in everything if change["table"] == names[0]}


def updates(line: dict[str, object]) -> list[dict[str, object]]:
    """Return the updates in a document of the form `mutations`."""
    found = line["updates"]
    assert isinstance(found, list)
    return found


def test_token_ranges_part_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    """Ranges that part the ring part what is printed; a range over the ring's end wraps."""
    everything = printed(capsys, "--form", "mutations")
    tokens = sorted({int(str(updates(line)[0]["token"])) for line in everything})
    low, high = tokens[len(tokens) // 4], tokens[len(tokens) // 2]
    within = printed(capsys, "--form", "mutations", "--token-range", f"{low}:{high}")
    around = printed(capsys, "--form", "mutations", "--token-range", f"{high}:{low}")
    assert len(everything) == len(within) + len(around)
    found = sorted({int(str(updates(line)[0]["token"])) for line in within})
    assert [token for token in tokens if low < token <= high] == found
    assert low < 0
    both = printed(
        capsys, "--form", "mutations", f"--token-range={low}:{high}", "--token-range", f"{high}:"
    )
    assert len(within) < len(both) < len(everything)


def test_places_part_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    """What ends at a place or before, and what ends after it, is all there is, nothing twice."""
    everything = printed(capsys, "--form", "mutations")
    for at in (0, 1, len(everything) // 2, len(everything) - 1):
        place = f"{everything[at]['segment']}:{everything[at]['position']}"
        before = printed(capsys, "--form", "mutations", "--to", place)
        after = printed(capsys, "--form", "mutations", "--from", place)
        assert (everything[: at + 1], everything[at + 1 :]) == (before, after)
    segment = everything[-1]["segment"]
    expected = [line for line in everything if line["segment"] == segment]
    found = printed(capsys, "--form", "mutations", "--from", f"{segment}", "--to", f"{segment}")
    assert expected == found


def test_lines_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """--count is the number of lines that there would be, with any other option."""
    folder = str(recording("4.0-ops") / "segments")
    for options in (["--form", "mutations"], ["--token-range", "0:"]):
        assert 0 == main([*options, folder])
        expected = len(capsys.readouterr().out.splitlines())
        assert 0 == main([*options, "--count", folder])
        assert f"{expected}\n" == capsys.readouterr().out


def test_help_says_it_all(capsys: pytest.CaptureFixture[str]) -> None:
    """The help has every option's meaning, the exit statuses and examples."""
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert 0 == caught.value.code
    text = capsys.readouterr().out
    for part in ("what is passed over:", "exit status:", "examples:"):
        assert part in text


@pytest.mark.parametrize(("options", "expected"), [([], 0), (["--system"], 1)])
def test_system_tables_are_asked_for(
    options: list[str], expected: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A system table's mutation is printed only with --system."""
    # The table's id becomes one of version 3, as system tables have it.
    schema = SCHEMA.format(static="").replace("3b1e-11ef-9d2b", "3b1e-31ef-9d2b")
    (tmp_path / "schema.cql").write_text(schema)
    path = tmp_path / NAME
    path.write_bytes(rewritten(SEGMENT, b"\x11\xef\x9d\x2b", b"\x31\xef\x9d\x2b"))
    assert 0 == main([*options, str(path)])
    assert expected == len(lines(capsys))


def rewritten(segment: bytes, old: bytes, new: bytes) -> bytes:
    """Return *segment* with bytes of its only mutation replaced, and the checksum set right."""
    content = segment.replace(old, new)
    checksum = zlib.crc32(content[36:97], zlib.crc32(content[28:32]))
    return content[:97] + checksum.to_bytes(4, "big") + content[101:]


DURABLE = {
    "complete": ("109\nCOMPLETED", 1),
    "flushed": ("101", 1),
    "not flushed": ("28", 0),
    "half-written": ("", 0),
    "missing": (None, 0),
}


@pytest.mark.parametrize("name", DURABLE)
def test_durable_stops_at_the_index(
    name: str, node: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --durable a segment is read as far as its index file allows."""
    content, expected = DURABLE[name]
    index = node / NAME.replace(".log", "_cdc.idx")
    index.unlink() if content is None else index.write_text(content)
    assert 0 == main(["--durable", str(node)])
    assert expected == len(lines(capsys))


def test_standard_input_has_no_index(capsys: pytest.CaptureFixture[str]) -> None:
    """What is durable of it cannot be determined: it is not counted as if it could."""
    assert 2 == main(["--durable", "--count", "-"])

    out, err = capsys.readouterr()
    assert ("", True) == (out, "standard input has no index file" in err)


@pytest.mark.parametrize("how", ["changes", "--count"])
def test_a_full_disk_is_of_the_output(node: Path, how: str) -> None:
    """Where nothing more can be printed, that is reported, of no segment, and it ends."""
    text = "import sys; from headrace.sources.cassandra.inspect import command"
    text += "; sys.exit(command.main(sys.argv[1:]))"
    options = [] if how == "changes" else [how]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(  # noqa: S603 (our own interpreter)
            [sys.executable, "-c", text, *options, str(node)],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )

    reported = done.stderr.decode()
    assert (3, True) == (
        done.returncode,
        reported.startswith("error [output]: standard output: cannot be written: No space left"),
    )
    assert "CommitLog" not in reported


def test_durable_needs_an_index(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An index that does not say what is durable is an error, not the end of the segment."""
    (index,) = node.glob("*.idx")
    index.write_text("12 34")

    assert 1 == main(["--durable", str(node)])

    out, err = capsys.readouterr()
    assert "" == out
    assert f"error [bad_index]: {index}: expected <offset>, or <offset> and below it" in err


def test_standard_input_is_a_segment(
    node: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dash reads a segment from standard input, which has no node."""
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(SEGMENT)))
    assert 0 == main(["-", "--schema", str(node.parents[1] / "schema.cql")])
    (found,) = lines(capsys)
    assert "node" not in found


def test_segments_come_by_number(tmp_path: Path) -> None:
    """Within a folder segments are in the order of their ids as numbers; none comes twice."""
    for number in (10, 9, 100):
        (tmp_path / f"CommitLog-7-{number}.log").touch()
    (tmp_path / "CommitLog-7-9_cdc.idx").touch()
    ninth = tmp_path / "CommitLog-7-9.log"
    found = [file.segment_id for file in segment_files([ninth, tmp_path, ninth])]
    assert [9, 10, 100] == found


LAYOUTS = {
    "a node's folder": ("n1/cdc_raw", ["n1"]),
    "a node's parent": ("n1", ["n1"]),
    "the nodes' parent": (".", ["n1", "n2", "n3"]),
    "a plain folder": ("n2", ["n2"]),
    "what is not in cdc_raw": ("n1/commitlog", ["commitlog"]),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_folders_are_nodes(name: str, tmp_path: Path) -> None:
    """A folder of segments is a node, named after what holds its `cdc_raw` or `segments`."""
    for folder in ("n1/cdc_raw", "n1/commitlog", "n2", "n3/segments", "other"):
        (tmp_path / folder).mkdir(parents=True)
    for folder in ("n1/cdc_raw", "n1/commitlog", "n2", "n3/segments"):
        (tmp_path / folder / NAME).touch()
    path, expected = LAYOUTS[name]
    assert expected == [file.node for file in segment_files([tmp_path / path])]


def test_nodes_within_segments_are_found() -> None:
    """The folder of a recorded ring leads to the segments of its nodes."""
    folder = recording("5.0-ring")
    found = [file.path for file in segment_files([folder / "segments"])]
    nodes = sorted((folder / "segments").iterdir())
    assert [path for node in nodes for path in segments(node)] == found


def test_a_folder_without_segments_is_named(tmp_path: Path) -> None:
    """A folder or path that holds no segment is an error of the environment."""
    for path in (tmp_path, tmp_path / "gone"):
        with pytest.raises(NotCdcDirectoryError):
            list(segment_files([path]))


ERRORS = {
    "unknown table": (
        ["-", "--schema", "good.cql", "--tables", "shop.user"],
        2,
        "inspect_option: --tables: 'shop.user' is not in the schema\nhint: did you mean shop.users",
    ),
    "no range": (
        ["-", "--schema", "good.cql", "--token-range", "5"],
        2,
        "inspect_option: --token-range: expected START:END",
    ),
    "no place": (
        ["-", "--schema", "good.cql", "--from", "x"],
        2,
        "inspect_option: --from: expected SEGMENT or SEGMENT:POSITION",
    ),
    "unknown path": (["gone"], 3, "not_cdc_raw: gone: no such file or directory"),
    "no schema": (["-"], 2, "no_schema: the log tells nothing of its tables"),
    "unknown schema": (["-", "--schema", "gone.cql"], 2, "no_schema: gone.cql: cannot read"),
    "bad schema": (["-", "--schema", "bad.cql"], 2, "schema_text: bad.cql: line 1, column 1"),
    "compressor": (["a-b.log", "--schema", "good.cql"], 1, "unsupported_segment: a-b.log: byte 14"),
    "no segment": (["good.cql", "--schema", "good.cql"], 1, "corrupt_segment: good.cql: byte"),
    "wrong schema": (
        [NAME, "--schema", "wrong.cql"],
        1,
        f"bad_mutation: {NAME}: entry that ends at 101: byte ",
    ),
    "wrong types": (
        [NAME, "--schema", "types.cql"],
        1,
        f"bad_value: {NAME}: entry that ends at 101: 4 bytes are not a valid",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_named(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be read is named on standard error, with its place, and gives the status."""
    good = SCHEMA.format(static="")
    for file, text in {
        "good.cql": good,
        "bad.cql": "?",
        "wrong.cql": good.replace("name text", "other text"),
        "types.cql": good.replace("(id int", "(id uuid"),
    }.items():
        (tmp_path / file).write_text(text)
    (tmp_path / "a-b.log").write_bytes(UNREADABLE)
    (tmp_path / NAME).write_bytes(SEGMENT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(SEGMENT)))
    arguments, status, message = ERRORS[name]
    assert status == main(arguments)
    assert capsys.readouterr().err.startswith(f"error [{message.replace(': ', ']: ', 1)}")


def test_a_bad_segment_does_not_stop_the_others(
    node: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After an error in one segment the next is printed, and the status stays 1."""
    (node / "CommitLog-7-5.log").write_bytes(UNREADABLE)
    assert 1 == main([str(node)])
    assert 1 == len(lines(capsys))


def test_damage_amid_a_segment_is_reported_and_passed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What follows is printed, standard error has the place, and the status is 1."""
    made = segment([[MUTATIONS["insert"]] * 2, [MUTATIONS["range"]]], segment_id=SEGMENT_ID)
    content = bytearray(made.content)
    content[made.ends[0] - 1] ^= 1
    (tmp_path / NAME).write_bytes(content)
    (tmp_path / "schema.cql").write_text(SCHEMA.format(static=""))

    assert 1 == main([str(tmp_path / NAME), "--form", "mutations"])

    out, err = capsys.readouterr()
    assert list(made.ends[1:]) == [json.loads(line)["position"] for line in out.splitlines()]
    assert err.startswith(f"error [corrupt_segment]: {tmp_path / NAME}: byte 28: the checksum")


ENDED: dict[str, Callable[[bytes, int], bytes]] = {
    "zero marker": lambda content, at: content[:at] + bytes(8) + content[at + 8 :],
    "zeros": lambda content, at: content[:at] + bytes(len(content) - at),
    "cut off": lambda content, at: content[:at],
}


@pytest.mark.parametrize("name", ["4.0-files", "5.0-v8-direct-files", "5.0-lz4-files"])
@pytest.mark.parametrize("ended", ENDED)
def test_a_recorded_segment_that_ends_at_a_marker_has_lost_the_rest(
    name: str, ended: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its index tells so: standard error says from which byte on and how much, the status is 1."""
    folder = recording(name) / "stopped" / "cdc_raw"
    index = min(folder.glob("*_cdc.idx"))
    log = folder / index.name.replace("_cdc.idx", ".log")
    content = log.read_bytes()
    shutil.copy(index, tmp_path)
    markers = [*chain(content)]
    assert 10 < len(markers)
    for at in markers[:: len(markers) // 3]:
        (tmp_path / log.name).write_bytes(ENDED[ended](content, at))
        options = ["--schema", str(recording(name) / "schema.cql"), "--count"]
        assert 1 == main([str(tmp_path), *options])
        err = capsys.readouterr().err
        assert f"{tmp_path / log.name}: byte {at}: the sync markers end; the index file" in err


def chain(content: bytes) -> Iterator[int]:
    """Yield where the sync markers of a closed segment's sections are."""
    at = 18 + int.from_bytes(content[12:14], "big")
    while at + 8 <= len(content) and any(content[at : at + 8]):
        yield at
        at = int.from_bytes(content[at : at + 4], "big")


@pytest.mark.parametrize("durable", [[], ["--durable"]])
def test_a_crash_left_an_index_that_tells_of_what_is_gone(
    durable: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without COMPLETED, too, all before its offset was durable."""
    made = segment([[MUTATIONS["insert"]], [MUTATIONS["insert"]]], segment_id=SEGMENT_ID)
    content = ENDED["zero marker"](made.content, made.section_ends[0])
    write_segment(tmp_path, content, segment_id=SEGMENT_ID, index=str(made.durable))
    (tmp_path / "schema.cql").write_text(SCHEMA.format(static=""))

    assert 1 == main([str(tmp_path), *durable])

    out, err = capsys.readouterr()
    assert 1 == len(out.splitlines())
    lost = made.durable - made.section_ends[0]
    said = f"byte {made.section_ends[0]}: the sync markers end; the index file has {lost} "
    assert said in err


def test_what_ends_behind_the_place_that_was_asked_for_is_not_missed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --to the rest of a segment may be damaged."""
    made = segment([[MUTATIONS["insert"]], [MUTATIONS["insert"]]], segment_id=SEGMENT_ID)
    content = ENDED["cut off"](made.content, made.section_ends[0])
    write_segment(tmp_path, content, segment_id=SEGMENT_ID, index=f"{made.durable}\nCOMPLETED")
    (tmp_path / "schema.cql").write_text(SCHEMA.format(static=""))

    assert 0 == main([str(tmp_path), "--to", f"{SEGMENT_ID}:{made.section_ends[0]}"])
    assert 1 == len(lines(capsys))


def test_a_segment_under_the_name_of_another_is_refused(
    node: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its header says which one it is: it is printed once, where its name is right."""
    other = f"CommitLog-7-{SEGMENT_ID + 1}.log"
    shutil.copy(node / NAME, node / other)

    assert 1 == main([str(node)])

    out, err = capsys.readouterr()
    assert 1 == len(out.splitlines())
    said = f"{node / other}: byte 4: the header says segment {SEGMENT_ID}"
    assert err.startswith(f"error [corrupt_segment]: {said}")


def test_a_closed_pipe_is_no_error(node: Path) -> None:
    """When the reader of the output has enough, the command ends well."""
    reading, writing = os.pipe()
    os.close(reading)
    code = "import sys; from headrace.sources.cassandra.inspect.command import main; "
    code += "main(sys.argv[1:])"
    try:
        done = subprocess.run(  # noqa: S603 (our own interpreter)
            [sys.executable, "-c", code, str(node)],
            stdout=writing,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writing)
    assert (0, b"") == (done.returncode, done.stderr)
