"""Memory for answers is used again."""

import pytest

from headrace.sources.cassandra.agent.rooms import ROOM_BYTES, ROOMS_MAX, Rooms

MEBIBYTE = 1024 * 1024


@pytest.mark.parametrize("count", [0, 1, MEBIBYTE, ROOM_BYTES, ROOM_BYTES + 1])
def test_there_is_room_for_what_is_wanted(count: int) -> None:
    """Of any size, also in memory that was used for less."""
    rooms = Rooms()
    rooms.give_back(rooms.take(MEBIBYTE))
    room = rooms.take(count)

    assert len(room) >= count
    assert not room.readonly


def test_what_was_given_back_is_used_again() -> None:
    """And only that: two answers under way never share memory."""
    rooms = Rooms()
    first, second = rooms.take(MEBIBYTE), rooms.take(2 * MEBIBYTE)
    first[0], second[0] = 1, 2
    assert 1 == first[0]
    rooms.give_back(first)

    assert 1 == rooms.take(3 * MEBIBYTE)[0]
    assert 0 == rooms.take(MEBIBYTE)[0]


def test_only_some_memory_is_kept() -> None:
    """What many answers took at once goes back to the system, as does what was for a long one."""
    rooms = Rooms()
    taken = [rooms.take(MEBIBYTE) for _ in range(ROOMS_MAX + 3)]
    for number, room in enumerate(taken, 1):
        room[0] = number
        rooms.give_back(room)
    rooms.give_back(rooms.take(ROOM_BYTES + 1))

    found = [rooms.take(MEBIBYTE)[0] for _ in range(ROOMS_MAX + 1)]
    assert [0, *range(1, ROOMS_MAX + 1)] == sorted(found)
