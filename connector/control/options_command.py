"""`headrace options`: what can be configured, from the declarations themselves."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from headrace.connector.control.plugin_list import find_plugin, installed
from headrace.connector.job import JobFile, RuntimeConfig
from headrace.plugins import ConfigError, Problem
from headrace.plugins.config_forms import json_schema, options_table

_OURS: Final[Mapping[str, type]] = {"job": JobFile, "runtime": RuntimeConfig}


def main(arguments: Sequence[str]) -> int:
    """Print the options of a plugin or a section, or the names of all that have some."""
    parser = argparse.ArgumentParser(
        prog="headrace options",
        description="Print the options of a plugin, or of the sections job and runtime.",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="a class: KafkaSink; or a section")
    parser.add_argument(
        "--format", choices=("table", "json-schema"), default="table", help="default: table"
    )
    given = parser.parse_args(arguments)
    if given.name is None:
        names = [*_OURS, *(p.class_name for p in installed() if p.config_class)]
        sys.stdout.write("".join(f"{name}\n" for name in names))
        return 0
    found = find_plugin(given.name)
    config_class = _OURS.get(given.name) or (found.config_class if found else None)
    if config_class is None:
        hint = "`headrace options` lists what there is"
        raise ConfigError([Problem("", f"nothing named {given.name!r} has options", hint)])
    if given.format == "json-schema":
        sys.stdout.write(json.dumps(json_schema(config_class, title=given.name), indent=2) + "\n")
    else:
        sys.stdout.write(options_table(config_class))
    return 0
