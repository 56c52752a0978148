"""Keys from stores that Java's keytool made, and everything that can be wrong with them."""

import hashlib
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.plugins import HeadraceError
from headrace.sources.cassandra.errors import (
    KeySizeError,
    KeyStoreError,
    KeyStorePasswordError,
    NoKeyError,
)
from headrace.sources.cassandra.keystore.jceks import read_jceks
from headrace.sources.cassandra.keystore.keys import KeyOptions, Keys
from headrace.sources.cassandra.keystore.pkcs12 import read_pkcs12
from helpers.recordings.corpora import CORPORA

STORES = CORPORA / "keystores"
WRONG = "canary"
PASSWORD = "cassandra"  # noqa: S105 (of stores made for these tests)
JCEKS, PKCS12, JAVA8 = STORES / "secret.jceks", STORES / "secret.p12", STORES / "java8.p12"
KEYS = {  # As `KeyStore.getKey` of Java gives them.
    JCEKS: {
        "testing:128": "8cd5e11e22243b912752c467bd926c77",
        "testing:192": "7d0541b6ea0f2ab32b939ff358aaaa02a6ee672297dda39f",
        "testing:256": "71eafb311ed2365d459181a2507c5971a7477ed48026ec31b8df3c55723c6df5",
    },
    PKCS12: {
        "testing:128": "c7ddc44ee4cbaf97e40ca6a3bdbc2a14",
        "testing:192": "7461451c2f8b670e65cd415ae1f9143734b85a0a45655932",
        "testing:256": "ecd5a66675b145f2fa17e25704e8bca534eb12bd89f40da1236192a010d827a6",
    },
    JAVA8: {"testing:128": "e6c4c91d39699b012b539ba6323bb4f2"},
}


def options(store: Path, *, store_password: str = PASSWORD, key: str | None = None) -> KeyOptions:
    """Return the options for one of the stores."""
    if store == JCEKS and key is None:
        key = "keypass"
    return KeyOptions(keystore=str(store), keystore_password=store_password, key_password=key)


@pytest.mark.parametrize("store", KEYS, ids=lambda path: path.name)
def test_keys_are_those_that_java_finds(store: Path) -> None:
    """Every AES key, with any capitals in its name; certificates and pairs do not disturb."""
    keys = Keys(options(store))

    assert KEYS[store] == {name: keys.key(name.upper()).material.hex() for name in KEYS[store]}


def test_a_key_is_opened_once() -> None:
    """The same object comes again, and so does what is known of it."""
    keys = Keys(options(PKCS12))

    assert keys.key("Testing:128") is keys.key("testing:128")


@pytest.mark.parametrize(
    ("given_options", "alias", "error", "expected"),
    [
        (KeyOptions(), "a", NoKeyError, "called 'a', and no key is given"),
        (options(PKCS12), "b", NoKeyError, "has none such"),
        (options(PKCS12, key="canary"), "testing:128", KeyStorePasswordError, "does not open"),
        (options(JCEKS, key="canary"), "testing:128", KeyStorePasswordError, "does not open"),
        (options(JAVA8, key="canary"), "testing:128", KeyStorePasswordError, "does not open"),
        (options(JCEKS), "des", KeySizeError, "expected 16, 24 or 32 bytes, found 8"),
    ],
)
def test_a_key_that_cannot_be_had(
    given_options: KeyOptions, alias: str, error: type[HeadraceError], expected: str
) -> None:
    """Each reason is an error of its own, which shows neither password nor key."""
    keys = Keys(given_options)
    with pytest.raises(error, match=expected) as caught:
        keys.key(alias)

    assert 2 == caught.value.exit_status
    assert caught.value.hint
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("given_options", "error", "expected"),
    [
        (options(JCEKS, store_password=WRONG), KeyStorePasswordError, "does not open"),
        (options(PKCS12, store_password=WRONG), KeyStorePasswordError, "does not open"),
        (options(PKCS12, store_password=WRONG[:0]), KeyStorePasswordError, "does not open"),
        (options(STORES / "gone"), KeyStoreError, "No such file"),
        (options(STORES), KeyStoreError, "Is a directory"),
        (options(STORES / "README.md"), KeyStoreError, "no key store"),
        (KeyOptions(raw_key="canary"), KeySizeError, "hexadecimal"),
        (KeyOptions(raw_key="00" * 15), KeySizeError, "found 15"),
        (KeyOptions(raw_key=""), KeySizeError, "found 0"),
    ],
)
def test_a_store_that_cannot_be_read(
    given_options: KeyOptions, error: type[HeadraceError], expected: str
) -> None:
    """It is said at once, with the path and without the password."""
    with pytest.raises(error, match=expected) as caught:
        Keys(given_options)

    assert "canary" not in str(caught.value)
    assert "canary" not in repr(given_options)


def test_a_raw_key_is_for_every_name() -> None:
    """The header's name does not matter to it; white space around it neither."""
    keys = Keys(KeyOptions(raw_key=f" {bytes(range(24)).hex()}\n"))

    assert bytes(range(24)) == keys.key("any").material


def test_jks_is_named(tmp_path: Path) -> None:
    """Java's oldest kind of store holds no secret keys, and the error says so."""
    (tmp_path / "old.jks").write_bytes(bytes.fromhex("feedfeed00000002"))
    with pytest.raises(KeyStoreError, match="a JKS store"):
        Keys(options(tmp_path / "old.jks"))


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=300)
@given(data=st.data())
def test_a_damaged_jceks_store_is_named(data: st.DataObject) -> None:
    """Also one whose digest is right: it may be made to harm."""
    content = bytearray(JCEKS.read_bytes()[:-20])
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    body = bytes(content[: data.draw(st.integers(8, len(content)))])
    digest = hashlib.sha1(PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body)  # noqa: S324 (the format's)
    with suppress(KeyStoreError):
        found = read_jceks(body + digest.digest(), PASSWORD)
        assert len(found) <= len(read_jceks(JCEKS.read_bytes(), PASSWORD))


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=60)
@given(data=st.data())
def test_a_damaged_pkcs12_store_is_named(data: st.DataObject) -> None:
    """With any byte wrong, and wherever it is cut."""
    content = bytearray(PKCS12.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    cut = bytes(content[: data.draw(st.sampled_from([len(content), len(content) // 2]))])
    with suppress(KeyStoreError, KeyStorePasswordError):
        found = read_pkcs12(cut, PASSWORD)
        assert found == read_pkcs12(PKCS12.read_bytes(), PASSWORD)


@pytest.mark.parametrize(
    ("given_options", "keys"),
    [
        ("", []),
        ("keystore keystore_password", []),
        ("keystore keystore_password key_password", []),
        ("raw_key", []),
        ("keystore", ["keystore_password"]),
        ("key_password", ["key_password"]),
        ("keystore_password raw_key", ["keystore_password"]),
        ("keystore keystore_password raw_key", ["raw_key"]),
    ],
)
def test_options_belong_together(given_options: str, keys: list[str]) -> None:
    """What is missing, or given without success, is reported by its name."""
    found = KeyOptions(**dict.fromkeys(given_options.split(), "x"))

    assert keys == [problem.key for problem in found.key_problems()]
