"""TLS with agents, as a reader has it: what it trusts and shows, and what a failure of it means."""

import ssl
from collections.abc import Callable
from functools import partial

from headrace.plugins import ConfigError, Problem
from headrace.sources.cassandra.agent_protocol import AgentAccess
from headrace.sources.cassandra.errors import AgentUnavailableError, AgentUntrustedError


def tls(access: AgentAccess) -> ssl.SSLContext:
    """Return what the agents' certificates are checked with. Raises ConfigError."""
    try:
        context = ssl.create_default_context(cafile=access.ca)
        if access.certificate is not None:
            context.load_cert_chain(access.certificate, access.key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError([Problem("agent_ca", f"cannot be used: {error}")]) from error
    return context


def no_answer(error: Exception, url: str) -> Callable[[], AgentUnavailableError]:
    """Return what says why a new connection to *url* came to no answer.

    An agent that does not accept our certificate says nothing: it breaks off.
    """
    said = f"{type(error).__name__}: {error}"
    broke_off = isinstance(error, ConnectionResetError | BrokenPipeError)
    if isinstance(error, ssl.SSLError) or (broke_off and url.startswith("https:")):
        hint = "do agent_ca, agent_certificate and agent_key fit its TLS options?"
        return partial(AgentUntrustedError, said, place=url, hint=hint)
    hint = "is `headrace agent` running there?"
    return partial(AgentUnavailableError, said, place=url, hint=hint)
