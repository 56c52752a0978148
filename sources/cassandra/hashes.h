/* Checksums, digests and tokens; native.h gives them to Cython. Nothing is checked here. */
#ifndef HEADRACE_HASHES_H
#define HEADRACE_HASHES_H

#include <Python.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define HR_X86 1
#include <immintrin.h>
#endif
#define HR_UNUSED __attribute__((unused))

static inline uint32_t hr_be32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return __builtin_bswap32(v);
}
static inline uint64_t hr_be64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return __builtin_bswap64(v);
}
static inline uint64_t hr_le64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}
/* The builtin is a call of a library where the processor may lack the instruction. */
static inline int hr_popcount(uint64_t x) {
    x -= x >> 1 & 0x5555555555555555ull;
    x = (x & 0x3333333333333333ull) + (x >> 2 & 0x3333333333333333ull);
    return (int)(((x + (x >> 4)) & 0x0f0f0f0f0f0f0f0full) * 0x0101010101010101ull >> 56);
}
#define HR_ROTL(x, b) ((x) << (b) | (x) >> (64 - (b)))  /* Of one word or of lanes. */

/* ---- CRC-32 as zlib computes it: carry-less multiplication, tables for the tail ---- */

static uint32_t hr_crc_table[4][256];
static int hr_have_clmul, hr_have_sha, hr_have_avx512, hr_have_wide_clmul;

HR_UNUSED __attribute__((constructor)) static void hr_prepare(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = c & 1 ? 0xEDB88320u ^ (c >> 1) : c >> 1;
        hr_crc_table[0][i] = c;
    }
    for (int t = 1; t < 4; t++)
        for (int i = 0; i < 256; i++) {
            uint32_t c = hr_crc_table[t - 1][i];
            hr_crc_table[t][i] = hr_crc_table[0][c & 255] ^ (c >> 8);
        }
#ifdef HR_X86
    unsigned a, b, c, d;
    __builtin_cpu_init();
    hr_have_clmul = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    __asm__("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(7), "c"(0));
    hr_have_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
    hr_have_wide_clmul = hr_have_avx512 && __builtin_cpu_supports("vpclmulqdq");
    hr_have_sha = (b >> 29 & 1) && __builtin_cpu_supports("sse4.1");
#endif
}

#ifdef HR_X86
#define HR_FOLD(x, k) \
    _mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), _mm_clmulepi64_si128(x, k, 0x11))

/* Folds x and the n / 64 >= 1 blocks at p into 16 bytes. */
__attribute__((target("avx512f,vpclmulqdq"))) static __m128i
hr_crc_wide(__m128i x, const uint8_t *p, size_t n) {
    const __m512i k12 = _mm512_broadcast_i32x4(_mm_set_epi64x(0x01c6e41596, 0x0154442bd4));
    const __m512i last = _mm512_set_epi64(0, 0, 0x00ccaa009e, 0x01751997d0, 0x015a546366,
                                          0x00f1da05aa, 0x0174359406, 0x003db1ecdc);
    __m512i z = _mm512_xor_si512(_mm512_loadu_si512(p), _mm512_zextsi128_si512(x));
#define HR_FOLD_WIDE(k, to)                                                      \
    _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(z, k, 0x00),              \
                              _mm512_clmulepi64_epi128(z, k, 0x11), to, 0x96)
    for (p += 64; n >= 128; p += 64, n -= 64) z = HR_FOLD_WIDE(k12, _mm512_loadu_si512(p));
    z = HR_FOLD_WIDE(last, _mm512_maskz_mov_epi64(0xc0, z));
#undef HR_FOLD_WIDE
    const __m256i y = _mm256_xor_si256(_mm512_castsi512_si256(z), _mm512_extracti64x4_epi64(z, 1));
    return _mm_xor_si128(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1));
}

/* Folds n >= 32 bytes into the inverted crc. What exceeds a multiple of 16 goes first, after zeros:
   leading zeros change nothing, so no tail is left. */
HR_UNUSED __attribute__((target("pclmul,sse4.1"))) static uint32_t
hr_crc_fold(uint32_t crc, const uint8_t *p, size_t n) {
    static const uint8_t slide[48] = {
        128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128,
        0,   1,   2,   3,   4,   5,   6,   7,   8,   9,   10,  11,  12,  13,  14,  15,
        128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128};
    const __m128i k12 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i k34 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i low = _mm_setr_epi32(-1, 0, -1, 0), seed = _mm_cvtsi32_si128((int)crc);
    const size_t odd = n & 15;
#define HR_LOAD(i) _mm_loadu_si128((const __m128i *)p + (i))
#define HR_SLIDE(x, i) _mm_shuffle_epi8(x, _mm_loadu_si128((const __m128i *)(slide + (i))))
    __m128i x = HR_SLIDE(_mm_xor_si128(HR_LOAD(0), seed), odd);
    x = _mm_xor_si128(HR_FOLD(x, k34), HR_SLIDE(seed, 16 + odd));
    p += odd, n -= odd;
    if (n >= 128 && hr_have_wide_clmul) {
        x = hr_crc_wide(x, p, n);
        p += n & ~(size_t)63, n &= 63;
    } else if (n >= 128) {
        x = _mm_xor_si128(x, HR_LOAD(0));
        __m128i x1 = HR_LOAD(1), x2 = HR_LOAD(2), x3 = HR_LOAD(3);
        for (p += 64, n -= 64; n >= 64; p += 64, n -= 64) {
            x = _mm_xor_si128(HR_FOLD(x, k12), HR_LOAD(0));
            x1 = _mm_xor_si128(HR_FOLD(x1, k12), HR_LOAD(1));
            x2 = _mm_xor_si128(HR_FOLD(x2, k12), HR_LOAD(2));
            x3 = _mm_xor_si128(HR_FOLD(x3, k12), HR_LOAD(3));
        }
        x = _mm_xor_si128(HR_FOLD(x, k34), x1);
        x = _mm_xor_si128(HR_FOLD(x, k34), x2);
        x = _mm_xor_si128(HR_FOLD(x, k34), x3);
    } else {
        x = _mm_xor_si128(x, HR_LOAD(0));
        p += 16, n -= 16;
    }
    for (; n; p += 16, n -= 16) x = _mm_xor_si128(HR_FOLD(x, k34), HR_LOAD(0));
#undef HR_SLIDE
#undef HR_LOAD
    x = _mm_xor_si128(_mm_srli_si128(x, 8), _mm_clmulepi64_si128(x, k34, 0x10));
    __m128i y = _mm_clmulepi64_si128(_mm_and_si128(x, low), _mm_set_epi64x(0, 0x0163cd6124), 0);
    x = _mm_xor_si128(_mm_srli_si128(x, 4), y);
    const __m128i poly = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    y = _mm_clmulepi64_si128(_mm_and_si128(x, low), poly, 0x10);
    y = _mm_clmulepi64_si128(_mm_and_si128(y, low), poly, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(x, y), 1);
}
#endif

__attribute__((always_inline)) static inline uint32_t hr_crc32(const uint8_t *p, Py_ssize_t length,
                                                               uint32_t seed) {
    size_t n = (size_t)length;
    uint32_t crc = ~seed, v;
#ifdef HR_X86
    if (n >= 32 && hr_have_clmul) return ~hr_crc_fold(crc, p, n);
#endif
    for (; n >= 4; p += 4, n -= 4) {
        memcpy(&v, p, 4);
        v ^= crc;
        crc = hr_crc_table[3][v & 255] ^ hr_crc_table[2][v >> 8 & 255] ^
              hr_crc_table[1][v >> 16 & 255] ^ hr_crc_table[0][v >> 24];
    }
    while (n--) crc = hr_crc_table[0][(crc ^ *p++) & 255] ^ (crc >> 8);
    return ~crc;
}

/* ---- SipHash-2-4 with 128 bits of output: the agreement digest ---- */

#define HR_SIP_ROUND                                                               \
    v0 += v1, v2 += v3, v1 = HR_ROTL(v1, 13) ^ v0, v3 = HR_ROTL(v3, 16) ^ v2,      \
    v0 = HR_ROTL(v0, 32), v2 += v1, v0 += v3, v1 = HR_ROTL(v1, 17) ^ v2,           \
    v3 = HR_ROTL(v3, 21) ^ v0, v2 = HR_ROTL(v2, 32)
#define HR_SIP_FINAL HR_SIP_ROUND, HR_SIP_ROUND, HR_SIP_ROUND, HR_SIP_ROUND

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
    for (Py_ssize_t at = 0; at <= n; at += 8) {
        const uint64_t m = n - at >= 8 ? hr_le64(p + at) : hr_sip_last(p, n);
        v3 ^= m, HR_SIP_ROUND, HR_SIP_ROUND, v0 ^= m;
    }
    v2 ^= 0xee, HR_SIP_FINAL;
    out[0] = v0 ^ v1 ^ v2 ^ v3;
    v1 ^= 0xdd, HR_SIP_FINAL;
    out[1] = v0 ^ v1 ^ v2 ^ v3;
}

#ifdef HR_X86
#define HR_SIP_LANES 8
typedef uint64_t hr_lanes __attribute__((vector_size(8 * HR_SIP_LANES)));

/* 16 bytes at `at` of every second message. */
__attribute__((target("avx512f"), always_inline)) static inline __m512i
hr_sip_pairs(const uint8_t *const *p, Py_ssize_t at) {
    __m512i x = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(p[0] + at)));
#define HR_PAIR(x, mask, i) \
    _mm512_mask_broadcast_i32x4(x, mask, _mm_loadu_si128((const __m128i *)(p[i] + at)))
    x = HR_PAIR(x, 0x00f0, 2);
    return HR_PAIR(HR_PAIR(x, 0x0f00, 4), 0xf000, 6);
#undef HR_PAIR
}

/* Eight or, in two `groups`, sixteen messages side by side; two groups hide the latency of each
   other's rounds. Beyond the end of the shortest, those that have ended stand still. */
__attribute__((target("avx512f"), always_inline)) static inline void
hr_siphash_lanes(const int groups, const uint8_t *const *p, const Py_ssize_t *n, uint64_t k0,
                 uint64_t k1, uint64_t *out) {
    hr_lanes a[2], b[2], c[2], d[2], m[2], next[2], on[2];
    Py_ssize_t least = n[0], most = n[0], at = 0;
#define HR_EACH _Pragma("GCC unroll 2") for (int g = 0; g < groups; g++)
#define HR_LANE _Pragma("GCC unroll 8") for (int i = 0; i < HR_SIP_LANES; i++)
#define v0 a[g]
#define v1 b[g]
#define v2 c[g]
#define v3 d[g]
    for (int i = 1; i < groups * HR_SIP_LANES; i++) {
        least = n[i] < least ? n[i] : least;
        most = n[i] > most ? n[i] : most;
    }
    HR_EACH {
        v0 = (hr_lanes){0} + (0x736f6d6570736575ull ^ k0);
        v1 = (hr_lanes){0} + (0x646f72616e646f6dull ^ k1 ^ 0xee);
        v2 = (hr_lanes){0} + (0x6c7967656e657261ull ^ k0);
        v3 = (hr_lanes){0} + (0x7465646279746573ull ^ k1);
    }
    for (; least - at >= 16; at += 16) { /* Pairs of words take fewer moves. */
        HR_EACH {
            const uint8_t *const *q = p + HR_SIP_LANES * g;
            const __m512i even = hr_sip_pairs(q, at), odd = hr_sip_pairs(q + 1, at);
            m[g] = (hr_lanes)_mm512_unpacklo_epi64(even, odd);
            next[g] = (hr_lanes)_mm512_unpackhi_epi64(even, odd);
        }
        HR_EACH v3 ^= m[g];
        HR_EACH HR_SIP_ROUND;
        HR_EACH HR_SIP_ROUND;
        HR_EACH v0 ^= m[g];
        HR_EACH v3 ^= next[g];
        HR_EACH HR_SIP_ROUND;
        HR_EACH HR_SIP_ROUND;
        HR_EACH v0 ^= next[g];
    }
    for (; at <= most; at += 8) {
        hr_lanes s0[2], s1[2], s2[2], s3[2];
        HR_EACH {
            s0[g] = v0, s1[g] = v1, s2[g] = v2, s3[g] = v3;
            m[g] = on[g] = (hr_lanes){0};
            HR_LANE {
                const int l = HR_SIP_LANES * g + i;
                if (at > n[l]) continue;
                m[g][i] = n[l] - at >= 8 ? hr_le64(p[l] + at) : hr_sip_last(p[l], n[l]);
                on[g][i] = ~0ull;
            }
        }
        HR_EACH v3 ^= m[g];
        HR_EACH HR_SIP_ROUND;
        HR_EACH HR_SIP_ROUND;
        HR_EACH {
            v0 ^= m[g];
            v0 = (v0 & on[g]) | (s0[g] & ~on[g]), v1 = (v1 & on[g]) | (s1[g] & ~on[g]);
            v2 = (v2 & on[g]) | (s2[g] & ~on[g]), v3 = (v3 & on[g]) | (s3[g] & ~on[g]);
        }
    }
    HR_EACH {
        v2 ^= 0xee, HR_SIP_FINAL;
        const hr_lanes first = v0 ^ v1 ^ v2 ^ v3;
        v1 ^= 0xdd, HR_SIP_FINAL;
        const hr_lanes second = v0 ^ v1 ^ v2 ^ v3;
        uint64_t *made = out + 2 * HR_SIP_LANES * g;
        for (int i = 0; i < HR_SIP_LANES; i++) made[2 * i] = first[i], made[2 * i + 1] = second[i];
    }
#undef v0
#undef v1
#undef v2
#undef v3
#undef HR_LANE
#undef HR_EACH
}

__attribute__((target("avx512f"))) static void
hr_siphash_wide(int groups, const uint8_t *const *p, const Py_ssize_t *n, uint64_t k0, uint64_t k1,
                uint64_t *out) {
    if (groups == 2)
        hr_siphash_lanes(2, p, n, k0, k1, out);
    else
        hr_siphash_lanes(1, p, n, k0, k1, out);
}
#endif

/* The digests of `count` byte ranges: ranges[i * stride] and the number after it. */
HR_UNUSED static void hr_siphash_all(const uint8_t *base, const int64_t *ranges, int stride,
                                     int count, uint64_t k0, uint64_t k1, uint64_t *out) {
    int i = 0;
#ifdef HR_X86
    /* From three on, lanes that repeat the last message cost less than going one by one. */
    while (hr_have_avx512 && count - i >= 3) {
        const uint8_t *p[2 * HR_SIP_LANES];
        Py_ssize_t n[2 * HR_SIP_LANES];
        uint64_t made[4 * HR_SIP_LANES];
        const int groups = count - i > HR_SIP_LANES ? 2 : 1, room = groups * HR_SIP_LANES;
        const int lanes = count - i < room ? count - i : room;
        for (int j = 0; j < room; j++) {
            const int64_t *range = ranges + (i + (j < lanes ? j : lanes - 1)) * stride;
            p[j] = base + range[0], n[j] = range[1] - range[0];
        }
        hr_siphash_wide(groups, p, n, k0, k1, made);
        memcpy(out + 2 * i, made, 16 * (size_t)lanes);
        i += lanes;
    }
#endif
    for (; i < count; i++) {
        const int64_t *range = ranges + i * stride;
        hr_siphash(base + range[0], range[1] - range[0], k0, k1, out + 2 * i);
    }
}

/* ---- Cassandra's Murmur3 token: tail bytes are signed (docs/commit-log.md 10) ---- */

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
