"""What is wrong with a script of segments."""

from headrace.plugins import HeadraceError


class ScriptError(HeadraceError):
    """A step of a forge script that says nothing that can be written."""

    code = "forge_script"
    exit_status = 2
