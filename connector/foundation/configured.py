"""Loads the plugin that a mapping names, and parses its configuration."""

from collections.abc import Mapping
from typing import Any, TypeVar

from headrace.connector.foundation.confinement import Bounds
from headrace.connector.foundation.references import resolved
from headrace.connector.foundation.secrets import secret_problems
from headrace.plugins import ConfigError, Problem, parse_config
from headrace.plugins.discovery import load

C = TypeVar("C")


def configured(
    section: str, given: Mapping[str, Any], bounds: Bounds | None = None, *, place: str = ""
) -> tuple[Any, Any]:
    """Return the plugin that a *section* names, and its configuration with secrets resolved.

    *bounds* apply to a part that a statement created. Errors name *place*.

    Raises:
        ConfigError: it has all mistakes found, each under its key.
        SecretUnavailableError: the target of a reference to a secret does not exist here.

    """
    problems: list[Problem] = []
    plugin, config = plugin_part(section, given, problems, bounds)
    if problems:
        raise ConfigError(problems, place=place)
    return plugin, config


def plugin_part(
    section: str,
    given: Mapping[str, Any],
    problems: list[Problem],
    bounds: Bounds | None = None,
) -> tuple[Any, Any]:  # Any: the plugin's class, and an instance of its config_class.
    """Return the same as `configured`, but None for a wrong part; add mistakes to *problems*."""
    left = dict(given)
    name = left.pop("plugin", None)
    if not isinstance(name, str):
        problems.append(Problem(f"{section}.plugin", "is required", f"name the {section}'s plugin"))
        return None, None
    try:
        plugin = load(f"{section}s", name)
    except ConfigError as error:
        problems += problems_within(section, error)
        return None, None
    written_down = secret_problems(plugin.config_class, left)
    if written_down:
        problems += problems_within(section, ConfigError(written_down))
        return None, None
    options = resolved(left, section=section, confined=bounds is not None)
    config = checked_config(section, plugin.config_class, options, problems, name)
    if bounds is not None and config is not None and (outside := bounds.problems(config)):
        problems += problems_within(section, ConfigError(outside))
    return plugin, config


def checked_config(
    section: str, kind: type[C], options: Mapping[str, Any], problems: list[Problem], name: str
) -> C | None:
    """Return the options of a *section*, or None after adding their mistakes to *problems*."""
    try:
        return parse_config(kind, options, name=name)
    except ConfigError as error:
        problems += problems_within(section, error)
        return None


def problems_within(section: str, error: ConfigError) -> list[Problem]:
    """Return the problems of *error* with keys that begin with the *section*."""
    return [
        Problem(
            f"{section}.{problem.key}" if problem.key else section, problem.message, problem.hint
        )
        for problem in error.problems
    ]
