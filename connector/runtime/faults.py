"""What an error comes to that a plugin, or the store, raised on the data thread."""

from headrace.connector.obs.blame import HINT, PluginBrokenError, told
from headrace.plugins import HeadraceError, LeaseLostError, RetriableError


def kind_of(error: Exception) -> tuple[str, str]:
    """Return what is done about an error, and its code."""
    if isinstance(error, LeaseLostError):
        done = "lost"
    elif isinstance(error, RetriableError) or not isinstance(error, HeadraceError):
        done = "retried"
    else:
        done = "failed"
    return done, error.code if isinstance(error, HeadraceError) else PluginBrokenError.code


def named(error: Exception) -> HeadraceError:
    """Return an error with a name, for one that may have none."""
    if isinstance(error, HeadraceError):
        return error
    return PluginBrokenError(told(error), hint=HINT)
