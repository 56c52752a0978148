"""Checks hosts in URIs: an ambiguous or internal one is rejected.

Literal addresses are checked where they are given, including the forms that some resolvers accept.
The addresses of a name may change: they are checked when a connection is made.
"""

import ipaddress
import re
import socket
from typing import Final

# Names by label: letters, digits, hyphens; also underscores, which container networks have.
_LABEL: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
_NUMBERS: Final = re.compile(r"(?:0[xX][0-9A-Fa-f]*|[0-9]+)(?:\.(?:0[xX][0-9A-Fa-f]*|[0-9]+))*")
_NAME_CHARS_MAX: Final = 253
_V4: Final = 4  # For IPv6, the loopback is reserved, too.
_METADATA: Final = ("169.254.169.254", "fd00:ec2::254", "100.100.100.200")


def host_problem(host: str) -> str:
    """Return the problem of *host*, a name or an address without brackets; "" if it is valid."""
    if not host:
        return "is empty"
    if "%" in host:
        return "has a zone"
    if ":" in host or _NUMBERS.fullmatch(host):
        return address_problem(host)
    if len(host) > _NAME_CHARS_MAX or not all(map(_LABEL.fullmatch, host.split("."))):
        return "is not a host name"
    if any(label.lower().startswith("xn--") for label in host.split(".")):
        return "is written in punycode"
    return ""


def dialled_problem(host: str) -> str:
    """Return the problem of a current address of *host*; "" if all are valid.

    Blocks for the name lookup; a name that cannot be resolved is not reported here.
    """
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ""
    for *_, (address, *_) in found:
        if problem := address_problem(str(address).partition("%")[0]):
            return f"stands for {address}, which {problem}"
    return ""


def address_problem(host: str) -> str:
    """Return the problem of an address; "" if it is valid."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "is an address that can be read in two ways"
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    if str(address) in _METADATA or address.is_link_local:
        return "is an address of the link itself"
    if address.is_multicast:
        return "is an address of a group"
    if address.is_unspecified or (address.version == _V4 and address.is_reserved):
        return "is not the address of a host"
    return ""
