"""Agents for the logs of a job, each a process of its own, over TLS on the loopback."""

import datetime as dt
import ipaddress
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from bench.starting import HEADRACE, ready_line

_HOST: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class FarJob:
    """A job that reads through agents, and the processes of these."""

    path: Path
    agents: Sequence[int]

    def cpu_ns(self) -> Sequence[int]:
        """Return the CPU time that each agent has taken so far, of all its threads."""
        return [
            sum(
                int(each.read_text().split()[0])
                for each in Path(f"/proc/{pid}/task").glob("*/schedstat")
            )
            for pid in self.agents
        ]


@contextmanager
def through_agents(job: Path) -> Iterator[FarJob]:
    """Provide a job that reads what *job* reads, but through an agent for each node."""
    document = yaml.safe_load(job.read_text())
    nodes = document["source"]["nodes"]
    certificate, key = _certificate(job.parent)
    with ExitStack() as stack:
        tls = ("--tls-certificate", str(certificate), "--tls-key", str(key))
        agents = {node: stack.enter_context(agent(path, *tls)) for node, path in nodes.items()}
        document["source"]["nodes"] = {node: {"url": url} for node, (url, _) in agents.items()}
        document["source"]["agent_ca"] = str(certificate)
        far = job.with_name("far.yaml")
        far.write_text(yaml.safe_dump(document))
        yield FarJob(far, [pid for _, pid in agents.values()])


@contextmanager
def agent(folder: str, *options: str) -> Iterator[tuple[str, int]]:
    """Serve the log in *folder* with an agent; give its URL and its process."""
    scheme = "https" if "--tls-certificate" in options else "http"
    with subprocess.Popen(  # noqa: S603 (headrace itself)
        [
            *(sys.executable, "-c", HEADRACE, "agent", "--cdc-raw", folder),
            *("--listen", f"{_HOST}:0", *options),
        ],
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            started = json.loads(ready_line(child, "stderr", "agent_started"))
            yield f"{scheme}://{_HOST}:{started['port']}", child.pid
        finally:
            child.terminate()


def _certificate(folder: Path) -> tuple[Path, Path]:
    """Return a certificate of this machine's loopback, which signed itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bench")])
    now = dt.datetime.now(dt.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(_HOST))])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(address, critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate, private = folder / "agent.pem", folder / "agent.key"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate, private
