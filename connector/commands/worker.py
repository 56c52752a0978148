"""`headrace worker`: runs all jobs of a state file, in processes for each, and serves HTTP."""

import asyncio
import os
import signal
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import structlog

from headrace.connector.commands.job_parser import add_engine, check_engine, engine_arguments
from headrace.connector.control.entries import SPARK
from headrace.connector.control.jobs import read_worker
from headrace.connector.foundation.job_file import FILE_SUFFIXES, state_given
from headrace.connector.hosting.supervisor import JobProcess, Supervisor
from headrace.connector.obs.logging import threshold
from headrace.connector.obs.metrics import merged
from headrace.connector.rest.auth import Authenticator
from headrace.connector.rest.config import RestConfig, addresses
from headrace.connector.rest.logins import CassandraLogins
from headrace.connector.rest.server import RestServer
from headrace.connector.rest.users import read_users
from headrace.connector.runtime.splits.watch import RestartPolicy
from headrace.connector.stores.job import WorkerFile
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins import ConfigError, HeadraceError, Problem, parse_config
from headrace.plugins.config.arguments import CommandParser

FORCED_STATUS: Final = 1
PUMPS_MAX: Final = 256


def worker_main(arguments: Sequence[str]) -> int:
    """Run until SIGTERM. Returns the exit status."""
    parser = CommandParser(
        prog="headrace worker",
        description="Run all jobs that the statements of a state file define, and serve HTTP.",
    )
    parser.add_argument(
        "file",
        nargs="?",
        metavar="WORKER.yaml",
        help="a job file without a job, or a state file, which is made if it is missing; default: "
        "HEADRACE_STATE, or headrace.db",
    )
    parser.add_argument(
        "--rest", metavar="HOST:PORT", help="the address of the HTTP server, instead of the file's"
    )
    parser.add_argument(
        "--pumps",
        type=int,
        choices=range(1, PUMPS_MAX + 1),
        default=1,
        metavar="N",
        help="processes for each job, which share its splits",
    )
    parser.add_argument(
        "--new-state",
        action="store_true",
        help="start jobs over, though files beside the logs say that they have run before",
    )
    add_engine(parser)
    given = parser.parse_args(arguments)
    check_engine(given, by_source=True)
    if given.engine == SPARK and given.pumps > 1:
        said = f"on Spark a job has one driver, found {given.pumps}"
        raise ConfigError([Problem("--pumps", said, "leave it out: --master says how many tasks")])
    file = state_given(given.file, create=True)
    if file.suffix not in FILE_SUFFIXES and not file.exists():
        open_notes(file).close()
    written = read_worker(file)
    rest = dict(written.rest)
    if given.rest is not None:
        rest |= {"listen": given.rest, "listen_services": ""}
    config = parse_config(RestConfig, rest, place=f"{file}: rest")
    more = (*engine_arguments(given), *(["--new-state"] if given.new_state else []))
    return asyncio.run(_serve(file.absolute(), written, config, more, pumps=given.pumps))


async def _serve(
    path: Path, written: WorkerFile, config: RestConfig, more: Sequence[str], *, pumps: int
) -> int:
    log = structlog.stdlib.get_logger()
    supervisor = Supervisor(
        written.state,
        lambda job: JobProcess(path, job, threshold(), *more),
        log=log,
        policy=RestartPolicy(
            restarts_max=written.runtime.restarts_max,
            pause_ms=round(written.runtime.restart_pause_seconds * 1000),
        ),
        pumps=pumps,
    )
    server = RestServer(
        written.state,
        log=log,
        hosts=config.hosts,
        authenticator=authenticator_of(config, path.parent),
        metrics=lambda: merged(supervisor.metrics_ports()),
        connect_names=config.metrics_connect_names,
        file=path,
        runs=lambda: _runs(written.state),
    )
    tls = tls_of(config, path.parent)
    over = asyncio.Event()
    _end_by_signals(over, supervisor.kill)
    loop, failures = asyncio.get_running_loop(), list[HeadraceError]()

    def supervise() -> None:
        try:
            supervisor.run()
        except HeadraceError as error:  # Jobs are not supervised: stop serving.
            failures.append(error)
        finally:
            loop.call_soon_threadsafe(over.set)

    thread = threading.Thread(target=supervise, name="supervisor")
    try:
        for address in addresses(config.listen):
            await server.start(address, tls)
        for address in addresses(config.listen_services):
            await server.start(address, tls, services_only=True)
        thread.start()
        await over.wait()
    finally:
        supervisor.stop()
        await server.close()
        if thread.ident is not None:
            await loop.run_in_executor(None, thread.join)
    if failures:
        raise failures[0]
    return 0


def _runs(place: Path) -> Sequence[Mapping[str, Any]]:  # Any: JSON.
    """Return the runs of bulk work; none if its packages are not installed."""
    try:
        from headrace.connector.replay.runs import run_documents  # noqa: PLC0415 (slow, seldom needed)
    except ModuleNotFoundError:
        return ()
    return run_documents(place)


def authenticator_of(config: RestConfig, folder: Path) -> Authenticator:
    """Return the authenticator; paths are relative to *folder*. Raises ConfigError."""
    users, certificates = read_users(folder / config.users) if config.users else (None, None)
    bearers = None
    if config.jwt_keys and config.jwt_issuer and config.jwt_audience:
        from headrace.connector.rest.bearers import Bearers  # noqa: PLC0415 (slow, seldom needed)

        https = config.jwt_keys.startswith("https://")
        bearers = Bearers(
            keys=config.jwt_keys if https else str(folder / config.jwt_keys),
            issuer=config.jwt_issuer,
            audience=config.jwt_audience,
            role_claim=config.jwt_role_claim,
        )
    logins = _logins(config, folder) if config.cassandra else None
    return Authenticator(users=users, certificates=certificates, bearers=bearers, logins=logins)


def _logins(config: RestConfig, folder: Path) -> CassandraLogins:
    """Return the logins by Cassandra's users; each is checked over a connection of its own."""
    from headrace.connector.shell.cql import CqlConnection, CqlTarget  # noqa: PLC0415 (slow, seldom needed)

    (node,) = addresses((str(config.cassandra),))
    tls = _tls_to_cassandra(folder / config.cassandra_ca) if config.cassandra_ca else None

    def connect(name: str, password: str) -> CqlConnection:
        target = CqlTarget(
            host=node.host, port=node.port, username=name, password=password, tls=tls
        )
        return CqlConnection(target)

    return CassandraLogins(connect)


def _tls_to_cassandra(authority: Path) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=str(authority))
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError([Problem("rest.cassandra_ca", f"cannot be used: {reason}")]) from error
    context.check_hostname = False  # Nodes are named by address.
    return context


def tls_of(config: RestConfig, folder: Path) -> ssl.SSLContext | None:
    """Return the TLS context of connections; None for plain text. Raises ConfigError."""
    if config.tls_certificate is None or config.tls_key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(folder / config.tls_certificate, folder / config.tls_key)
        if config.tls_client_ca:
            context.load_verify_locations(folder / config.tls_client_ca)
            context.verify_mode = ssl.CERT_OPTIONAL
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError([Problem("rest.tls_certificate", f"cannot be used: {reason}")]) from error
    return context


def _end_by_signals(over: asyncio.Event, kill: Callable[[], None]) -> None:
    """Stop cleanly at the first SIGTERM or SIGINT, and at once at the second."""
    heard = 0

    def hear() -> None:
        nonlocal heard
        heard += 1
        if heard > 1:
            kill()
            os._exit(FORCED_STATUS)
        over.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, partial(hear))
