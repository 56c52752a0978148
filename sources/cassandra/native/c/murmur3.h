/* The Murmur3Partitioner's token. Bytes of the tail are signed (docs/commit-log.md 10). */
#ifndef HEADRACE_MURMUR3_H
#define HEADRACE_MURMUR3_H

#include "base.h"

static inline uint64_t hr_fmix(uint64_t k) {
    k = (k ^ (k >> 33)) * 0xff51afd7ed558ccdull;
    k = (k ^ (k >> 33)) * 0xc4ceb9fe1a85ec53ull;
    return k ^ (k >> 33);
}

HR_UNUSED static int64_t hr_token(const uint8_t *p, Py_ssize_t n) {
    const uint64_t c1 = 0x87c37b91114253d5ull, c2 = 0x4cf5ad432745937full;
    uint64_t h1 = 0, h2 = 0, k1, k2, length = (uint64_t)n;
    if (n == 0) return INT64_MIN;
    for (; n >= 16; p += 16, n -= 16) {
        k1 = hr_le64(p), k2 = hr_le64(p + 8);
        h1 ^= HR_ROTL(k1 * c1, 31) * c2;
        h1 = (HR_ROTL(h1, 27) + h2) * 5 + 0x52dce729;
        h2 ^= HR_ROTL(k2 * c2, 33) * c1;
        h2 = (HR_ROTL(h2, 31) + h1) * 5 + 0x38495ab5;
    }
    k1 = k2 = 0;
    for (Py_ssize_t i = n - 1; i >= 8; i--) k2 ^= (uint64_t)(int64_t)(int8_t)p[i] << (8 * (i - 8));
    for (Py_ssize_t i = n < 8 ? n - 1 : 7; i >= 0; i--)
        k1 ^= (uint64_t)(int64_t)(int8_t)p[i] << (8 * i);
    if (n > 8) h2 ^= HR_ROTL(k2 * c2, 33) * c1;
    if (n > 0) h1 ^= HR_ROTL(k1 * c1, 31) * c2;
    h1 ^= length, h2 ^= length;
    h1 += h2, h2 += h1;
    h1 = hr_fmix(h1), h2 = hr_fmix(h2);
    h1 += h2;
    return (int64_t)h1 == INT64_MIN ? INT64_MAX : (int64_t)h1;
}

#endif
