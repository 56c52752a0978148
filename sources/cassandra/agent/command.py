"""`headrace agent`: serves the log of the node it runs on, until SIGTERM."""

import asyncio
import contextlib
import ctypes
import os
import platform
import signal
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog
from cryptography import x509

from headrace.plugins import ConfigError, Problem, option
from headrace.plugins.config.arguments import CommandParser
from headrace.plugins.config.command_line import add_options, config_of
from headrace.plugins.serving import LOOPBACK, listen, runner_of
from headrace.plugins.telemetry import checked_sender, open_sender
from headrace.sources.cassandra.agent.server import AgentServer
from headrace.sources.cassandra.logs.directory import LogDirectory
from headrace.sources.cassandra.logs.folder_watch import FolderWatch, Inotify
from headrace.sources.cassandra.retention.disposal import Disposal, SegmentRetention
from headrace.sources.cassandra.retention.hold import HoldOptions

NICE: Final = 10  # The node's own threads have priority.
STOP_SECONDS_MAX: Final = 5.0
_ARCHIVE: Final = "archive:"
# Python and the C library have no function for it: its system call number per machine type, and its
# arguments. Threads that are started later inherit the class.
_IOPRIO_SET: Final = {"x86_64": 251, "aarch64": 30}
_THIS_PROCESS: Final = 1
_IDLE_CLASS: Final = 3 << 13


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig(HoldOptions):
    """The options of the agent."""

    cdc_raw: str = option("The node's cdc_raw directory.")
    commitlog: str | None = option(
        "The node's commit log directory: shows sooner after a crash that a segment is final.",
        default=None,
    )
    listen: str = option("The address to listen on, host:port.", default="127.0.0.1:9142")
    token: str | None = option("The token that readers must send.", default=None, secret=True)
    hosts: tuple[str, ...] = option(
        "Host names that readers use, besides those in its certificate; addresses are "
        "always accepted.",
        default=(),
    )
    tls_certificate: str | None = option("The agent's certificates, in PEM.", default=None)
    tls_key: str | None = option("The key of the first of them, in PEM.", default=None)
    tls_client_ca: str | None = option(
        "Certificates that readers' must be signed by, in PEM.", default=None
    )
    rate_bytes: int | None = option(
        "The most bytes that are sent a second.", default=None, minimum=1
    )
    hold: str | None = option(
        "A directory on the file system of cdc_raw that segments are linked to.",
        default=None,
    )
    otel_endpoint: str | None = option(
        "Where its metrics are sent over OTLP: the URL below which `/v1/metrics` is. It needs the "
        "extra `otel`.",
        default=None,
    )
    otel_every_seconds: float = option(
        "The time between two sendings.", default=10.0, minimum=0.1, maximum=3600
    )
    disposal: str | None = option(
        "What becomes of a final segment that no job needs: keep, delete or archive:DIR; default: "
        "delete with a hold, else keep.",
        default=None,
    )

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def disposal_of(self) -> Disposal:
        """The disposal of segments."""
        said = self.disposal or ("keep" if self.hold is None else "delete")
        if said.startswith(_ARCHIVE):
            return self.disposing(Path(said.removeprefix(_ARCHIVE)))
        return Disposal() if said == "keep" else self.disposing()

    def __post_init__(self) -> None:
        """Check the options beyond their types."""
        problems = []
        host, _, port = self.listen.rpartition(":")
        if not host or not port.isdigit():
            problems.append(Problem("listen", f"{self.listen!r} is not host:port"))
        problems += _disposal_problems(self.disposal, self.hold)
        if (self.tls_certificate is None) is not (self.tls_key is None):
            problems.append(Problem("tls_key", "belongs to tls_certificate: give both"))
        if self.tls_client_ca and not self.tls_certificate:
            problems.append(Problem("tls_client_ca", "needs tls_certificate"))
        near = host in LOOPBACK or host.startswith("127.")
        if not near and not (self.tls_certificate and (self.token or self.tls_client_ca)):
            hint = "give tls_certificate, tls_key, and token or tls_client_ca"
            said = f"{host} can be reached by others: TLS and authentication are needed"
            problems.append(Problem("listen", said, hint))
        if problems:
            raise ConfigError(problems)

    def tls(self) -> ssl.SSLContext | None:
        """Return the server's TLS context, if configured. Raises ConfigError."""
        if self.tls_certificate is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.tls_certificate, self.tls_key)
            if self.tls_client_ca is not None:
                context.load_verify_locations(self.tls_client_ca)
                context.verify_mode = ssl.CERT_REQUIRED
        except (OSError, ssl.SSLError) as error:
            raise ConfigError([Problem("tls_certificate", f"cannot be used: {error}")]) from error
        return context

    def certified_hosts(self) -> Sequence[str]:
        """Return the names in the certificate, by which readers check it. Raises ConfigError."""
        if self.tls_certificate is None:
            return ()
        try:
            certificate = x509.load_pem_x509_certificate(Path(self.tls_certificate).read_bytes())
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        except x509.ExtensionNotFound:
            return ()
        except (OSError, ValueError) as error:
            raise ConfigError([Problem("tls_certificate", f"cannot be used: {error}")]) from error
        return names.value.get_values_for_type(x509.DNSName)


_OTEL_KEY: Final = "otel_endpoint"


class _Clock:
    """The clocks of this machine."""

    def monotonic_ms(self) -> int:
        """Return ms since some fixed time."""
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        """Return ms since 1970."""
        return time.time_ns() // 1_000_000


def main(arguments: Sequence[str]) -> int:
    """Serve the log of a Cassandra node to workers elsewhere.

    Example: headrace agent --cdc-raw cdc_raw

    It ends with SIGTERM. Returns the exit status.
    """
    config = _config(arguments)
    checked_sender(config.otel_endpoint, key=_OTEL_KEY)  # Before readers find it.
    go_behind()
    return asyncio.run(_serve(config))


def go_behind() -> None:
    """Lower our priority below the node's threads, for CPU and, on Linux, for the disk."""
    os.nice(NICE)
    number = _IOPRIO_SET.get(platform.machine())
    if number is not None and platform.system() == "Linux":
        ctypes.CDLL(None).syscall(number, _THIS_PROCESS, 0, _IDLE_CLASS)


def server_of(config: AgentConfig) -> AgentServer:
    """Return the server, after checking its directory.

    Raises:
        MissingRequirementError: the directory cannot be read, or not written for `disposal`.

    """
    commitlog, hold = (
        None if path is None else Path(path) for path in (config.commitlog, config.hold)
    )
    inotify, clock = Inotify(), _Clock()
    watch = FolderWatch(inotify, clock.monotonic_ms)
    log = LogDirectory(Path(config.cdc_raw), commitlog, hold=hold, watch=watch)
    log.check()
    events = structlog.stdlib.get_logger()
    retention = SegmentRetention(log, config.disposal_of, clock, events)
    retention.check()
    return AgentServer(
        log,
        retention,
        inotify,
        token=config.token,
        rate_bytes=config.rate_bytes,
        hosts=(*config.hosts, *config.certified_hosts()),
        events=events,
    )


async def _serve(config: AgentConfig) -> int:
    server = server_of(config)
    runner = runner_of(server.application(), stop_seconds=STOP_SECONDS_MAX)
    over, sending = asyncio.Event(), contextlib.ExitStack()
    loop, events = asyncio.get_running_loop(), structlog.stdlib.get_logger()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    try:
        host, port = await listen(runner, *config.address, config.tls())
        events.info("agent_started", host=host, port=port)
        open_sender(
            config.otel_endpoint,
            config.otel_every_seconds,
            sending,
            key=_OTEL_KEY,
            instance=f"{socket.gethostname()}:{port}",
            measures=server.measures,
            labels={},
            clock=_Clock(),
            log=events,
        )
        keeping = asyncio.create_task(server.keep())
        ending = asyncio.create_task(over.wait())
        await asyncio.wait((keeping, ending), return_when=asyncio.FIRST_COMPLETED)
        if keeping.done():
            keeping.result()
        keeping.cancel()
    finally:
        await asyncio.to_thread(sending.close)
        await runner.cleanup()
        server.close()
    return 0


def _disposal_problems(disposal: str | None, hold: str | None) -> Iterator[Problem]:
    said = disposal or "keep"
    if said not in {"keep", "delete"} and not said.removeprefix(_ARCHIVE).startswith("/"):
        yield Problem("disposal", "expected keep, delete or archive:/a/directory")
    if hold is not None and disposal == "keep":
        yield Problem("disposal", "a hold that keeps all would grow for ever", "delete")


def _config(arguments: Sequence[str]) -> AgentConfig:
    parser = CommandParser(
        prog="headrace agent",
        description="Serve the log of the Cassandra node on this machine to workers elsewhere.",
    )
    add_options(parser, AgentConfig)
    return config_of(AgentConfig, parser.parse_args(arguments))
