"""The help of `headrace`: its commands in groups, each with a description and an example."""

import inspect
from collections.abc import Iterator, Mapping
from typing import Final

from headrace.plugins import HeadraceError
from headrace.plugins.discovery import load, names

GROUPS: Final[Mapping[str, Mapping[str, str]]] = {
    "Get started": {
        "demo": "headrace demo",
        "quickstart": "headrace quickstart",
    },
    "Run jobs": {
        "run": "headrace run job.yaml",
        "worker": "headrace worker worker.yaml",
        "shell": "headrace shell --state worker.yaml",
        "exec": 'headrace exec --state state.db -e "DESCRIBE DATA_SINKS"',
        "realtime": "headrace realtime on job.yaml",
        "options": "headrace options kafka",
        "registry": "headrace registry --port 8081 --state registry.db",
    },
    "Watch jobs": {
        "status": "headrace status worker.yaml --watch",
        "doctor": "headrace doctor job.yaml",
        "splits": "headrace splits job.yaml",
        "verify": "headrace verify job.yaml --sink",
        "audit": "headrace audit --state state.db",
    },
    "Solve problems": {
        "gaps": "headrace gaps job.yaml",
        "accept": "headrace accept job.yaml --all",
        "waiting": "headrace waiting job.yaml",
        "dlq": "headrace dlq list job.yaml",
        "forget": "headrace forget job.yaml",
    },
    "Bulk work (needs the extra `spark`)": {
        "backfill": "headrace backfill job.yaml shop.orders",
        "seed": "headrace seed job.yaml",
        "replay": "headrace replay plan job.yaml --table shop.orders",
        "reconcile": "headrace reconcile job.yaml",
    },
    "Write plugins": {
        "new": "headrace new sink my-queue",
        "plugins": "headrace plugins",
    },
    "Manage users": {"hash-password": "headrace hash-password"},
}
PLUGINS: Final = "Commands of plugins"
_EXAMPLE: Final = "Example: "
_WIDTH: Final = 16


def commands_text(commands: Mapping[str, str]) -> str:
    """Return the groups; *commands* are the framework's own, each with its description."""
    groups = {
        group: [
            (name, commands[name], example) for name, example in members.items() if name in commands
        ]
        for group, members in GROUPS.items()
    }
    groups[PLUGINS] = [*_of_plugins()]
    parts = []
    for group, members in groups.items():
        lines = [
            f"  {name:<{_WIDTH}} {text}\n{_example(example)}" for name, text, example in members
        ]
        parts.append(f"{group}:\n{''.join(lines)}")
    return "\n".join(parts)


def _example(example: str) -> str:
    return f"  {'':<{_WIDTH}}   $ {example}\n" if example else ""


def _of_plugins() -> Iterator[tuple[str, str, str]]:
    """Yield each command of a plugin: the first line of its docstring, and its example."""
    for name in names("commands"):
        try:
            lines = (inspect.getdoc(load("commands", name)) or "").splitlines()
        except HeadraceError:
            yield name, "cannot be imported", ""
            continue
        first = lines[0].rstrip(".") if lines else ""
        examples = [line.removeprefix(_EXAMPLE) for line in lines if line.startswith(_EXAMPLE)]
        yield name, first[:1].lower() + first[1:], next(iter(examples), "")
