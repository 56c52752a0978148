"""The numbers that compiled modules share with each other and with their callers.

Separate so that compiled code reads them as C constants: constants.pxd gives the same names the
same values, and a test compares the two. An operation, of which a parsed mutation consists, is ten
64-bit numbers.
"""

# Results of `Framer.next_entry`.
ENTRY = 1  # An entry whose checksums are right.
LIMIT = 2  # Nothing more is durable yet; the same call continues later.
FINISHED = 3  # The chain of sync markers ends here.
# Additional results of `Intake.run`.
SCHEMA_CHANGE = 4  # An entry of `system_schema`, which moves the log's epoch.
UNKNOWN_TABLE = 5  # An entry of a table whose treatment is not set yet.

ENTRY_OVERHEAD = 12  # Bytes of an entry besides its mutation: size, its CRC, the CRC of both (3.2).

# Fields of an operation.
WIDTH = 10
KIND = 0
COLUMN = 1
TIMESTAMP = 2
LDT = 3
TTL = 4
START = 5
LENGTH = 6
PATH = 7
PATH_LENGTH = 8
FLAGS = 9

# Kinds. START and LENGTH are a byte range of the buffer; LENGTH -1 is null, LDT -1 and TTL 0 none.
UPDATE = 1  # COLUMN: index in the catalogue; the range: the partition key; FLAGS: partition flags.
PARTITION_DELETION = 2
ROW = 3  # FLAGS: the row's, and ROW_STATIC; TIMESTAMP, TTL, LDT: liveness, if HAS_TIMESTAMP.
ROW_DELETION = 4
VALUE = 5  # One clustering value of the ROW or MARKER before it.
CELL = 6  # PATH: the cell's path in a complex column; FLAGS: the cell's.
COMPLEX = 7  # A complex column; FLAGS 1: it has a deletion; its cells follow.
MARKER = 8  # FLAGS: the bound's kind; COLUMN: the number of its values.
MARKER_CLOSE = 9
MARKER_OPEN = 10

NOWHERE = -1  # Instead of a position: it does not exist.
POSITION_BYTES = 2  # Of a UDT's field, in a cell's path.
MESSAGING_60 = 14  # The messaging version from which mutations have the format of Cassandra 6.0.
VINT_MORE = 0x80  # If the first byte of a vint is this or more, more bytes follow.

# Partition flags.
IS_EMPTY = 0x01
HAS_PARTITION_DELETION = 0x04
HAS_STATIC_ROW = 0x08
HAS_ROW_ESTIMATE = 0x10

# Row flags.
END_OF_PARTITION = 0x01
IS_MARKER = 0x02
HAS_TIMESTAMP = 0x04
HAS_TTL = 0x08
HAS_DELETION = 0x10
HAS_ALL_COLUMNS = 0x20
HAS_COMPLEX_DELETION = 0x40
EXTENSION_FLAG = 0x80
ROW_STATIC = 0x100  # Set by headrace: no wire flag has this bit.

# Cell flags.
IS_DELETED = 0x01
IS_EXPIRING = 0x02
HAS_EMPTY_VALUE = 0x04
USE_ROW_TIMESTAMP = 0x08
USE_ROW_TTL = 0x10
HIDDEN = 0x1000  # Set by headrace: written before its column was dropped, so Cassandra ignores it.

# Bound kinds.
EXCL_END = 0
INCL_START = 1
EXCL_END_INCL_START = 2
INCL_END_EXCL_START = 5
INCL_END = 6
EXCL_START = 7

# Kinds of agreement records (line 7).
FREE = 0  # No record; in a stored row: dropped.
PENDING = 1
PUBLISHED = 2
EXPIRED_DROPPED = 3
EXPIRED_PUBLISHED = 4
CONTENT_KNOWN = 5  # Other bytes of a published mutation.
JOINED = 6  # Other bytes of a mutation that another record waits for; its D0 and D1 follow.

# Fields of an agreed mutation (`AgreedMutations.meta`).
AGREED_WIDTH = 11
AGREED_START = 0
AGREED_END = 1
AGREED_HOST = 2
AGREED_SEGMENT = 3
AGREED_POSITION = 4
AGREED_COPIES = 5
AGREED_MESSAGING = 6
AGREED_FLAGS = 7
AGREED_EPOCH = 8  # The number of the epoch in force for it.
AGREED_DIGEST = 9  # The lower half of its digest; the upper half follows.
LATE = 1  # It had expired when the copy that completed its agreement was read.
# The result of `Agreement` for an emission: flags above the number of copies, and in AGREED_FLAGS.
COPIES = 0xFF
ASSUMED = 0x100  # Its copies include some assumed in a lost part of a log.
EXPIRED = 0x200  # It expired while pending, and is published with its copies.

# The result of `Agreement.observe` for a mutation whose level is met, but which shares its token
# with another: it may be known in other bytes.
SUSPECT = -1_000_000

# The treatment of a table's entries.
IGNORED = 0
NEIGHBOUR = 1  # Not requested, but may share a mutation with a requested table.
SELECTED = 2
COUNTER = 3  # Has CDC but cannot be delivered.
SCHEMA = 4  # Describes tables.

# The Avro forms of CQL types.
AVRO_TEXT = 1
AVRO_ASCII = 2
AVRO_BYTES = 3
AVRO_BOOLEAN = 4
AVRO_INT8 = 5
AVRO_INT16 = 6
AVRO_INT32 = 7
AVRO_INT64 = 8
AVRO_FLOAT = 9
AVRO_DOUBLE = 10
AVRO_DATE = 11
AVRO_UUID = 12
AVRO_INET = 13
AVRO_DECIMAL = 14
AVRO_DURATION = 15
AVRO_COUNTER = 16
AVRO_ARRAY = 17
AVRO_MAP = 18
AVRO_VECTOR = 19
AVRO_RECORD = 20

# The forms of CQL types in change JSON; all others are written from objects.
JSON_OTHER = 0
JSON_TEXT = 1
JSON_ASCII = 2
JSON_BLOB = 3
JSON_BOOLEAN = 4
JSON_INT8 = 5
JSON_INT16 = 6
JSON_INT32 = 7
JSON_INT64 = 8
JSON_UUID = 9
JSON_TIMESTAMP = 10
JSON_DATE = 11
JSON_TIME = 12
JSON_DECIMAL = 13
JSON_DOUBLE = 14

# The operation types of the Avro envelope, in the order of its enum.
OP_INSERT = 0
OP_UPDATE = 1
OP_DELETE = 2
OP_DELETE_RANGE = 3
OP_DELETE_PARTITION = 4

# Results of `ChangeOutput.wants` for a table.
UNWANTED = 0
WITH_MESSAGE = 1
WITHOUT_MESSAGE = 2

# The Avro forms of cells in complex columns.
COMPLEX_OTHER = 0
COMPLEX_SET = 1
COMPLEX_UDT = 2

# Fields of a plain row, for `native.put_plain`.
PLAIN_WIDTH = 10
PLAIN_COLUMN = 0  # The number of its listed columns already written.
PLAIN_SIMPLE = 1  # The place of the next simple cell.
PLAIN_COMPLEX = 2  # The place of the next complex column; -1: that of the next simple one.
PLAIN_BASE_US = 3  # The base of its times.
PLAIN_ROW_US = 4  # Its write time.
PLAIN_DELETIONS = 5  # Whether its complex columns have a deletion.
PLAIN_MARK = 6  # The start of each cell, its flags and with them its write time if it has one,
PLAIN_MARK_BYTES = 7  # and whether that is one byte or two, the first the lowest.
PLAIN_TTL = 8  # The TTL of all cells, and their expiry;
PLAIN_EXPIRES = 9  # -1: never.
# A column's form: its form in Avro, its cells' length or -1, and, if it is complex, the forms of
# paths and values; 0 for none. A UDT has BY_NAME for paths, and for values the place, among all
# forms, of the number of its fields, followed by the form of each.
FORM_WIDTH = 4
FORM_TYPE = 0
FORM_FIXED = 1
FORM_PATH = 2
FORM_CELL = 3
BY_NAME = -1

# A note of an entry while its group waits: besides the entry's numbers, the place of its split, and
# what is known of its record.
NOTE_WORDS = 8
NOTE_SPLIT = 0
NOTE_KEYSPACE = 1
NOTE_TOKEN = 2
NOTE_START = 3
NOTE_END = 4
NOTE_POSITION = 5
NOTE_PLACE = 6
NOTE_RECORD = 7
# A place of a split in a log: segment and offset of the marker at which the split resumed, the log
# slot, and the number of its entries read.
PLACE_WORDS = 4
PLACE_SEGMENT = 0
PLACE_OFFSET = 1
PLACE_LOG_SLOT = 2
PLACE_READ = 3

# A record of agreement: 64-bit words in a flat table.
RECORD_WORDS = 10
D0 = 0
D1 = 1
SEEN = 2  # A bit per host.
TOKEN = 3
META = 4  # See below.
NUMBER = 5
BORN = 6  # Of a published record its copy's segment, of a joined one D0 of the other.
SINCE = 7
LAST = 8
LOCATIONS = 9  # The first location + 1; of a free record the next free one + 1. Of a published one
# its copy's position and length, 32 bits each, 0 if unknown; of a joined one D1 of the other.
# META: bits 0-7 kind, 8 dirty, 9 persisted, 10 shared, 11 checked, 16-31 replica group, 32-47
# keyspace, 48-53 host of the copy that was published, 54 suspected to be streamed, 55 expired
# without a copy of a replica. Bits 8-31 are not stored. The flags are those of `rules`.
KIND_BITS = 0xFF
GROUP_SHIFT = 16
GROUP_BITS = 0xFFFF
KEYSPACE_SHIFT = 32
KEYSPACE_BITS = 0xFFFF
HOST_SHIFT = 48
HOST_BITS = 0x3F
HOST_GONE = -1  # In a map of hosts: its log is no longer read.
LOCATION_WORDS = 5
LOCATION_HOST = 0
LOCATION_SEGMENT = 1
LOCATION_POSITION = 2
LOCATION_LENGTH = 3
LOCATION_NEXT = 4  # The next location, which count from 1; it is not stored.

ID_BYTES = 16  # Of a mutation's public name.
# Kept for an encoded change: its write time, operation, index in its mutation, and mutation.
FACT_WORDS = 4
FACT_TIMESTAMP = 0
FACT_OPERATION = 1
FACT_INDEX = 2
FACT_MUTATION = 3
SUM_WORDS = 2  # Of a change's checksum: the lower half comes first.
# Bytes in Avro that no fixed-length value exceeds, including its union and its counts.
COLUMN_BYTES = 64

# Kinds of the parts in an agent's response about a segment, and the bits of a kind.
PART_BYTES = 0  # Bytes of the file, unchanged.
PART_FULL = 1  # A mutation.
PART_DIGEST = 2  # A mutation of which only the digest is sent.
PART_PASSED = 3  # Entries that were not requested: only their number of bytes.
PART_KIND_BITS = 2

# The kinds of entries framed for a split.
SENT_BYTES = 0  # With its bytes, by each log.
SENT_BOTH = 1  # With its bytes and their digest, for other logs with the mutation.
SENT_DIGEST = 2  # The digest alone.
PASSED_BYTES_MIN = 32  # Of an entry that can be skipped: one of a system table replaces it.
# Treatments of a table's entries by readers: see `stretches.Stretch`.
ENTRY_PASSED = 0
ENTRY_WANTED = 1
ENTRY_BY_TOKEN = 2
