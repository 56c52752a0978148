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
    SPILL_BYTES = 48
    NODE_WORDS = 3

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #ifdef __SSE2__
    #include <emmintrin.h>
    #endif

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

    /* The number at p; returns what is behind it, null if that is not before or at end. Most have one
       byte; others of up to eight bytes are read without a loop. */
    static inline const uint8_t *hr_o_long(const uint8_t *p, const uint8_t *end, int64_t *number) {
        uint64_t coded = 0;
        if (p < end && *p <= 0x7f) {
            *number = (int64_t)(*p >> 1) ^ -(int64_t)(*p & 1);
            return p + 1;
        }
        if (end - p >= 8) {
            uint64_t w, last;
            memcpy(&w, p, 8);
            last = ~w & 0x8080808080808080ull;
            if (last) {
                w &= last ^ (last - 1); /* Groups of seven bits together, pairs of them, halves. */
                w = (w & 0x007f007f007f007full) | (w & 0x7f007f007f007f00ull) >> 1;
                w = (w & 0x00003fff00003fffull) | (w & 0x3fff00003fff0000ull) >> 2;
                w = (w & 0x000000000fffffffull) | (w & 0x0fffffff00000000ull) >> 4;
                *number = (int64_t)(w >> 1) ^ -(int64_t)(w & 1);
                return p + (__builtin_ctzll(last) >> 3) + 1;
            }
        }
        for (int shift = 0; p < end && shift <= 63; shift += 7) {
            coded |= (uint64_t)(*p & 0x7f) << shift;
            if (*p++ <= 0x7f) {
                *number = (int64_t)(coded >> 1) ^ -(int64_t)(coded & 1);
                return p;
            }
        }
        return NULL;
    }
    static inline Py_ssize_t hr_o_long_before(const uint8_t *v, Py_ssize_t at, Py_ssize_t end) {
        int64_t number;
        const uint8_t *p = hr_o_long(v + at, v + end, &number);
        return p ? p - v : -1;
    }

    static inline int64_t hr_o_number(const uint8_t *v, Py_ssize_t at, Py_ssize_t end) {
        int64_t number = 0;
        hr_o_long(v + at, v + end, &number);
        return number;
    }

    /* The end of the value at p, whose type is the node; null if that is not before or at end. */
    static const uint8_t *hr_o_pass(const int *node, const uint8_t *p, const uint8_t *end) {
        int64_t number;
        const int *inner;
        if (node[0] == 8) {
            p = hr_o_long(p, end, &number);
            if (!p || !number) return p;
            node += 3;
        }
        number = node[2], inner = node + 3;
        switch (node[0]) {
        case 1:
        case 2: return hr_o_long(p, end, &number);
        case 3:
        case 4: /* Of a length of its own. */
            p = hr_o_long(p, end, &number);
            return p && number >= 0 && number <= end - p ? p + number : NULL;
        case 8: return hr_o_pass(node, p, end); /* Inside another. */
        case 9:
            for (int i = 0; p && i < node[2]; i++, inner += inner[1]) p = hr_o_pass(inner, p, end);
            return p;
        case 10:
        case 11:
            for (;;) {
                int64_t count, bytes;
                p = hr_o_long(p, end, &count);
                if (!p || !count) return p;
                if (count < 0) {
                    count = (int64_t)(0 - (uint64_t)count);
                    p = hr_o_long(p, end, &bytes);
                }
                if (!p || count <= 0 || count > end - p) return NULL;
                for (; p && count; count--) p = hr_o_pass(inner, p, end);
                if (!p) return NULL;
            }
        }
        return number <= end - p ? p + number : NULL;
    }
    static inline Py_ssize_t hr_o_skip_node(const uint8_t *base, Py_ssize_t at, Py_ssize_t limit,
                                            const int *node) {
        const uint8_t *p = hr_o_pass(node, base + at, base + limit);
        return p ? p - base : -1;
    }
    static inline Py_ssize_t hr_o_note(const uint8_t *base, Py_ssize_t at, Py_ssize_t limit,
                                       const int *node, int64_t *starts, Py_ssize_t part,
                                       Py_ssize_t until) {
        const uint8_t *p = base + at, *end = base + limit;
        for (; part < until; part++, node += node[1]) {
            starts[part] = p - base;
            p = hr_o_pass(node, p, end);
            if (!p) return -1;
        }
        return starts[until] = p - base;
    }
    static inline Py_ssize_t hr_o_given(const int *given, Py_ssize_t count, Py_ssize_t at,
                                        Py_ssize_t end, int64_t *starts) {
        int64_t before = at, wrong = given[0] != at || given[count] > end;
        for (Py_ssize_t i = 0; i <= count; i++) {
            wrong |= given[i] < before;
            starts[i] = before = given[i];
        }
        return wrong ? -1 : (Py_ssize_t)before;
    }
    static inline Py_ssize_t hr_o_last(const uint8_t *base, Py_ssize_t at, Py_ssize_t limit,
                                       const int *node, Py_ssize_t first) {
        const uint8_t *p = base + at, *end = base + limit;
        const int *inner = node + 3;
        for (int i = 0; p && i < node[2]; i++, inner += inner[1])
            if (i >= first) p = hr_o_pass(inner, p, end);
        return p ? p - base : -1;
    }

    /* Values of varying lengths, up to 48 bytes, without a mispredicted branch. */
    static inline Py_ssize_t hr_o_part(uint8_t *out, Py_ssize_t at, const uint8_t *v,
                                       Py_ssize_t start, Py_ssize_t end, Py_ssize_t edge) {
        if (end - start <= 48 && edge - start >= 48)
            memcpy(out + at, v + start, 48);
        else
            memcpy(out + at, v + start, (size_t)(end - start));
        return at + end - start;
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

    static inline Py_ssize_t hr_o_scaled(uint8_t *base, Py_ssize_t at, uint64_t number, int scale) {
        uint8_t digits[40];
        int first = 40, left = scale;
        for (; number >= 100; number /= 100) memcpy(digits + (first -= 2), hr_o_pairs + 2 * (number % 100), 2);
        if (number >= 10) memcpy(digits + (first -= 2), hr_o_pairs + 2 * number, 2);
        else digits[--first] = (uint8_t)('0' + number);
        for (; 40 - first <= scale;) digits[--first] = '0';
        left = 40 - first - scale;
        hr_o_few(base + at, digits + first, (size_t)left);
        at += left;
        if (scale) {
            base[at++] = '.';
            hr_o_few(base + at, digits + 40 - scale, (size_t)scale);
        }
        return at + scale;
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

    /* Writes bytes up to the first such one, or `end`, and returns where that is; most strings are
       short, and have none. */
    static inline Py_ssize_t hr_o_put_plain(uint8_t *out, Py_ssize_t at, const uint8_t *v,
                                            Py_ssize_t start, Py_ssize_t end, Py_ssize_t edge) {
    #ifdef __SSE2__
        if (end - start <= 48 && edge - start >= 48) {
            const __m128i blank = _mm_set1_epi8(0x1f), quote = _mm_set1_epi8(0x22);
            const __m128i slash = _mm_set1_epi8(0x5c);
            uint64_t seen = 1ull << (end - start);
            for (int i = 0; i < 48; i += 16) {
                __m128i part = _mm_loadu_si128((const __m128i *)(v + start + i));
                __m128i found = _mm_cmpeq_epi8(_mm_min_epu8(part, blank), part);
                found = _mm_or_si128(found, _mm_cmpeq_epi8(part, quote));
                found = _mm_or_si128(found, _mm_cmpeq_epi8(part, slash));
                _mm_storeu_si128((__m128i *)(out + at + i), part);
                seen |= (uint64_t)(uint32_t)_mm_movemask_epi8(found) << i;
            }
            return start + __builtin_ctzll(seen);
        }
    #endif
        Py_ssize_t plain = hr_o_plain(v, start, end);
        memcpy(out + at, v + start, (size_t)(plain - start));
        return plain;
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

    static inline double hr_o_real(const uint8_t *v, Py_ssize_t at, Py_ssize_t n) {
        double x;
        float f;
        if (n == 4) memcpy(&f, v + at, 4), x = f;
        else memcpy(&x, v + at, 8);
        return x;
    }

    static inline uint64_t hr_o_real_bits(const uint8_t *v, Py_ssize_t at, Py_ssize_t n) {
        double x = hr_o_real(v, at, n);
        uint64_t bits;
        memcpy(&bits, &x, 8);
        return bits;
    }

    #define hr_o_skip(v, at, end, plan, node) \\
        hr_o_skip_node(v, at, end, (const int *)(plan).data + (node))
    #define hr_o_note_starts(v, at, end, plan, node, starts, part, until) \\
        hr_o_note(v, at, end, (const int *)(plan).data + (node), (int64_t *)(starts).data, part, until)
    #define hr_o_take_starts(given, first, count, at, end, starts) \\
        hr_o_given((const int *)(given).data + (first), count, at, end, (int64_t *)(starts).data)
    #define hr_o_skip_last(v, at, end, plan, first) \\
        hr_o_last(v, at, end, (const int *)(plan).data, first)
    #define hr_o_put_all(out, at, content) \\
        (hr_o_copy_bytes(out, at, content), (at) + PyBytes_GET_SIZE(content))
    #define hr_o_put_label(out, at, text, start, end) \\
        hr_o_part(out, at, (const uint8_t *)PyBytes_AS_STRING(text), start, end, PyBytes_GET_SIZE(text))
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
    Py_ssize_t skip "hr_o_skip"(const unsigned char *view, Py_ssize_t at, Py_ssize_t end, const int[::1] plan, Py_ssize_t node) noexcept
    Py_ssize_t note_starts "hr_o_note_starts"(const unsigned char *view, Py_ssize_t at, Py_ssize_t end, const int[::1] plan, Py_ssize_t node, int64_t[::1] starts, Py_ssize_t part, Py_ssize_t until) noexcept
    Py_ssize_t take_starts "hr_o_take_starts"(const int[::1] given, Py_ssize_t first, Py_ssize_t count, Py_ssize_t at, Py_ssize_t end, int64_t[::1] starts) noexcept
    Py_ssize_t skip_last "hr_o_skip_last"(const unsigned char *view, Py_ssize_t at, Py_ssize_t end, const int[::1] plan, Py_ssize_t first) noexcept
    Py_ssize_t put_bytes "hr_o_put_all"(unsigned char *out, Py_ssize_t at, bytes content) noexcept
    Py_ssize_t put_part "hr_o_part"(unsigned char *out, Py_ssize_t at, const unsigned char *view, Py_ssize_t start, Py_ssize_t end, Py_ssize_t edge) noexcept
    Py_ssize_t put_scaled "hr_o_scaled"(unsigned char *out, Py_ssize_t at, uint64_t magnitude, int scale) noexcept
    int64_t number_at "hr_o_number"(const unsigned char *view, Py_ssize_t at, Py_ssize_t end) noexcept
    Py_ssize_t long_end "hr_o_long_before"(const unsigned char *view, Py_ssize_t at, Py_ssize_t end) noexcept
    Py_ssize_t put_label "hr_o_put_label"(unsigned char *out, Py_ssize_t at, bytes text, Py_ssize_t start, Py_ssize_t end) noexcept
    Py_ssize_t put_plain "hr_o_put_plain"(unsigned char *out, Py_ssize_t at, const unsigned char *view, Py_ssize_t start, Py_ssize_t end, Py_ssize_t edge) noexcept
    double real "hr_o_real"(const unsigned char *view, Py_ssize_t at, Py_ssize_t size) noexcept
    int64_t unzigzag "hr_o_unzigzag"(uint64_t coded) noexcept
    uint64_t real_bits "hr_o_real_bits"(const unsigned char *view, Py_ssize_t at, Py_ssize_t size) noexcept
    int64_t signed "(int64_t)"(uint64_t number) noexcept
