/* SipHash-2-4 with 128 bits of output, by which copies of a mutation are compared. */
#ifndef HEADRACE_SIPHASH_H
#define HEADRACE_SIPHASH_H

#include "base.h"

/* Of the names v0 to v3: one message's words or lanes of many. */
#define HR_SIP_ROUND(ROTL16, ROTL32)                                          \
    v0 += v1, v2 += v3, v1 = HR_ROTL(v1, 13) ^ v0, v3 = ROTL16(v3) ^ v2,      \
    v0 = ROTL32(v0), v2 += v1, v0 += v3, v1 = HR_ROTL(v1, 17) ^ v2,           \
    v3 = HR_ROTL(v3, 21) ^ v0, v2 = ROTL32(v2)
#define HR_ROTL16(x) HR_ROTL(x, 16)
#define HR_ROTL32(x) HR_ROTL(x, 32)

/* A message's last word: its last bytes, fewer than 8, and its length. */
static inline uint64_t hr_sip_last(const uint8_t *p, Py_ssize_t n) {
    uint64_t last = 0;
    if (n < 8)
        for (int i = 0; i < n; i++) last |= (uint64_t)p[i] << (8 * i);
    else if (n & 7)
        last = hr_le64(p + n - 8) >> (64 - 8 * (n & 7));
    return last | (uint64_t)n << 56;
}

HR_UNUSED static void hr_siphash(const uint8_t *p, Py_ssize_t n, uint64_t k0, uint64_t k1,
                                 uint64_t *out) {
    uint64_t v0 = 0x736f6d6570736575ull ^ k0, v1 = 0x646f72616e646f6dull ^ k1 ^ 0xee;
    uint64_t v2 = 0x6c7967656e657261ull ^ k0, v3 = 0x7465646279746573ull ^ k1;
#define HR_ROUND HR_SIP_ROUND(HR_ROTL16, HR_ROTL32)
    for (Py_ssize_t at = 0; at <= n; at += 8) {
        const uint64_t m = n - at >= 8 ? hr_le64(p + at) : hr_sip_last(p, n);
        v3 ^= m, HR_ROUND, HR_ROUND, v0 ^= m;
    }
    v2 ^= 0xee, HR_ROUND, HR_ROUND, HR_ROUND, HR_ROUND;
    out[0] = v0 ^ v1 ^ v2 ^ v3;
    v1 ^= 0xdd, HR_ROUND, HR_ROUND, HR_ROUND, HR_ROUND;
    out[1] = v0 ^ v1 ^ v2 ^ v3;
#undef HR_ROUND
}

#ifdef HR_X86
#define HR_SIP_LANES_MAX 16

/* 16 bytes at `at` of every second of eight messages, or of four. */
__attribute__((target("avx512f"), always_inline)) static inline __m512i
hr_sip_pairs8(const uint8_t *const *p, Py_ssize_t at) {
    __m512i x = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(p[0] + at)));
#define HR_PAIR(x, mask, i) \
    _mm512_mask_broadcast_i32x4(x, mask, _mm_loadu_si128((const __m128i *)(p[i] + at)))
    x = HR_PAIR(x, 0x00f0, 2);
    return HR_PAIR(HR_PAIR(x, 0x0f00, 4), 0xf000, 6);
#undef HR_PAIR
}
__attribute__((target("avx2"), always_inline)) static inline __m256i
hr_sip_pairs4(const uint8_t *const *p, Py_ssize_t at) {
    const __m256i x = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(p[0] + at)));
    return _mm256_inserti128_si256(x, _mm_loadu_si128((const __m128i *)(p[2] + at)), 1);
}

#define HR_SIP_WIDE hr_siphash_by8
#define HR_SIP_TARGET "avx512f"
#define HR_SIP_LANES 8
#define HR_SIP_PAIRS hr_sip_pairs8
#define HR_SIP_LOW(x, y) (hr_lanes) _mm512_unpacklo_epi64(x, y)
#define HR_SIP_HIGH(x, y) (hr_lanes) _mm512_unpackhi_epi64(x, y)
#define HR_SIP_ROTL16 HR_ROTL16
#define HR_SIP_ROTL32 HR_ROTL32
#include "siphash_lanes.h"

/* AVX2 has no rotation, but bytes and halves of words can change places. */
#define HR_SIP_WIDE hr_siphash_by4
#define HR_SIP_TARGET "avx2"
#define HR_SIP_LANES 4
#define HR_SIP_PAIRS hr_sip_pairs4
#define HR_SIP_LOW(x, y) (hr_lanes) _mm256_unpacklo_epi64(x, y)
#define HR_SIP_HIGH(x, y) (hr_lanes) _mm256_unpackhi_epi64(x, y)
#define HR_SIP_ROTL16(x)                                                      \
    (hr_lanes) _mm256_shuffle_epi8((__m256i)(x), _mm256_broadcastsi128_si256(    \
        _mm_set_epi64x(0x0d0c0b0a09080f0ell, 0x0504030201000706ll)))
#define HR_SIP_ROTL32(x) (hr_lanes) _mm256_shuffle_epi32((__m256i)(x), 0xb1)
#include "siphash_lanes.h"
#endif

/* The digests of `count` byte ranges: ranges[i * stride] and the number after it. */
HR_UNUSED static void hr_siphash_all(const uint8_t *base, const int64_t *ranges, int stride,
                                     int count, uint64_t k0, uint64_t k1, uint64_t *out) {
    int i = 0;
#ifdef HR_X86
    const int group = hr_have_avx512 ? 8 : 4;
    /* From three on, lanes that repeat the last message cost less than hashing one by one. */
    while (hr_have_avx2 && count - i >= 3) {
        const uint8_t *p[HR_SIP_LANES_MAX];
        Py_ssize_t n[HR_SIP_LANES_MAX];
        uint64_t made[2 * HR_SIP_LANES_MAX];
        const int groups = count - i > group ? 2 : 1, room = groups * group;
        const int lanes = count - i < room ? count - i : room;
        for (int j = 0; j < room; j++) {
            const int64_t *range = ranges + (i + (j < lanes ? j : lanes - 1)) * stride;
            p[j] = base + range[0], n[j] = range[1] - range[0];
        }
        (hr_have_avx512 ? hr_siphash_by8 : hr_siphash_by4)(groups, p, n, k0, k1, made);
        memcpy(out + 2 * i, made, 16 * (size_t)lanes);
        i += lanes;
    }
#endif
    for (; i < count; i++) {
        const int64_t *range = ranges + i * stride;
        hr_siphash(base + range[0], range[1] - range[0], k0, k1, out + 2 * i);
    }
}

#endif
