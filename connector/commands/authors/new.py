"""`headrace new`: writes a package with a plugin that works, as a template for another one."""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Final

import msgspec

from headrace.plugins import ConfigError, MissingRequirementError, Problem
from headrace.plugins.config.arguments import CommandParser
from headrace.plugins.discovery import API_LEVEL, names

KINDS: Final = ("sink", "source", "transform", "codec")
_TEMPLATES: Final = Path(__file__).parent / "templates"
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_NAME_CHARS_MAX: Final = 40
_USES: Final[Mapping[str, str]] = {
    "sink": "in a job file: `sink: {{plugin: {name}, path: out}}`",
    "source": "in a job file: `source: {{plugin: {name}, path: lines.txt}}`",
    "transform": "options of a sink: `transforms: t`, `transforms.t.type: {name}`",
    "codec": "option of the kafka sink: `format: {name}`",
}


def main(arguments: Sequence[str]) -> int:
    """Write a package, and say how to install, test and use it."""
    parser = CommandParser(
        prog="headrace new",
        description="Create a package with a working plugin and its tests: the suite of its kind, "
        "and a test of its own.",
    )
    kinds = f"the kind of plugin: {', '.join(KINDS)}"
    parser.add_argument("kind", metavar="KIND", choices=KINDS, help=kinds)
    parser.add_argument("name", metavar="NAME", help="lower-case letters, digits and -: my-queue")
    parser.add_argument(
        "--folder", type=Path, metavar="F", help="the new folder; default: headrace-NAME-KIND"
    )
    given = parser.parse_args(arguments)
    plugin = NewPlugin(given.kind, given.name)
    plugin.check()
    folder: Path = given.folder or Path(plugin.package)
    for path in written(plugin, folder):
        sys.stdout.write(f"{path}\n")
    sys.stdout.write(
        f"\ninstall it    pip install -e '{folder}[test]'\n"
        f"test it       python -m pytest {folder}\n"
        f"see it        headrace plugins\n"
        f"use it        {_USES[plugin.kind].format(name=plugin.entry)}\n"
    )
    return 0


class NewPlugin(msgspec.Struct, frozen=True):
    """The names of a plugin's parts, derived from its kind and name."""

    kind: str
    name: str

    @property
    def package(self) -> str:
        """Return the name of the distribution."""
        return f"headrace-{self.name}-{self.kind}"

    @property
    def class_name(self) -> str:
        """Return the name of the class."""
        words = "".join(word.capitalize() for word in self.name.split("-"))
        return words if self.kind == "transform" else f"{words}{self.kind.capitalize()}"

    @property
    def entry(self) -> str:
        """Return the name by which users name it: transforms have those of classes."""
        return self.class_name if self.kind == "transform" else self.name

    def check(self) -> None:
        """Raise ConfigError if the name has another form, or is taken."""
        if not _NAME.fullmatch(self.name) or len(self.name) > _NAME_CHARS_MAX:
            said = f"expected a name, found {self.name[: 2 * _NAME_CHARS_MAX]!r}"
            hint = f"at most {_NAME_CHARS_MAX} lower-case letters, digits and -: my-queue"
            raise ConfigError([Problem("NAME", said, hint)])
        if self.entry in names(f"{self.kind}s"):
            said = f"there is a {self.kind} named {self.entry!r}"
            raise ConfigError([Problem("NAME", said, "choose another name")])

    def filled(self, template: str) -> str:
        """Return the text of *template* with the names in it."""
        text = (_TEMPLATES / f"{template}.txt").read_text(encoding="utf-8")
        return Template(text).substitute(
            api_level=API_LEVEL,
            class_name=self.class_name,
            group=f"{self.kind}s",
            kind=self.kind,
            module=self.package.replace("-", "_"),
            name=self.entry,
            package=self.package,
        )


def written(plugin: NewPlugin, folder: Path) -> Iterator[Path]:
    """Write the package into the new *folder*; yield the path of each file.

    Raises:
        ConfigError: there is something at *folder*.
        MissingRequirementError: it cannot be written.

    """
    module = plugin.package.replace("-", "_")
    files = {
        "pyproject": folder / "pyproject.toml",
        plugin.kind: folder / f"{module}.py",
        f"{plugin.kind}_test": folder / "tests" / f"test_{module}.py",
    }
    try:
        (folder / "tests").mkdir(parents=True)
        for template, path in files.items():
            path.write_text(plugin.filled(template), encoding="utf-8")
            yield path
    except FileExistsError as error:
        hint = "give another one with --folder"
        raise ConfigError([Problem("", f"{folder} exists", hint)]) from error
    except OSError as error:
        said = f"cannot be written: {error.strerror}"
        raise MissingRequirementError(said, place=str(folder)) from error
