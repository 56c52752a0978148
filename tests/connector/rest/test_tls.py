"""Over TLS: with a password, a token whose keys come by https, and a client's own certificate."""

import http.server
import json
import ssl
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import argon2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from headrace.connector.commands.worker import authenticator_of, tls_of
from headrace.connector.language.statements import DescribeSinks
from headrace.connector.rest.config import RestConfig
from headrace.connector.rest.server import RestServer
from headrace.connector.shell.remote import RemoteError, remote
from headrace.plugins import ConfigError, parse_config
from headrace.plugins.testing.doubles import context
from helpers.servers.authority import Authority
from helpers.servers.rest_server import Client, basic, serving

HASHER = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
KEY = ec.generate_private_key(ec.SECP256R1())
ISSUER, AUDIENCE = "https://id.example", "headrace"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Return an authority that server and clients trust."""
    return Authority(tmp_path_factory.mktemp("authority"), "authority")


@pytest.fixture(scope="module")
def keys_url(authority: Authority) -> Iterator[str]:
    """Serve the keys of tokens by https, as an identity provider does."""
    public = json.loads(ECAlgorithm(ECAlgorithm.SHA256).to_jwk(KEY.public_key()))
    content = json.dumps({"keys": [public | {"kid": "1", "use": "sig"}]}).encode()

    class Keys(http.server.BaseHTTPRequestHandler):
        """Answers with the keys."""

        def do_GET(self) -> None:
            """Answer."""
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Keys)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*authority.issue("provider"))
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"https://localhost:{server.server_address[1]}/keys"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def port(shared_state: Path, authority: Authority, keys_url: str) -> Iterator[int]:
    """Serve over TLS; return the port."""
    state = shared_state
    certificate, key = authority.issue("server")
    hashed = HASHER.hash("ann-pw")
    users = {
        "users": {"ann": {"password": hashed, "role": "operator"}},
        "certificates": {"ops": "admin", "looker": "viewer"},
    }
    (state.parent / "users.yaml").write_text(json.dumps(users))
    config = RestConfig(
        listen=("0.0.0.0:1",),
        tls_certificate=str(certificate),
        tls_key=str(key),
        tls_client_ca=str(authority.file),
        users="users.yaml",
        jwt_keys=keys_url,
        jwt_issuer=ISSUER,
        jwt_audience=AUDIENCE,
        jwt_role_claim="groups",
    )
    authenticator = authenticator_of(config, state.parent)
    server = RestServer(state, log=context().log, authenticator=authenticator)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SSL_CERT_FILE", str(authority.file))  # The provider's, too.
        with serving(server, tls=tls_of(config, state.parent)) as address:
            yield address.port


def asked(client: Client, **headers: str) -> list[int]:
    """Return what a caller gets for reading, steering and changing."""
    return [
        client("GET", "/connectors", None, **headers).status,
        client("POST", "/api/v1/sources/none/pause", None, **headers).status,
        client("DELETE", "/api/v1/sources/none", None, **headers).status,
    ]


def token(**more: object) -> dict[str, str]:
    """Return the header of a bearer's token."""
    claims = {"sub": "bob", "iss": ISSUER, "aud": AUDIENCE, "exp": time.time() + 60} | more
    signed = jwt.encode(claims, KEY, algorithm="ES256", headers={"kid": "1"})
    return {"Authorization": f"Bearer {signed}"}


def test_basic(port: int, authority: Authority) -> None:
    """A password that argon2 knows goes over TLS, and its role decides."""
    client = Client(port, tls=authority.trusting())

    assert [200, 404, 403] == asked(client, **basic("ann", "ann-pw"))
    assert [401, 401, 401] == asked(client, **basic("ann", "wrong"))
    assert [401, 401, 401] == asked(client)


def test_bearer(port: int, authority: Authority) -> None:
    """A token is believed whose key the provider shows by https, and its groups decide."""
    client = Client(port, tls=authority.trusting())

    assert [200, 404, 404] == asked(client, **token(groups=["staff", "admin"]))
    assert [200, 403, 403] == asked(client, **token(groups="viewer"))
    assert [403, 403, 403] == asked(client, **token(groups="staff"))
    assert [401, 401, 401] == asked(client, **token(groups="admin", aud="other"))


def test_certificates(port: int, authority: Authority, tmp_path: Path) -> None:
    """A client's certificate is a login; one of another authority, or too old, is refused."""
    ops, looker = (authority.issue(name) for name in ("ops", "looker"))
    assert [200, 404, 404] == asked(Client(port, tls=authority.trusting(ops)))
    assert [200, 403, 403] == asked(Client(port, tls=authority.trusting(looker)))
    unknown = authority.trusting(authority.issue("unknown"))
    assert [401, 401, 401] == asked(Client(port, tls=unknown))
    for own in (Authority(tmp_path, "others").issue("ops"), authority.issue("late", days=-1)):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            asked(Client(port, tls=authority.trusting(own)))


def test_connections(port: int, authority: Authority, tmp_path: Path) -> None:
    """Old versions, plain HTTP and servers of another authority come to nothing."""
    old = authority.trusting()
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    for tls in (old, Authority(tmp_path, "others").trusting(), None):
        with pytest.raises(OSError):  # noqa: PT011 (of many kinds)
            asked(Client(port, tls=tls))


def test_shell(port: int, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shell comes in by each of the three; a server of another name is refused."""
    monkeypatch.delenv("HEADRACE_REST_TOKEN", raising=False)
    url, trusting = f"https://localhost:{port}", authority.trusting()
    ops = authority.trusting(authority.issue("ops"))
    services = [remote(url, username="ann", password="ann-pw", tls=trusting), remote(url, tls=ops)]  # noqa: S106 (a test's)
    monkeypatch.setenv("HEADRACE_REST_TOKEN", token(groups="viewer")["Authorization"][7:])
    services.append(remote(url, tls=trusting))
    for service in services:
        assert ["k"] == [row[0] for row in service.execute(DescribeSinks()).rows]
    for elsewhere in (f"https://127.0.0.2:{port}", f"http://localhost:{port}"):
        with pytest.raises(RemoteError, match="no answer"):
            remote(elsewhere, tls=trusting).execute(DescribeSinks())


@pytest.mark.parametrize("option", ["tls_certificate", "tls_key", "tls_client_ca"])
def test_bad_files(authority: Authority, tmp_path: Path, option: str) -> None:
    """A file that has no certificate, or no key to it, starts nothing."""
    certificate, key = authority.issue("server")
    files = {
        "tls_certificate": str(certificate),
        "tls_key": str(key),
        "tls_client_ca": str(authority.file),
    }
    (tmp_path / "bad.pem").write_text("bad")
    for bad in ("bad.pem", "none.pem", str(authority.issue("another")[1])):
        with pytest.raises(ConfigError, match="cannot be used"):
            tls_of(parse_config(RestConfig, files | {option: bad}), tmp_path)
