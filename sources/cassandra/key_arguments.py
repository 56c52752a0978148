"""The options of commands that read encrypted segments. Secrets are given as references."""

import argparse
from typing import Final

from headrace.plugins import ConfigError, Problem, resolve
from headrace.sources.cassandra.keys import KeyOptions, Keys

_SECRETS: Final = ("keystore_password", "key_password", "raw_key")


def add_key_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options; `keys_of` reads them."""
    group = parser.add_argument_group("encrypted segments")
    group.add_argument(
        "--keystore", metavar="FILE", help="a copy of the node's key store, JCEKS or PKCS12"
    )
    group.add_argument(
        "--keystore-password",
        metavar="REF",
        help="a reference to its password: '${env:KSPW}', '${file:/path:key}', '${dir:/path:key}'",
    )
    group.add_argument(
        "--key-password", metavar="REF", help="likewise, if the key has a password of its own"
    )
    group.add_argument(
        "--raw-key",
        metavar="REF",
        help="instead of a key store, a reference to the AES key in hexadecimal digits",
    )


def keys_of(options: argparse.Namespace) -> Keys:
    """Return the keys that the options give. Reads files.

    Raises:
        ConfigError: an option is missing, is in vain, or has a secret where a reference belongs.
        SecretUnavailableError: a reference leads to nothing.
        SegmentKeyError: the key store cannot be read.

    """
    given = vars(options)
    secrets = {
        name: resolve(given[name], place=_flag(name))
        for name in _SECRETS
        if given[name] is not None
    }
    found = KeyOptions(keystore=options.keystore, **secrets)
    problems = [Problem(_flag(p.key), p.message, p.hint) for p in found.problems()]
    if problems:
        raise ConfigError(problems)
    return Keys(found)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
