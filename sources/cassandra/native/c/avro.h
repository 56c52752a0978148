/* Cassandra's values and plain rows as Avro. */
#ifndef HEADRACE_AVRO_H
#define HEADRACE_AVRO_H

#include "base.h"
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* An Avro int or long at base[at], where there is room for ten bytes: zigzag, then seven bits per
   byte, the lowest first. Use the second function if the length is hard to predict. */
static inline Py_ssize_t hr_put_number(uint8_t *base, Py_ssize_t at, int64_t number) {
    uint64_t rest = ((uint64_t)number << 1) ^ (uint64_t)(number >> 63);
    if (rest >> 56 == 0) { /* Halves, quarters, bytes apart: no loop. */
        int last = (63 - __builtin_clzll(rest | 1)) * 37 >> 8; /* A seventh. */
        rest = (rest & 0x000000000fffffffull) | (rest & 0x00fffffff0000000ull) << 4;
        rest = (rest & 0x00003fff00003fffull) | (rest & 0x0fffc0000fffc000ull) << 2;
        rest = (rest & 0x007f007f007f007full) | (rest & 0x3f803f803f803f80ull) << 1;
        rest |= 0x8080808080808080ull & ((1ull << 8 * last) - 1);
        memcpy(base + at, &rest, 8);
        return at + last + 1;
    }
    for (; rest > 0x7f; rest >>= 7) base[at++] = (uint8_t)(rest | 0x80);
    base[at++] = (uint8_t)rest;
    return at;
}
static inline Py_ssize_t hr_put_long(uint8_t *base, Py_ssize_t at, int64_t number) {
    if ((uint64_t)number >= 0x40) return hr_put_number(base, at, number);
    base[at] = (uint8_t)(number << 1);
    return at + 1;
}

/* A whole bytes object at base[at]; returns where it ends. */
static inline Py_ssize_t hr_put_bytes(uint8_t *base, Py_ssize_t at, PyObject *content) {
    const Py_ssize_t n = PyBytes_GET_SIZE(content);
    hr_copy(base + at, (const uint8_t *)PyBytes_AS_STRING(content), (size_t)n);
    return at + n;
}

/* Four bytes as eight hexadecimal digits, the first of them in the lowest byte. */
static inline uint64_t hr_hex8(uint32_t four) {
    uint64_t x = __builtin_bswap32(four); /* Pairs, bytes, digits apart. */
    x = (x & 0xffff) | (x & 0xffff0000) << 16;
    x = (x & 0x000000ff000000ffull) | (x & 0x0000ff000000ff00ull) << 8;
    x = (x >> 4 & 0x000f000f000f000full) | (x & 0x000f000f000f000full) << 8;
    return x + 0x3030303030303030ull + ((x + 0x0606060606060606ull) >> 4 & 0x0101010101010101ull) * 39;
}

/* The 36 characters of a UUID at out. */
HR_UNUSED static void hr_put_uuid(uint8_t *out, const uint8_t *p) {
    uint64_t digits[4];
    for (int i = 0; i < 4; i++) digits[i] = hr_hex8(hr_be32(p + 4 * i));
    memcpy(out, digits, 8);
    memcpy(out + 9, digits + 1, 4), memcpy(out + 14, (uint8_t *)(digits + 1) + 4, 4);
    memcpy(out + 19, digits + 2, 4), memcpy(out + 24, (uint8_t *)(digits + 2) + 4, 4);
    memcpy(out + 28, digits + 3, 8);
    out[8] = out[13] = out[18] = out[23] = '-';
}

/* Copies a value, or a fixed number of bytes if these can be read and are enough: values of varying
   lengths are copied without a mispredicted branch. There is room for that number. */
#define HR_SPILL 48
static inline void hr_spill(uint8_t *out, const uint8_t *p, Py_ssize_t n, const uint8_t *edge) {
    if (n <= HR_SPILL && edge - p >= HR_SPILL)
        memcpy(out, p, HR_SPILL);
    else
        memcpy(out, p, (size_t)n);
}

/* Copies text and returns whether all of it is ASCII. */
static inline int hr_spill_ascii(uint8_t *out, const uint8_t *p, Py_ssize_t n,
                                 const uint8_t *edge) {
    uint64_t seen = 0, word;
#ifdef __SSE2__
    if (n <= HR_SPILL && edge - p >= HR_SPILL) {
        for (int i = 0; i < HR_SPILL; i += 16) {
            __m128i part = _mm_loadu_si128((const __m128i *)(p + i));
            _mm_storeu_si128((__m128i *)(out + i), part);
            seen |= (uint64_t)(uint32_t)_mm_movemask_epi8(part) << i;
        }
        return (seen & ((1ull << n) - 1)) == 0;
    }
#endif
    for (; n >= 8; p += 8, out += 8, n -= 8) {
        memcpy(&word, p, 8), memcpy(out, &word, 8);
        seen |= word;
    }
    for (; n > 0; n--) seen |= *out++ = *p++;
    return (seen & 0x8080808080808080ull) == 0;
}

/* A value of a simple type as Avro at out[at]: returns where it ends, -1 for any other value. The
   numbers of the types are those of constants.py. */
HR_UNUSED static Py_ssize_t hr_put_value(uint8_t *out, Py_ssize_t at, int type, const uint8_t *p,
                                         Py_ssize_t n, const uint8_t *edge) {
    uint64_t word;
    uint32_t half;
    switch (type) {
    case 1:
    case 2: /* Text, ASCII. */
        at = hr_put_long(out, at, n);
        return hr_spill_ascii(out + at, p, n, edge) ? at + n : -1;
    case 3: /* Bytes. */
        at = hr_put_long(out, at, n);
        hr_spill(out + at, p, n, edge);
        return at + n;
    case 4: /* Boolean. */
        if (n != 1) return -1;
        out[at] = *p != 0;
        return at + 1;
    case 5: return n == 1 ? hr_put_number(out, at, (int8_t)*p) : -1;
    case 6: return n == 2 ? hr_put_number(out, at, (int16_t)(p[0] << 8 | p[1])) : -1;
    case 7: return n == 4 ? hr_put_number(out, at, (int32_t)hr_be32(p)) : -1;
    case 8: return n == 8 ? hr_put_number(out, at, (int64_t)hr_be64(p)) : -1;
    case 9: /* Float; Avro is little-endian. */
        if (n != 4) return -1;
        half = hr_be32(p);
        memcpy(out + at, &half, 4);
        return at + 4;
    case 10: /* Double. */
        if (n != 8) return -1;
        word = hr_be64(p);
        memcpy(out + at, &word, 8);
        return at + 8;
    case 11: return n == 4 ? hr_put_number(out, at, (int64_t)hr_be32(p) - 0x80000000ll) : -1;
    case 12: /* UUID, as text. */
        if (n != 16) return -1;
        out[at] = 72;
        hr_put_uuid(out + at + 1, p);
        return at + 37;
    case 14: /* Decimal: scale, unscaled. */
        if (n <= 4) return -1;
        at = hr_put_long(out, hr_put_long(out, at, (int32_t)hr_be32(p)), n - 4);
        hr_spill(out + at, p + 4, n - 4, edge);
        return at + n - 4;
    }
    return -1;
}

/* As in constants.py: the fields of a plain row, and of a column. */
enum {
    HR_COLUMN,
    HR_SIMPLE,
    HR_COMPLEX,
    HR_BASE_US,
    HR_ROW_US,
    HR_DELETIONS,
    HR_MARK,
    HR_MARK_BYTES,
    HR_TTL,
    HR_EXPIRES
};
enum { HR_TYPE, HR_FIXED, HR_PATH, HR_CELL, HR_FORM };

/* The start of a complex column, from p[*begin] on, as Avro at out[at]; reads how many cells
   follow. Returns where it ends, -1 if the column is not plain. */
static inline Py_ssize_t hr_put_mode(uint8_t *out, Py_ssize_t at, const int64_t *row,
                                     const uint8_t *p, Py_ssize_t *begin, Py_ssize_t end,
                                     uint64_t *count) {
    uint64_t deleted = 0, seconds;
    if (row[HR_DELETIONS]) {
        if (!hr_uvint(p, begin, end, &deleted) || !hr_uvint(p, begin, end, &seconds)) return -1;
        deleted += (uint64_t)row[HR_BASE_US];
    }
    int replaces = row[HR_DELETIONS] && deleted != 1ull << 63; /* No write is as old as that. */
    if (!hr_uvint(p, begin, end, count) || (*count == 0 && !replaces)) return -1;
    out[at++] = replaces ? 0 : 2;
    out[at++] = replaces ? 2 : 0;
    return replaces ? hr_put_long(out, at, (int64_t)deleted) : at;
}

/* Whether a plain cell may begin at p, where two bytes can be read; `flags` may be set, too. */
static inline int hr_is_marked(const int64_t *row, const uint8_t *p, int flags) {
    int mask = row[HR_MARK_BYTES] == 1 ? 0xff : 0xffff;
    return ((p[0] | p[1] << 8) & mask & ~flags) == row[HR_MARK];
}

/* The most bytes of what a cell of a complex column has besides its value. */
#define HR_FACTS 32

/* Writes these: it is not removed, and has the row's times. Returns how many they are. */
static inline Py_ssize_t hr_put_facts(uint8_t *out, const int64_t *row) {
    out[0] = 0;
    Py_ssize_t at = hr_put_long(out, 1, row[HR_ROW_US]);
    if (row[HR_EXPIRES] < 0) {
        out[at] = out[at + 1] = 0;
        return at + 2;
    }
    out[at] = 2;
    at = hr_put_long(out, at + 1, row[HR_TTL]);
    out[at] = 2;
    return hr_put_long(out, at + 1, row[HR_EXPIRES]);
}

/* The plain cells of a UDT, each in the place of its field, whose types follow their number at
   `types`; otherwise as hr_put_complex. */
static Py_ssize_t hr_put_fields(uint8_t *out, Py_ssize_t at, Py_ssize_t limit, const int64_t *row,
                                const int *types, const uint8_t *p, Py_ssize_t *begin,
                                Py_ssize_t end, const uint8_t *edge) {
    uint64_t count, n;
    uint8_t facts[HR_FACTS] = {0};
    Py_ssize_t facts_bytes = hr_put_facts(facts, row), mark_bytes = row[HR_MARK_BYTES];
    int field = 0, fields = *types++;
    at = hr_put_mode(out, at, row, p, begin, end, &count);
    if (at < 0) return -1;
    for (; count; count--) {
        if (end - *begin < mark_bytes + 3 || at > limit) return -1;
        const uint8_t *head = p + *begin + mark_bytes; /* The path's length, the path. */
        int position = head[1] << 8 | head[2];
        if (!hr_is_marked(row, p + *begin, 0) || head[0] != 2) return -1;
        if (position < field || position >= fields) return -1;
        *begin += mark_bytes + 3;
        if (!hr_uvint(p, begin, end, &n) || n == 0 || n > (uint64_t)(end - *begin)) return -1;
        for (; field < position; field++) out[at++] = 0;
        out[at++] = 2;
        out[at++] = 2;
        at = hr_put_value(out, at, types[field++], p + *begin, (Py_ssize_t)n, edge);
        if (at < 0) return -1;
        *begin += (Py_ssize_t)n;
        memcpy(out + at, facts, HR_FACTS);
        at += facts_bytes;
    }
    for (; field < fields; field++) out[at++] = 0;
    return at < limit ? at : -1;
}

/* The plain cells of a complex column, from p[*begin] on, as Avro at out[at], where each must begin
   before `limit`; returns where they end, -1 if there is another one. */
static Py_ssize_t hr_put_complex(uint8_t *out, Py_ssize_t at, Py_ssize_t limit, const int64_t *row,
                                 const int *form, const uint8_t *p, Py_ssize_t *begin,
                                 Py_ssize_t end, const uint8_t *edge) {
    uint64_t count, n;
    uint8_t facts[HR_FACTS] = {0};
    Py_ssize_t facts_bytes = 0, mark_bytes = row[HR_MARK_BYTES];
    at = hr_put_mode(out, at, row, p, begin, end, &count);
    if (at < 0) return -1;
    if (count) at = hr_put_long(out, at, (int64_t)count);
    for (; count; count--) {
        if (end - *begin <= mark_bytes || at > limit) return -1;
        int is_empty = p[*begin] & 4; /* HAS_EMPTY_VALUE. */
        if (!hr_is_marked(row, p + *begin, 4)) return -1;
        *begin += mark_bytes;
        if (!hr_uvint(p, begin, end, &n) || n == 0 || n > (uint64_t)(end - *begin)) return -1;
        at = hr_put_value(out, at, form[HR_PATH], p + *begin, (Py_ssize_t)n, edge);
        *begin += (Py_ssize_t)n;
        n = 0;
        if (at < 0 || (!is_empty && !hr_uvint(p, begin, end, &n))) return -1;
        if (n > (uint64_t)(end - *begin)) return -1;
        if (form[HR_CELL]) {
            if (n == 0) return -1;
            out[at] = 2;
            at = hr_put_value(out, at + 1, form[HR_CELL], p + *begin, (Py_ssize_t)n, edge);
            if (at < 0) return -1;
        }
        *begin += (Py_ssize_t)n;
        if (!facts_bytes) facts_bytes = hr_put_facts(facts, row);
        memcpy(out + at, facts, HR_FACTS);
        at += facts_bytes;
    }
    out[at++] = 0;
    return at < limit ? at : -1;
}

/* Writes plain cells (see ops.py) of the columns from number row[HR_COLUMN] on as Avro at
   out[at], and nulls for those between; notes in `starts` where each begins, and updates the
   positions in `row`. Returns where it ends. */
HR_UNUSED static Py_ssize_t hr_put_plain(uint8_t *out, Py_ssize_t at, Py_ssize_t limit,
                                         int64_t *row, int column, const int *columns, int count,
                                         const int *forms, const uint8_t *p, Py_ssize_t end,
                                         const uint8_t *edge, int *starts) {
    Py_ssize_t begin = row[HR_SIMPLE], mark_bytes = row[HR_MARK_BYTES], ended;
    int i = (int)row[HR_COLUMN];
    for (; i < count; i++, column++) {
        for (; column < columns[i]; column++) starts[column] = (int)at, out[at++] = 0;
        const int *form = forms + HR_FORM * column;
        starts[column] = (int)at;
        out[at] = 2;
        if (form[HR_PATH]) {
            Py_ssize_t inside = row[HR_COMPLEX] < 0 ? begin : row[HR_COMPLEX];
            if (form[HR_PATH] < 0)
                ended = hr_put_fields(out, at + 1, limit, row, forms + form[HR_CELL], p, &inside,
                                      end, edge);
            else
                ended = hr_put_complex(out, at + 1, limit, row, form, p, &inside, end, edge);
            if (ended < 0) break;
            at = ended, row[HR_COMPLEX] = inside;
            continue;
        }
        if (end - begin <= mark_bytes || !hr_is_marked(row, p + begin, 0)) break;
        Py_ssize_t start = begin + mark_bytes, n = form[HR_FIXED];
        if (n < 0) n = p[start++];
        if (n == 0 || n > 127 || n > end - start) break;
        ended = hr_put_value(out, at + 1, form[HR_TYPE], p + start, n, edge);
        if (ended < 0) break;
        at = ended, begin = start + n;
    }
    row[HR_COLUMN] = i, row[HR_SIMPLE] = begin;
    return at;
}

#endif
