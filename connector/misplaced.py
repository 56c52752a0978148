"""Options of a job file that stand under a section which does not have them, but another has."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from headrace.plugins import Problem, declared_options
from headrace.plugins.config import NOT_AN_OPTION


def placed(problems: Sequence[Problem], sections: Mapping[str, type | None]) -> Sequence[Problem]:
    """Return *problems*; the hint of an option that is another section's says whose it is.

    *sections* are the classes of options by the names of sections, None where that is not known;
    that of the keys that stand in no section has the name "".
    """
    declared = {name: declared_options(found) for name, found in sections.items() if found}
    made = []
    for problem in problems:
        section, _, key = problem.key.partition(".")
        homes = [name for name, options in declared.items() if key in options and name != section]
        if problem.message == NOT_AN_OPTION and homes:
            hint = f"it is an option of `{homes[0]}`"
            outside = f"it stands beside `{section}`, not in it"
            problem = replace(problem, hint=hint if homes[0] else outside)  # noqa: PLW2901
        made.append(problem)
    return made
