"""Calls librdkafka's own API, as its public header `rdkafka.h` documents it.

The library is the one that confluent-kafka has loaded. Structures are declared here as the header
of version 2 has them; `load` refuses another version, and a library in which a function is missing.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset, strdup
from posix.dlfcn cimport RTLD_NOW, dlopen, dlsym

cdef enum:
    _PRODUCER = 0
    _COPY = 0x2  # RD_KAFKA_MSG_F_COPY
    _UNASSIGNED = -1  # RD_KAFKA_PARTITION_UA
    # RD_KAFKA_VTYPE_...
    _RKT = 2
    _PARTITION = 3
    _VALUE = 4
    _KEY = 5
    _OPAQUE = 6
    _MSGFLAGS = 7
    _HEADERS = 10
    _PURGE_ALL = 0x1 | 0x2
    _PURGE_WITHOUT_WAITING = 0x4
    _TEXT_BYTES = 512
    _REPORTS_MIN = 1024
    _TIMES_MAX = 255

VERSION_MIN = 0x02000000
VERSION_END = 0x03000000
_INVALID_ARGUMENT = -186  # RD_KAFKA_RESP_ERR_...
_FATAL = -150

ctypedef void Client
ctypedef void Conf
ctypedef void Topic
ctypedef void Headers
ctypedef void Error

cdef struct Message:  # rd_kafka_message_t
    int err
    Topic *topic
    int32_t partition
    void *payload
    size_t len
    void *key
    size_t key_len
    int64_t offset
    void *opaque

cdef struct Bytes:
    const void *ptr
    size_t size

cdef union Value:
    void *ptr
    int i
    int32_t i32
    Bytes mem
    char pad[64]

cdef struct Argument:  # rd_kafka_vu_t
    int kind
    Value u

cdef struct Broker:  # rd_kafka_metadata_broker_t
    int32_t id
    char *host
    int port

cdef struct TopicFound:  # rd_kafka_metadata_topic_t
    char *topic
    int partition_cnt
    void *partitions
    int err

cdef struct Metadata:  # rd_kafka_metadata_t
    int broker_cnt
    Broker *brokers
    int topic_cnt
    TopicFound *topics
    int32_t orig_broker_id
    char *orig_broker_name

ctypedef void (*OnReport)(Client *, const Message *, void *) noexcept nogil
ctypedef void (*OnError)(Client *, int, const char *, void *) noexcept nogil
ctypedef Error *(*Timed)(Client *, int) noexcept nogil

cdef struct Library:
    int (*version)() noexcept nogil
    Conf *(*conf_new)() noexcept nogil
    void (*conf_destroy)(Conf *) noexcept nogil
    int (*conf_set)(Conf *, const char *, const char *, char *, size_t) noexcept nogil
    void (*conf_set_dr_msg_cb)(Conf *, OnReport) noexcept nogil
    void (*conf_set_error_cb)(Conf *, OnError) noexcept nogil
    void (*conf_set_opaque)(Conf *, void *) noexcept nogil
    Client *(*new)(int, Conf *, char *, size_t) noexcept nogil
    void (*destroy)(Client *) noexcept nogil
    int (*poll)(Client *, int) noexcept nogil
    int (*flush)(Client *, int) noexcept nogil
    int (*outq_len)(Client *) noexcept nogil
    int (*purge)(Client *, int) noexcept nogil
    int (*last_error)() noexcept nogil
    int (*fatal_error)(Client *, char *, size_t) noexcept nogil
    Topic *(*topic_new)(Client *, const char *, void *) noexcept nogil
    void (*topic_destroy)(Topic *) noexcept nogil
    Error *(*produceva)(Client *, const Argument *, size_t) noexcept nogil
    Headers *(*headers_new)(size_t) noexcept nogil
    Headers *(*headers_copy)(const Headers *) noexcept nogil
    void (*headers_destroy)(Headers *) noexcept nogil
    int (*header_add)(Headers *, const char *, Py_ssize_t, const void *, Py_ssize_t) noexcept nogil
    int (*metadata)(Client *, int, Topic *, const Metadata **, int) noexcept nogil
    void (*metadata_destroy)(const Metadata *) noexcept nogil
    Timed init_transactions
    Error *(*begin_transaction)(Client *) noexcept nogil
    Timed commit_transaction
    Timed abort_transaction
    int (*error_code)(const Error *) noexcept nogil
    const char *(*error_string)(const Error *) noexcept nogil
    int (*error_is_fatal)(const Error *) noexcept nogil
    int (*error_is_retriable)(const Error *) noexcept nogil
    int (*error_txn_requires_abort)(const Error *) noexcept nogil
    void (*error_destroy)(Error *) noexcept nogil

# In the order of the structure, which is read as an array of addresses.
_NAMES = (
    "version conf_new conf_destroy conf_set conf_set_dr_msg_cb conf_set_error_cb conf_set_opaque "
    "new destroy poll flush outq_len purge last_error fatal_error topic_new topic_destroy produceva "
    "headers_new headers_copy headers_destroy header_add metadata metadata_destroy "
    "init_transactions begin_transaction commit_transaction abort_transaction error_code "
    "error_string error_is_fatal error_is_retriable error_txn_requires_abort error_destroy"
).split()

cdef Library lib

cdef struct Report:
    uint64_t opaque
    int err

cdef struct Fault:  # What went wrong with a connection.
    int err
    char *text

cdef struct Heard:
    # What librdkafka's callbacks said since it was taken. They are called on the thread that polls.
    Report *reports
    size_t count
    size_t room
    Fault *errors
    size_t error_count
    size_t error_room
    bint is_lost


def load(str path, int version):
    """Find the functions in the library *path*, or in one that it was linked with.

    Return why they cannot be used: the library is not that of *version*, say.
    """
    global lib
    cdef Library made
    cdef void **found = <void **>&made
    cdef void *library = dlopen(path.encode(), RTLD_NOW)
    if sizeof(void *) != sizeof(uint64_t):
        return "addresses have not 64 bits"
    if library is NULL:
        return f"{path} cannot be loaded"
    if sizeof(Library) != len(_NAMES) * sizeof(void *):
        raise AssertionError("a function without a name")
    for number, name in enumerate(_NAMES):
        found[number] = dlsym(library, b"rd_kafka_" + name.encode())
        if found[number] is NULL:
            return f"librdkafka has no rd_kafka_{name}"
    known = made.version()
    if known != version:
        return f"confluent-kafka has version {version:#x} of librdkafka, found {known:#x}"
    if not VERSION_MIN <= known < VERSION_END:
        return f"version {known:#x} of librdkafka is not known"
    lib = made
    return ""


class CallError(Exception):
    """A call failed: code, text, and whether it is fatal, retriable, and ends a transaction."""


cdef void _on_report(Client *client, const Message *message, void *opaque) noexcept nogil:
    cdef Heard *heard = <Heard *>opaque
    cdef void *more
    if message.opaque is NULL:
        return
    if heard.count == heard.room:
        more = realloc(heard.reports, (2 * heard.room + _REPORTS_MIN) * sizeof(Report))
        if more is NULL:
            heard.is_lost = True
            return
        heard.reports = <Report *>more
        heard.room = 2 * heard.room + _REPORTS_MIN
    heard.reports[heard.count].opaque = <uint64_t>message.opaque
    heard.reports[heard.count].err = message.err
    heard.count += 1


cdef void _on_error(Client *client, int err, const char *reason, void *opaque) noexcept nogil:
    cdef Heard *heard = <Heard *>opaque
    cdef void *more
    if heard.error_count == heard.error_room:
        more = realloc(heard.errors, (2 * heard.error_room + 8) * sizeof(Fault))
        if more is NULL:
            heard.is_lost = True
            return
        heard.errors = <Fault *>more
        heard.error_room = 2 * heard.error_room + 8
    heard.errors[heard.error_count].err = err
    heard.errors[heard.error_count].text = strdup(reason)
    heard.error_count += 1


cdef class _Call:
    """The messages of one call of `produce`. Their values are not copied, so they are kept here."""

    cdef object reports
    cdef tuple values
    cdef Py_ssize_t left  # How many of them were taken and are not reported yet.


@cython.no_gc_clear  # What it keeps is read until its threads have ended.
cdef class Handle:
    """A producer. Every method is called on one thread."""

    cdef Client *client
    cdef Heard heard
    cdef dict calls  # By a number, which their reports have.
    cdef uint32_t last

    def __cinit__(self, options):
        """Make it of *options*, strings by strings. Raises CallError if a value is refused."""
        cdef char text[_TEXT_BYTES]
        cdef Conf *conf
        cdef bytes name, value
        if lib.version is NULL:
            raise RuntimeError("`load` was not called")
        self.calls = {}
        memset(&self.heard, 0, sizeof(self.heard))
        conf = lib.conf_new()
        for key, given in options.items():
            name, value = key.encode(), given.encode()
            if lib.conf_set(conf, name, value, text, sizeof(text)):
                lib.conf_destroy(conf)
                raise CallError(_INVALID_ARGUMENT, text.decode(errors="replace"), False, False, False)
        lib.conf_set_dr_msg_cb(conf, _on_report)
        lib.conf_set_error_cb(conf, _on_error)
        lib.conf_set_opaque(conf, &self.heard)
        with nogil:
            self.client = lib.new(_PRODUCER, conf, text, sizeof(text))
        if self.client is NULL:
            lib.conf_destroy(conf)
            reason = "Failed to create producer: " + text.decode(errors="replace")
            raise CallError(lib.last_error(), reason, False, False, False)

    def __dealloc__(self):
        cdef size_t number
        self.shut()
        for number in range(self.heard.error_count):
            free(self.heard.errors[number].text)
        free(self.heard.reports)
        free(self.heard.errors)

    def __len__(self):
        """Return how many messages and reports it has."""
        return lib.outq_len(self.alive())

    cdef Client *alive(self) except NULL:
        if self.client is NULL:
            raise RuntimeError("the producer was closed")
        return self.client

    def close(self):
        """Wait until its threads and connections ended. Safe to call twice."""
        self.shut()

    cdef shut(self):
        cdef Client *client = self.client
        self.client = NULL
        if client is not NULL:
            with nogil:
                lib.destroy(client)
            self.calls.clear()

    def produce(self, reports, Py_ssize_t begin, Py_ssize_t end):
        """Produce the messages of *reports* from *begin* on, and before *end*.

        Return the number of the first that was not taken, and why; *end* and 0 if all were.
        """
        cdef Argument arguments[7]
        cdef Client *client = self.alive()
        cdef object messages = reports.messages, given = None, place = None
        cdef list values = _listed(messages.values), keys = _listed(messages.keys)
        cdef list headers = _listed(messages.headers), places = _listed(messages.places)
        cdef Headers *template = NULL
        cdef Topic *topic = NULL
        cdef Error *error = NULL
        cdef Py_ssize_t number = begin
        cdef int code = 0
        cdef _Call call = _Call()
        if not 0 <= begin <= end <= len(values) == len(keys) == len(headers) == len(places):
            raise IndexError("columns of different lengths")
        call.reports, call.values = reports, tuple(values[begin:end])
        self.last += 1
        while not self.last or self.last in self.calls:
            self.last += 1
        self.calls[self.last] = call
        memset(arguments, 0, sizeof(arguments))
        arguments[0].kind, arguments[1].kind, arguments[2].kind = _RKT, _MSGFLAGS, _PARTITION
        arguments[3].kind, arguments[4].kind, arguments[5].kind = _VALUE, _KEY, _OPAQUE
        arguments[6].kind = _HEADERS
        arguments[2].u.i32 = _UNASSIGNED
        try:
            while number < end:
                if places[number] is not place:
                    place = places[number]
                    if topic is not NULL:
                        lib.topic_destroy(topic)
                        topic = NULL
                    topic = self.topic(messages.topic_of(place))
                    arguments[0].u.ptr = topic
                if headers[number] is not given:
                    given = headers[number]
                    if template is not NULL:
                        lib.headers_destroy(template)
                        template = NULL
                    template = _headers_of(given)
                # Nothing of the values is copied here: `call` keeps them until they are reported.
                _point(&arguments[3].u.mem, call.values[number - begin])
                _point(&arguments[4].u.mem, keys[number])
                arguments[5].u.ptr = <void *>(<uint64_t>self.last << 32 | <uint64_t>number)
                if template is NULL:
                    error = lib.produceva(client, arguments, 6)
                else:
                    arguments[6].u.ptr = lib.headers_copy(template)
                    error = lib.produceva(client, arguments, 7)
                if error is not NULL:
                    if template is not NULL:  # Still ours.
                        lib.headers_destroy(arguments[6].u.ptr)
                    code = lib.error_code(error)
                    lib.error_destroy(error)
                    break
                number += 1
        finally:
            call.left = number - begin
            if not call.left:
                del self.calls[self.last]
            if template is not NULL:
                lib.headers_destroy(template)
            if topic is not NULL:
                lib.topic_destroy(topic)
        return number, code

    def put(self, str name, value, key, int32_t partition):
        """Produce one message to a partition, without a report; return a code, 0 if it was taken."""
        cdef Argument arguments[5]
        cdef Error *error
        cdef Topic *topic = self.topic(name)
        cdef int code = 0
        memset(arguments, 0, sizeof(arguments))
        try:
            arguments[0].kind, arguments[0].u.ptr = _RKT, topic
            arguments[1].kind, arguments[1].u.i = _MSGFLAGS, _COPY
            arguments[2].kind, arguments[2].u.i32 = _PARTITION, partition
            arguments[3].kind, arguments[4].kind = _VALUE, _KEY
            _point(&arguments[3].u.mem, value)
            _point(&arguments[4].u.mem, key)
            error = lib.produceva(self.alive(), arguments, 5)
            if error is not NULL:
                code = lib.error_code(error)
                lib.error_destroy(error)
        finally:
            lib.topic_destroy(topic)
        return code

    cdef Topic *topic(self, str name) except NULL:
        cdef bytes encoded = name.encode()
        cdef Topic *found = lib.topic_new(self.alive(), encoded, NULL)
        if found is NULL:
            raise CallError(lib.last_error(), "", False, False, False)
        return found

    def poll(self, int wait_ms):
        """Wait for something that was heard, at most so long."""
        cdef Client *client = self.alive()
        with nogil:
            lib.poll(client, wait_ms)

    def flush(self, int wait_ms):
        """Send all messages, and wait for their reports, at most so long."""
        cdef Client *client = self.alive()
        with nogil:
            lib.flush(client, wait_ms)

    def purge(self, *, bint waits):
        """Fail all messages; with *waits* their reports are there when this returns."""
        cdef Client *client = self.alive()
        cdef int flags = _PURGE_ALL if waits else _PURGE_ALL | _PURGE_WITHOUT_WAITING
        with nogil:
            lib.purge(client, flags)

    def metadata(self, name, int wait_ms):
        """Ask for the brokers and, if it is not None, for the topic *name*.

        Return the brokers' hosts, and the code of the topic's error.
        """
        cdef const Metadata *found = NULL
        cdef Client *client = self.alive()
        cdef Topic *topic = NULL
        cdef int code
        if name is not None:
            topic = self.topic(name)
        with nogil:
            code = lib.metadata(client, topic is NULL, topic, &found, wait_ms)
            if topic is not NULL:
                lib.topic_destroy(topic)
        if code:
            raise CallError(code, "", False, False, False)
        try:
            hosts = [found.brokers[each].host.decode() for each in range(found.broker_cnt)]
            return hosts, found.topics[0].err if topic is not NULL and found.topic_cnt else 0
        finally:
            lib.metadata_destroy(found)

    def init_transactions(self, int wait_ms):
        """See rd_kafka_init_transactions. Raises CallError."""
        self.timed(lib.init_transactions, wait_ms)

    def commit_transaction(self, int wait_ms):
        """See rd_kafka_commit_transaction. Raises CallError."""
        self.timed(lib.commit_transaction, wait_ms)

    def abort_transaction(self, int wait_ms):
        """See rd_kafka_abort_transaction. Raises CallError."""
        self.timed(lib.abort_transaction, wait_ms)

    def begin_transaction(self):
        """See rd_kafka_begin_transaction. Raises CallError."""
        _check(lib.begin_transaction(self.alive()))

    cdef timed(self, Timed call, int wait_ms):
        cdef Client *client = self.alive()
        cdef Error *error
        with nogil:
            error = call(client, wait_ms)
        _check(error)

    def reported(self):
        """Take the reports that came, counted in the bytes `times` by the message's number.

        Return a tuple for each part of a delivery: what hears of it, how many reports came, and the
        failed ones, by number and code.
        """
        cdef Report *reports = self.heard.reports
        cdef size_t count = self.heard.count, each
        cdef unsigned char *times = NULL
        cdef uint64_t before = 0, number
        cdef Py_ssize_t size = 0, came = 0
        cdef _Call call = None
        cdef list failed = [], found = []
        self.heard.count = 0
        if self.heard.is_lost:
            raise MemoryError
        for each in range(count):
            if reports[each].opaque >> 32 != before:
                self.end(call, before, came, failed, found)
                before, came, failed = reports[each].opaque >> 32, 0, []
                call = self.calls[before]
                times = <unsigned char *>PyByteArray_AS_STRING(call.reports.times)
                size = len(call.reports.times)
            number = reports[each].opaque & 0xFFFFFFFF
            if <Py_ssize_t>number >= size:
                raise IndexError("a report of no message")
            if times[number] < _TIMES_MAX:
                times[number] += 1
            came += 1
            if reports[each].err:
                failed.append((number, reports[each].err))
        self.end(call, before, came, failed, found)
        return found

    cdef end(self, _Call call, uint64_t key, Py_ssize_t came, list failed, list found):
        if call is None:
            return
        found.append((call.reports, came, failed))
        call.left -= came
        if call.left <= 0:
            del self.calls[key]

    def errors(self):
        """Take what went wrong with connections: code, text, and whether it is fatal."""
        cdef char text[_TEXT_BYTES]
        cdef char *reason
        cdef int code
        cdef size_t number
        cdef list found = []
        for number in range(self.heard.error_count):
            reason = self.heard.errors[number].text
            code = self.heard.errors[number].err
            if code == _FATAL and self.client is not NULL:
                code = lib.fatal_error(self.client, text, sizeof(text))
                found.append((code, text.decode(errors="replace"), True))
            else:
                found.append((code, reason.decode(errors="replace") if reason is not NULL else "", False))
            free(reason)
        self.heard.error_count = 0
        return found


cdef list _listed(column):
    return column if type(column) is list else list(column)


cdef int _point(Bytes *part, content) except -1:
    """Let *part* be the bytes of *content*; None becomes a null pointer, not an empty string."""
    if content is None:
        part.ptr, part.size = NULL, 0
    elif type(content) is bytes:
        part.ptr, part.size = PyBytes_AS_STRING(content), PyBytes_GET_SIZE(content)
    else:
        raise TypeError(f"expected bytes, found {type(content).__name__}")
    return 0


cdef Headers *_headers_of(given) except? NULL:
    """Return a list of headers, or nothing for none."""
    cdef bytes name
    cdef Bytes content
    cdef Headers *made
    pairs = [(each.encode(), value) for each, value in given]
    if not pairs:
        return NULL
    made = lib.headers_new(len(pairs))
    for name, value in pairs:
        _point(&content, value)
        lib.header_add(made, name, len(name), content.ptr, content.size)
    return made


cdef _check(Error *error):
    if error is NULL:
        return
    errors = (
        lib.error_code(error),
        lib.error_string(error).decode(errors="replace"),
        bool(lib.error_is_fatal(error)),
        bool(lib.error_is_retriable(error)),
        bool(lib.error_txn_requires_abort(error)),
    )
    lib.error_destroy(error)
    raise CallError(*errors)
