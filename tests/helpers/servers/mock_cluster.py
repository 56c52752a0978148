"""librdkafka's mock brokers with errors on request, which its Python client does not offer."""

import ctypes
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import confluent_kafka

PRODUCE: Final = 0  # The API keys of requests.
LIST_OFFSETS: Final = 2


def _library() -> ctypes.CDLL:
    folder = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs")
    (path,) = folder.glob("librdkafka-*.so*")
    library = ctypes.CDLL(str(path))  # The one that the client has loaded already.
    for name in ("conf_new", "new", "mock_cluster_new"):
        getattr(library, f"rd_kafka_{name}").restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return library


class MockCluster:
    """A separate cluster of one broker, so that its errors affect no other test."""

    def __init__(self) -> None:
        """Start it."""
        self._library = _library()
        reason = ctypes.create_string_buffer(256)
        configuration = ctypes.c_void_p(self._library.rd_kafka_conf_new())
        handle = self._library.rd_kafka_new(0, configuration, reason, len(reason))
        assert handle, reason.value
        self._handle = ctypes.c_void_p(handle)
        self._cluster = ctypes.c_void_p(self._library.rd_kafka_mock_cluster_new(self._handle, 1))
        servers = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster)
        self.bootstrap_servers: str = servers.decode()

    def answer(self, *errors: int, request: int = PRODUCE) -> None:
        """Answer the next requests of a kind with these errors, and later ones without."""
        array = (ctypes.c_int * len(errors))(*errors)
        self._library.rd_kafka_mock_push_request_errors_array(
            self._cluster, ctypes.c_int16(request), ctypes.c_size_t(len(errors)), array
        )

    def delay(self, ms: int) -> None:
        """Delay all answers."""
        self._library.rd_kafka_mock_broker_set_rtt(
            self._cluster, ctypes.c_int32(1), ctypes.c_int(ms)
        )

    def down(self) -> None:
        """Close all connections, and accept none."""
        self._library.rd_kafka_mock_broker_set_down(self._cluster, ctypes.c_int32(1))

    def up(self) -> None:
        """Accept connections again."""
        self._library.rd_kafka_mock_broker_set_up(self._cluster, ctypes.c_int32(1))

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it."""
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._handle)
