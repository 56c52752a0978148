"""The C versions of ops.py, under the same names, so compiled callers never call Python."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

cdef extern from "native.h":
    uint32_t crc32 "hr_v_crc32"(const unsigned char[::1] view, Py_ssize_t start, Py_ssize_t end, uint32_t seed) noexcept
    void siphash128 "hr_v_siphash"(const unsigned char[::1] view, Py_ssize_t start, Py_ssize_t end, uint64_t k0, uint64_t k1, uint64_t[::1] out) noexcept
    int64_t token "hr_v_token"(const unsigned char[::1] view, Py_ssize_t start, Py_ssize_t end) noexcept
    void siphash_all "hr_v_siphash_all"(const unsigned char[::1] view, int64_t[::1] ranges, int first, int stride, int count, uint64_t k0, uint64_t k1, uint64_t[::1] out) noexcept
    void sha16_all "hr_v_sha16_all"(const unsigned char[::1] view, int64_t[::1] ranges, int stride, Py_ssize_t count, unsigned char[::1] out) noexcept
    int32_t i32 "hr_v_i32"(const unsigned char[::1] view, Py_ssize_t at) noexcept
    uint32_t u32 "hr_v_u32"(const unsigned char[::1] view, Py_ssize_t at) noexcept
    uint64_t u64 "hr_v_u64"(const unsigned char[::1] view, Py_ssize_t at) noexcept
    bint same "hr_v_same"(const unsigned char[::1] a, Py_ssize_t at, const unsigned char[::1] b, Py_ssize_t start, Py_ssize_t count) noexcept
    void copy "hr_v_copy"(unsigned char[::1] out, Py_ssize_t at, const unsigned char[::1] view, Py_ssize_t start, Py_ssize_t end) noexcept
    bytes take "hr_v_take"(const unsigned char[::1] view, Py_ssize_t start, Py_ssize_t end)
    bytes take_words "hr_v_take_words"(int64_t[::1] words, Py_ssize_t count)
    int vint_extra "hr_vint_extra"(int first) noexcept
    int popcount "hr_popcount"(uint64_t mask) noexcept
    void add_digest "hr_v_add_checksum"(uint64_t[::1] out, Py_ssize_t at, const uint64_t[::1] words, Py_ssize_t start) noexcept
    void put_digest "hr_v_put_digest"(int64_t[::1] words, Py_ssize_t at, uint64_t d0, uint64_t d1) noexcept
    void put_bound "hr_v_put_bound"(int64_t[::1] out, Py_ssize_t at, const int64_t[::1] digest, Py_ssize_t start, int count) noexcept
    void subtract_checksum "hr_v_subtract_checksum"(int64_t[::1] out, Py_ssize_t at, const int64_t[::1] words, Py_ssize_t start) noexcept
    void add_checksum "hr_v_add_checksum"(int64_t[::1] out, Py_ssize_t at, const int64_t[::1] words, Py_ssize_t start) noexcept
    Py_ssize_t put_bytes "hr_v_put_bytes"(unsigned char[::1] out, Py_ssize_t at, bytes content) noexcept
    Py_ssize_t put_long "hr_v_put_long"(unsigned char[::1] out, Py_ssize_t at, int64_t number) noexcept
    void prefetch_index "hr_v_prefetch_index"(uint32_t[::1] index, Py_ssize_t at) noexcept
    void prefetch_record "hr_v_prefetch_record"(uint64_t[::1] words, Py_ssize_t at) noexcept
    Py_ssize_t put_value "hr_v_put_value"(unsigned char[::1] out, Py_ssize_t at, int type, const unsigned char[::1] view, Py_ssize_t start, Py_ssize_t length) noexcept
    Py_ssize_t put_plain "hr_v_put_plain"(unsigned char[::1] out, Py_ssize_t at, Py_ssize_t limit, int64_t[::1] row, int column, const int[::1] columns, int count, const int[::1] forms, const unsigned char[::1] view, Py_ssize_t end, int[::1] starts, Py_ssize_t first) noexcept
