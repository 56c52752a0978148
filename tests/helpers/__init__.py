"""What tests share: imported as `helpers.ROOM.MODULE`, also by the processes that tests start."""

from pathlib import Path

FOLDER = str(Path(__file__).parents[1])  # With this on its path a process can import this package.
