"""Certificates of a test's own certificate authority, as files."""

import datetime as dt
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_SIGNS = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


@dataclass
class Authority:
    """A certificate authority of one test, and the folder with the certificates that it issued."""

    folder: Path
    name: str

    def __post_init__(self) -> None:
        """Make the authority's own certificate."""
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = _named(self.name)
        builder = self._builder(self._subject, self._key.public_key())
        builder = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        ).add_extension(_SIGNS, critical=True)
        self.file = self._write(self.name, builder.sign(self._key, hashes.SHA256()))

    def issue(self, name: str, *, days: int = 1) -> tuple[Path, Path]:
        """Return certificate and key of *name*, which is also valid for localhost."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = self._builder(_named(name), key.public_key(), days=days)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = self._write(name, builder.sign(self._key, hashes.SHA256()))
        kept = self.folder / f"{name}.key"
        kept.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return certificate, kept

    def trusting(self, own: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        """Return a client's context that trusts this authority."""
        made = ssl.create_default_context(cafile=str(self.file))
        if own:
            made.load_cert_chain(*own)
        return made

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, *, days: int = 1
    ) -> x509.CertificateBuilder:
        end = dt.datetime.now(dt.UTC) + dt.timedelta(days=days)
        issuer = self._key.public_key()
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(end - dt.timedelta(days=2))
            .not_valid_after(end)
            # From Python 3.13 on a chain without these, and the use of the key, is not trusted.
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), critical=False
            )
        )

    def _write(self, name: str, certificate: x509.Certificate) -> Path:
        file = self.folder / f"{name}.pem"
        file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return file


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
