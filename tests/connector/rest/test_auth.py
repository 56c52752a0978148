"""Who is let in, as whom, and that no one is let in by mistake."""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Any

import argon2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm

from headrace.connector.commands.worker import authenticator_of
from headrace.connector.rest.auth import CHECKS_WAITING_MAX, Authenticator
from headrace.connector.rest.bearers import Bearers
from headrace.connector.rest.config import RestConfig
from headrace.connector.rest.server import RestServer
from headrace.plugins import ConfigError, parse_config
from headrace.plugins.testing.doubles import context
from helpers.jobs.children import SECONDS_MAX
from helpers.servers.rest_server import Answer, Client, basic, serving

HASHER = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
KEY = ec.generate_private_key(ec.SECP256R1())
USERS = "users:\n" + "".join(
    f"  {role}: {{password: '{HASHER.hash(role + '-pw')}', role: {role}}}\n"
    for role in ("viewer", "operator", "admin")
)


def bearer(
    claims: dict[str, Any],
    key: Any = KEY,  # noqa: ANN401 (a key)
    algorithm: str = "ES256",
    head: dict[str, Any] | None = None,
) -> dict[str, str]:
    """Return the header of a token."""
    whole = {
        "sub": "bob",
        "iss": "https://id.example",
        "aud": "headrace",
        "exp": time.time() + 60,
        "role": "operator",
    } | claims
    whole = {name: value for name, value in whole.items() if value is not None}
    token = jwt.encode(
        whole, key, algorithm=algorithm, headers={"kid": "1"} if head is None else head
    )
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture(scope="module")
def client(shared_state: Path) -> Iterator[Client]:
    """Return a client of a server that asks for a password or a token."""
    tmp_path = shared_state.parent
    (tmp_path / "users.yaml").write_text(USERS)
    public = json.loads(ECAlgorithm(ECAlgorithm.SHA256).to_jwk(KEY.public_key()))
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": [public | {"kid": "1"}]}))
    config = RestConfig(
        users="users.yaml",
        jwt_keys="jwks.json",
        jwt_issuer="https://id.example",
        jwt_audience="headrace",
    )
    authenticator = authenticator_of(config, tmp_path)
    server = RestServer(shared_state, log=context().log, authenticator=authenticator)
    with serving(server) as address:
        yield Client(address.port)


def asked(client: Client, headers: dict[str, str]) -> list[int]:
    """Return what a caller gets for reading, steering and changing."""
    return [
        client("GET", "/connectors", None, **headers).status,
        client("POST", "/api/v1/sources/none/pause", None, **headers).status,
        client("DELETE", "/api/v1/sinks/none", None, **headers).status,
    ]


@pytest.mark.parametrize(
    ("role", "expected"),
    [("viewer", [200, 403, 403]), ("operator", [200, 404, 403]), ("admin", [200, 404, 404])],
)
def test_basic(client: Client, role: str, expected: list[int]) -> None:
    """A user may do what the role says; who may not learns nothing of what is there."""
    assert expected == asked(client, basic(role, f"{role}-pw"))
    assert expected == asked(client, basic(role, f"{role}-pw"))


def test_bearer(client: Client) -> None:
    """A good token has the highest of our roles that it claims."""
    assert [200, 404, 403] == asked(client, bearer({}))
    assert [200, 404, 404] == asked(client, bearer({"role": ["other", "viewer", "admin"]}))
    assert [403, 403, 403] == asked(client, bearer({"role": "other"}))
    assert [403, 403, 403] == asked(client, bearer({"role": None}))


def _refused(answer: Answer) -> bool:
    challenge = answer.headers.get("www-authenticate", "")
    return 401 == answer.status == answer.json["error_code"] and challenge.startswith("Basic")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        basic("viewer", "wrong"),
        basic("nobody", "viewer-pw"),
        basic("viewer", ""),
        {"Authorization": "Basic !!!"},
        {"Authorization": "Basic " + "A" * 9_000},
        {"Authorization": "Bearer x.y.z"},
        {"Authorization": "Digest x"},
        bearer({"exp": 1}),
        bearer({"exp": None}),
        bearer({"aud": "other"}),
        bearer({"iss": "https://evil.example"}),
        bearer({"sub": None}),
        bearer({}, ec.generate_private_key(ec.SECP256R1())),
        bearer({}, "secret-secret-secret-secret-secret", "HS256"),
        bearer({}, "", "none"),
        bearer({}, head={}),
        bearer({}, head={"kid": "unknown"}),
        bearer({}, head={"kid": ""}),
        bearer({}, rsa.generate_private_key(65537, 2048), "RS256"),
        bearer({"role": ["admin", 1]}),
        bearer({"role": [["admin"]]}),
        bearer({"role": [{"admin": True}]}),
        bearer({"role": {"admin": True}}),
        bearer({"role": 3}),
        bearer({"exp": "soon"}),
        bearer({"aud": [1]}),
        {"Authorization": "Bearer e30.e30.e30"},
        {"Authorization": "Bearer W10.W10.W10"},
        {"Authorization": "Bearer eyJhbGciOiJFUzI1NiIsImtpZCI6WzFdfQ.e30.e30"},
        {"Authorization": "Bearer eyJhbGciOlsxXSwia2lkIjoiMSJ9.e30.e30"},
        {"Authorization": "Bearer \xff.\xff.\xff"},
        {"Authorization": "Basic \xff\xfe"},
        {"Authorization": "Basic /w=="},
        {"Authorization": "Basic OmE="},
        {"Authorization": "\xff"},
    ],
    ids=lambda headers: str(headers)[:40],
)
def test_nobody(client: Client, headers: dict[str, str]) -> None:
    """Without a good login there is no answer but the question who it is."""
    for method, path in (("GET", "/"), ("GET", "/no-such-path"), ("PUT", "/connectors/x/pause")):
        answer = client(method, path, None, **headers)
        assert _refused(answer) or answer.status == 400
    assert client("GET", "/health").status == 200


def test_logins_wait_in_a_bounded_queue(client: Client) -> None:
    """More logins than can be checked soon are sent away; who was let in before is not kept out."""
    assert 200 == client("GET", "/", None, **basic("admin", "admin-pw")).status
    with ThreadPoolExecutor(2 * CHECKS_WAITING_MAX) as pool:
        held = threading.Event()
        verify = argon2.PasswordHasher.verify

        def slow(*given: Any) -> bool:  # noqa: ANN401 (passed on)
            held.wait(SECONDS_MAX)
            return verify(*given)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(argon2.PasswordHasher, "verify", slow)
            ask = partial(client, "GET", "/", None, **basic("viewer", "wrong"))
            asked = [pool.submit(ask) for _ in range(2 * CHECKS_WAITING_MAX)]
            done, _ = wait(asked, SECONDS_MAX, FIRST_COMPLETED)
            assert 503 == next(iter(done)).result().status
            assert 200 == client("GET", "/", None, **basic("admin", "admin-pw")).status
            assert 200 == client("GET", "/health").status
            held.set()
            found = Counter(future.result(SECONDS_MAX).status for future in asked)
    assert {401, 503} == set(found)
    assert CHECKS_WAITING_MAX <= found[401]


@pytest.mark.parametrize(
    ("given", "key", "message"),
    [
        ({"listen": "0.0.0.0:1"}, "listen", "TLS and authentication are needed"),
        ({"listen": "[::]:1"}, "listen", "TLS and authentication are needed"),
        ({"listen": ":1"}, "listen", "TLS and authentication are needed"),
        ({"listen_services": "example.com:1"}, "listen_services", "TLS and"),
        ({"listen": "0.0.0.0:1", "users": "u"}, "listen", "TLS and"),
        ({"listen": "h:1", "tls_certificate": "c", "tls_key": "k"}, "listen", "TLS and"),
        ({"tls_certificate": "c"}, "tls_key", "give both"),
        ({"tls_client_ca": "c"}, "tls_client_ca", "needs tls_certificate"),
        ({"jwt_keys": "c"}, "jwt_keys", "needs jwt_issuer"),
        ({"listen": "h:65536"}, "listen", "is not host:port"),
        ({"listen": "nonsense"}, "listen", "is not host:port"),
    ],
)
def test_unsafe_configurations(given: dict[str, str], key: str, message: str) -> None:
    """What others can reach is encrypted and asks who they are, or it does not start."""
    with pytest.raises(ConfigError) as caught:
        parse_config(RestConfig, given)

    assert message in {problem.key: problem.message for problem in caught.value.problems}[key]


def test_safe_configuration() -> None:
    """With TLS and users it may listen everywhere."""
    given = {"listen": "0.0.0.0:1", "tls_certificate": "c", "tls_key": "k", "users": "u"}

    assert parse_config(RestConfig, given)
    assert parse_config(RestConfig, {"listen": "127.0.0.2:1,[::1]:2,localhost:3"})


def test_nothing_shows_a_password() -> None:
    """No repr holds a hash."""
    authenticator = Authenticator(
        bearers=Bearers(keys="k", issuer="i", audience="a", role_claim="role")
    )

    assert not authenticator.open_to_all
    assert Authenticator().open_to_all
