"""Where a state file may be."""

from pathlib import Path

import pytest

from headrace.connector.stores import StateFileError
from headrace.connector.stores.sqlite.file import connect
from headrace.connector.stores.sqlite.place import network_file_system

MOUNTS = """\
/dev/vda / ext4 rw 0 0
tmpfs /dev/shm tmpfs rw 0 0
server:/export /mnt/shared nfs4 rw,vers=4.2 0 0
//host/share /mnt/shared/my\\040files cifs rw 0 0
user@host: /home/me/remote fuse.sshfs rw 0 0
/dev/vdb /mnt/shared/local xfs rw 0 0
"""


@pytest.mark.parametrize(
    ("name", "create", "message"),
    [
        ("missing/state.db", True, "its directory does not exist"),
        (".", True, "is a directory"),
        ("state.db", False, "the state file does not exist"),
    ],
)
def test_refuses_a_bad_place(tmp_path: Path, name: str, create: bool, message: str) -> None:  # noqa: FBT001 (a table of cases)
    """What is wrong with the place is said with the path."""
    with pytest.raises(StateFileError, match=message) as caught:
        connect(tmp_path / name, create=create)

    assert str(tmp_path / name) == caught.value.place
    assert 3 == caught.value.exit_status


def test_refuses_what_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory without write permission is refused before anything is tried."""
    monkeypatch.setattr("os.access", lambda *_: False)  # The tests may run as root.
    with pytest.raises(StateFileError, match="is not writable"):
        connect(tmp_path / "state.db")

    assert not (tmp_path / "state.db").exists()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/var/lib/state.db", ""),
        ("/dev/shm/state.db", ""),  # noqa: S108 (only a text)
        ("/mnt/shared/state.db", "nfs4"),
        ("/mnt/sharedness/state.db", ""),
        ("/mnt/shared/my files/state.db", "cifs"),
        ("/mnt/shared/local/state.db", ""),
        ("/home/me/remote/a/b/state.db", "fuse.sshfs"),
    ],
)
def test_knows_network_file_systems(path: str, expected: str) -> None:
    """The innermost mount decides."""
    assert expected == network_file_system(path, MOUNTS)
