/* What ops.pxd declares, for Cython: the functions of the other headers on typed memoryviews.

   Each macro takes a view and byte positions in it; nothing is checked here. */
#ifndef HEADRACE_NATIVE_H
#define HEADRACE_NATIVE_H

#include "avro.h"
#include "checksum.h"
#include "crc32.h"
#include "murmur3.h"
#include "sha256.h"
#include "siphash.h"

#define hr_at(view, position) ((uint8_t *)(view).data + (position))
#define hr_words(view, place) ((uint64_t *)(view).data + (place))

#define hr_v_crc32(v, start, end, seed) hr_crc32(hr_at(v, start), (end) - (start), seed)
#define hr_v_siphash(v, start, end, k0, k1, out) \
    hr_siphash(hr_at(v, start), (end) - (start), k0, k1, (uint64_t *)(out).data)
#define hr_v_token(v, start, end) hr_token(hr_at(v, start), (end) - (start))
#define hr_v_siphash_all(v, ranges, first, stride, count, k0, k1, out)                      \
    hr_siphash_all(hr_at(v, 0), (const int64_t *)(ranges).data + (first), stride, count, k0, k1, \
                   (uint64_t *)(out).data)
#define hr_v_sha16_all(v, ranges, stride, count, out) \
    hr_sha16_all(hr_at(v, 0), (const int64_t *)(ranges).data, stride, count, hr_at(out, 0))
#define hr_v_i32(v, at) ((int32_t)hr_be32(hr_at(v, at)))
#define hr_v_u32(v, at) hr_be32(hr_at(v, at))
#define hr_v_u64(v, at) hr_be64(hr_at(v, at))
#define hr_v_same(a, at, b, from, n) (memcmp(hr_at(a, at), hr_at(b, from), (size_t)(n)) == 0)
#define hr_v_copy(out, at, v, start, end) \
    hr_copy(hr_at(out, at), hr_at(v, start), (size_t)((end) - (start)))
#define hr_v_take(v, start, end) \
    PyBytes_FromStringAndSize((const char *)hr_at(v, start), (end) - (start))
#define hr_v_take_words(words, count) \
    PyBytes_FromStringAndSize((const char *)hr_at(words, 0), 8 * (count))
#define hr_v_put_digest(words, at, d0, d1) hr_put_digest(hr_words(words, at), d0, d1)
#define hr_v_put_bound(out, at, digest, start, count) \
    hr_put_bound(hr_words(out, at), hr_words(digest, start), count)
#define hr_v_subtract_checksum(out, at, words, start) \
    hr_subtract_checksum(hr_words(out, at), hr_words(words, start))
#define hr_v_add_checksum(out, at, words, start) \
    hr_add_checksum(hr_words(out, at), hr_words(words, start))
#define hr_v_put_bytes(out, at, content) hr_put_bytes(hr_at(out, 0), at, content)
#define hr_v_put_long(out, at, number) hr_put_long(hr_at(out, 0), at, number)
#define hr_v_prefetch_index(index, at) __builtin_prefetch(hr_at(index, 4 * (at)), 1)
#define hr_v_prefetch_record(words, at) \
    (__builtin_prefetch(hr_at(words, 8 * (at)), 1), __builtin_prefetch(hr_at(words, 8 * (at) + 64), 1))
#define hr_v_put_value(out, at, type, v, start, n) \
    hr_put_value(hr_at(out, 0), at, type, hr_at(v, start), n, hr_at(v, (v).shape[0]))
#define hr_v_put_plain(out, at, limit, row, column, columns, count, forms, v, end, starts, first) \
    hr_put_plain(hr_at(out, 0), at, limit, (int64_t *)(row).data, column,                         \
                 (const int *)(columns).data, count, (const int *)(forms).data, hr_at(v, 0), end, \
                 hr_at(v, (v).shape[0]), (int *)(starts).data + (first))

#endif
