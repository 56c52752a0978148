"""A job that copies the lines of two files into a third."""

from pathlib import Path

JOB = """\
job: lines
state: state.db
source: {plugin: files, path: "in*.jsonl"}
sink: {plugin: files, path: out.jsonl}
"""


def write_line_job(folder: Path) -> None:
    """Write the job file, and 30 lines."""
    (folder / "job.yaml").write_text(JOB)
    for name, count in (("in1.jsonl", 10), ("in2.jsonl", 20)):
        (folder / name).write_text("".join(f'{{"n": {n}}}\n' for n in range(count)))
