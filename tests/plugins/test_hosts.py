"""A host is named in one way only, and never the machine's own metadata."""

import pytest

from headrace.plugins.hosts import dialled_problem, host_problem


@pytest.mark.parametrize(
    "host",
    ["h", "kafka-1.example.com", "my_broker", "10.0.0.1", "127.0.0.1", "::1", "2001:db8::1", "1a"],
)
def test_good(host: str) -> None:
    """Names, and addresses in their plain form, are hosts."""
    assert "" == host_problem(host)


@pytest.mark.parametrize(
    ("host", "problem"),
    [
        ("", "is empty"),
        ("fe80::1%eth0", "has a zone"),
        ("0x7f.1", "two ways"),
        ("127.1", "two ways"),
        ("2130706433", "two ways"),
        ("0177.0.0.1", "two ways"),
        ("0x7f000001", "two ways"),
        ("1.2.3.4.5", "two ways"),
        ("example.com.", "not a host name"),
        ("-h", "not a host name"),
        ("h-", "not a host name"),
        ("a..b", "not a host name"),
        ("x" * 64, "not a host name"),
        ("a." * 126 + "a", ""),
        ("a." * 128 + "a", "not a host name"),
        ("b\u00fccher.de", "not a host name"),
        ("k\u0430fka", "not a host name"),
        ("xn--bcher-kva.de", "punycode"),
        ("169.254.169.254", "of the link itself"),
        ("169.254.0.1", "of the link itself"),
        ("fe80::1", "of the link itself"),
        ("::ffff:169.254.169.254", "of the link itself"),
        ("fd00:ec2::254", "of the link itself"),
        ("100.100.100.200", "of the link itself"),
        ("224.0.0.1", "of a group"),
        ("ff02::1", "of a group"),
        ("0.0.0.0", "address of a host"),  # noqa: S104 (nothing listens)
        ("::", "address of a host"),
        ("255.255.255.255", "address of a host"),
        ("::gg", "two ways"),
    ],
)
def test_bad(host: str, problem: str) -> None:
    """What can be read in two ways, or reaches where it must not, is not."""
    assert problem in host_problem(host)
    assert bool(problem) is bool(host_problem(host))


@pytest.mark.parametrize(
    ("addresses", "problem"),
    [
        (["10.0.0.1", "::1"], ""),
        (["10.0.0.1", "169.254.169.254"], "stands for 169.254.169.254, which is an address of the"),
        (["fe80::1%eth0"], "stands for fe80::1%eth0, which is an address of the link itself"),
        (["::ffff:100.100.100.200"], "of the link itself"),
        (["239.1.2.3"], "of a group"),
        ([], ""),
    ],
)
def test_what_a_name_stands_for(
    monkeypatch: pytest.MonkeyPatch, addresses: list[str], problem: str
) -> None:
    """Each address is judged as if it were written down; a name that no one knows has none."""

    def resolve(host: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        assert "broker.test" == host
        if not addresses:
            raise OSError
        return [(0, 0, 0, "", (address, 0)) for address in addresses]

    monkeypatch.setattr("socket.getaddrinfo", resolve)

    assert problem in dialled_problem("broker.test")
    assert bool(problem) is bool(dialled_problem("broker.test"))
