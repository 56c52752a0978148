"""Agents for the logs of a job, each a process of its own."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import yaml

from bench.starting import ready_line

_AGENT: Final = "import sys; from headrace.connector.commands.cli import main; sys.exit(main())"


@contextmanager
def through_agents(job: Path) -> Iterator[Path]:
    """Provide the path of a job that reads what *job* reads, but through an agent for each node."""
    document = yaml.safe_load(job.read_text())
    nodes = document["source"]["nodes"]
    with ExitStack() as stack:
        urls = {node: {"url": stack.enter_context(_agent(path))} for node, path in nodes.items()}
        document["source"]["nodes"] = urls
        far = job.with_name("far.yaml")
        far.write_text(yaml.safe_dump(document))
        yield far


@contextmanager
def _agent(folder: str) -> Iterator[str]:
    with subprocess.Popen(  # noqa: S603 (headrace itself)
        [sys.executable, "-c", _AGENT, "agent", "--cdc-raw", folder, "--listen", "127.0.0.1:0"],
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            started = json.loads(ready_line(child, "stderr", "agent_started"))
            yield f"http://127.0.0.1:{started['port']}"
        finally:
            child.terminate()
