"""The numbers of octets.py as C constants, and the C twins of its functions."""

from libc.stdint cimport int64_t, uint64_t

cdef enum:
    LONG = 1
    ENUM = 2
    BYTES = 3
    STRING = 4
    FIXED = 5
    BOOLEAN = 6
    REAL = 7
    OPTION = 8
    RECORD = 9
    ARRAY = 10
    MAP = 11
    SAME = 0
    WRAPPED = 1
    CALLED = 2
    DECIMAL = 6
    DIGITS = 9
    WHOLE = 7
    WRITTEN_SET = 3
    WRITTEN_LIST = 4
    WRITTEN_MAP = 5
    WRITTEN_FIELDS = 8
    KEEP = 0
    DROP = 1
    REPLACE = 2
    CONVERT = 3
    OWN = 0
    FLAT = 1
    DEBEZIUM = 2
    TIMESTAMP = 0
    OPERATION = 1
    EXPIRES = 2
    UPDATED = 3
    NOTES = 4
    RANGE = 5
    MUTATION = 6
    INDEX = 7
    OF = 8
    FACTS = 9
    TRACE = 9
    NUMBER = 10
    TEXT = 11

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    static inline Py_ssize_t hr_o_put_long(uint8_t *base, Py_ssize_t at, int64_t number) {
        uint64_t rest = ((uint64_t)number << 1) ^ (uint64_t)(number >> 63);
        for (; rest > 0x7f; rest >>= 7) base[at++] = (uint8_t)(rest | 0x80);
        base[at++] = (uint8_t)rest;
        return at;
    }

    /* memcpy, without its call for the few bytes that most fields are. */
    static inline void hr_o_few(uint8_t *out, const uint8_t *p, size_t n) {
        if (n > 16) {
            memcpy(out, p, n);
        } else if (n >= 8) {
            uint64_t a, b;
            memcpy(&a, p, 8), memcpy(&b, p + n - 8, 8);
            memcpy(out, &a, 8), memcpy(out + n - 8, &b, 8);
        } else {
            for (size_t i = 0; i < n; i++) out[i] = p[i];
        }
    }

    /* The number at p, which is set behind it; null if that is not before or at end. */
    static inline const uint8_t *hr_o_long(const uint8_t *p, const uint8_t *end, int64_t *number) {
        uint64_t coded = 0;
        int shift = 0;
        if (p >= end) return NULL;
        for (; *p > 0x7f; shift += 7) {
            if (shift > 63 - 7 || p + 1 >= end) return NULL;
            coded |= (uint64_t)(*p++ & 0x7f) << shift;
        }
        coded |= (uint64_t)*p++ << shift;
        *number = (int64_t)(coded >> 1) ^ -(int64_t)(coded & 1);
        return p;
    }

    static inline Py_ssize_t hr_o_end_of(const uint8_t *base, Py_ssize_t at, Py_ssize_t limit,
                                         int kind, int single, int64_t size) {
        const uint8_t *p = base + at, *end = base + limit;
        int64_t number;
        if (kind == 8) {
            p = hr_o_long(p, end, &number);
            if (!p) return -1;
            if (!number) return p - base;
        }
        if (single <= 4) {
            p = hr_o_long(p, end, &number);
            if (!p) return -1;
            size = single > 2 ? number : 0;
        }
        return size >= 0 && size <= end - p ? p - base + size : -1;
    }

    static const char hr_o_pairs[] =
        "0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546474849"
        "5051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899";

    static inline Py_ssize_t hr_o_put_decimal(uint8_t *base, Py_ssize_t at, int64_t number) {
        static const uint64_t powers[] = {
            1ull, 10ull, 100ull, 1000ull, 10000ull, 100000ull, 1000000ull, 10000000ull, 100000000ull,
            1000000000ull, 10000000000ull, 100000000000ull, 1000000000000ull, 10000000000000ull,
            100000000000000ull, 1000000000000000ull, 10000000000000000ull, 100000000000000000ull,
            1000000000000000000ull, 10000000000000000000ull};
        uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
        int guess = (64 - __builtin_clzll(rest | 1)) * 1233 >> 12;
        Py_ssize_t end;
        if (number < 0) base[at++] = '-';
        end = at += guess - ((rest | 1) < powers[guess]) + 1;
        for (; rest >= 100; rest /= 100) memcpy(base + (at -= 2), hr_o_pairs + 2 * (rest % 100), 2);
        if (rest >= 10) memcpy(base + at - 2, hr_o_pairs + 2 * rest, 2);
        else base[at - 1] = (uint8_t)('0' + rest);
        return end;
    }

    /* Eight bytes at once: one of them is below 0x20, a quote, or a backslash. */
    static inline Py_ssize_t hr_o_plain(const uint8_t *v, Py_ssize_t at, Py_ssize_t end) {
        const uint64_t ones = 0x0101010101010101ull;
        for (; end - at >= 8; at += 8) {
            uint64_t w, quote, slash;
            memcpy(&w, v + at, 8);
            quote = w ^ 0x22 * ones, slash = w ^ 0x5c * ones;
            if ((((w - 0x20 * ones) & ~w) | ((quote - ones) & ~quote) | ((slash - ones) & ~slash)) &
                0x80 * ones)
                break;
        }
        for (; at < end; at++)
            if (v[at] < 0x20 || v[at] == 0x22 || v[at] == 0x5c) break;
        return at;
    }

    static inline Py_ssize_t hr_o_base64(uint8_t *out, Py_ssize_t at, const uint8_t *p, Py_ssize_t n) {
        static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        uint8_t *to = out + at;
        for (; n > 0; n -= 3, p += 3, to += 4) {
            uint32_t bits = (uint32_t)p[0] << 16 | (n > 1 ? p[1] : 0) << 8 | (n > 2 ? p[2] : 0);
            to[0] = letters[bits >> 18];
            to[1] = letters[bits >> 12 & 63];
            to[2] = n > 1 ? letters[bits >> 6 & 63] : '=';
            to[3] = n > 2 ? letters[bits & 63] : '=';
        }
        return to - out;
    }

    static inline int64_t hr_o_whole(const uint8_t *p, Py_ssize_t n) {
        double x;
        float f;
        if (n == 4) memcpy(&f, p, 4), x = f;
        else memcpy(&x, p, 8);
        if (x != x) return 0;
        if (x >= 9223372036854775808.0) return INT64_MAX;
        if (x <= -9223372036854775808.0) return INT64_MIN;
        return (int64_t)x;
    }

    static inline uint64_t hr_o_real_bits(const uint8_t *p, Py_ssize_t n) {
        double x;
        float f;
        uint64_t bits;
        if (n == 4) memcpy(&f, p, 4), x = f;
        else memcpy(&x, p, 8);
        memcpy(&bits, &x, 8);
        return bits;
    }

    #define hr_o_real_bits_at(v, at, n) hr_o_real_bits((v) + (at), n)
    #define hr_o_end(v, at, end, kind, single, size) \\
        hr_o_end_of(v, at, end, kind, single, size)
    #define hr_o_whole_at(v, at, n) hr_o_whole((v) + (at), n)
    #define hr_o_take(v, start, end) \\
        PyBytes_FromStringAndSize((const char *)(v) + (start), (end) - (start))
    #define hr_o_same(v, start, end, content) \\
        ((end) - (start) == PyBytes_GET_SIZE(content) && \\
         memcmp((v) + (start), PyBytes_AS_STRING(content), (size_t)((end) - (start))) == 0)
    #define hr_o_copy(out, at, v, start, end) \\
        hr_o_few((out) + (at), (v) + (start), (size_t)((end) - (start)))
    #define hr_o_copy_bytes(out, at, content) \\
        hr_o_few((out) + (at), (const uint8_t *)PyBytes_AS_STRING(content), \\
                 (size_t)PyBytes_GET_SIZE(content))
    #define hr_o_decimal(out, at, number) hr_o_put_decimal(out, at, number)
    #define hr_o_plain_end(v, at, end) hr_o_plain(v, at, end)
    #define hr_o_put_base64(out, at, v, start, end) \\
        hr_o_base64(out, at, (v) + (start), (end) - (start))
    #define hr_o_put(out, at, number) hr_o_put_long(out, at, number)
    #define hr_o_unzigzag(coded) ((int64_t)((coded) >> 1) ^ -(int64_t)((coded) & 1))
    """
    bytes take "hr_o_take"(const unsigned char *view, Py_ssize_t start, Py_ssize_t end)
    bint same "hr_o_same"(const unsigned char *view, Py_ssize_t start, Py_ssize_t end, bytes content) noexcept
    void copy "hr_o_copy"(unsigned char *out, Py_ssize_t at, const unsigned char *view, Py_ssize_t start, Py_ssize_t end) noexcept
    void copy_bytes "hr_o_copy_bytes"(unsigned char *out, Py_ssize_t at, bytes content) noexcept
    Py_ssize_t put_long "hr_o_put"(unsigned char *out, Py_ssize_t at, int64_t number) noexcept
    Py_ssize_t put_decimal "hr_o_decimal"(unsigned char *out, Py_ssize_t at, int64_t number) noexcept
    Py_ssize_t put_base64 "hr_o_put_base64"(unsigned char *out, Py_ssize_t at, const unsigned char *view, Py_ssize_t start, Py_ssize_t end) noexcept
    Py_ssize_t plain_end "hr_o_plain_end"(const unsigned char *view, Py_ssize_t at, Py_ssize_t end) noexcept
    int64_t whole "hr_o_whole_at"(const unsigned char *view, Py_ssize_t at, Py_ssize_t size) noexcept
    Py_ssize_t end_of "hr_o_end"(const unsigned char *view, Py_ssize_t at, Py_ssize_t end, int kind, int single, Py_ssize_t size) noexcept
    int64_t unzigzag "hr_o_unzigzag"(uint64_t coded) noexcept
    uint64_t real_bits "hr_o_real_bits_at"(const unsigned char *view, Py_ssize_t at, Py_ssize_t size) noexcept
    int64_t signed "(int64_t)"(uint64_t number) noexcept
