/* The few byte-level operations that C does faster than Cython; native.py is the same in Python.

   Each macro takes a typed memoryview and byte positions in it; nothing is checked here. */
#ifndef HEADRACE_NATIVE_H
#define HEADRACE_NATIVE_H

#include <Python.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define HR_X86 1
#include <immintrin.h>
#endif
#define HR_UNUSED __attribute__((unused))

#define hr_at(view, position) ((uint8_t *)(view).data + (position))

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
static inline uint64_t hr_rotl(uint64_t x, int b) { return (x << b) | (x >> (64 - b)); }

/* ---- CRC-32 as zlib computes it: carry-less multiplication, tables for the tail ---- */

static uint32_t hr_crc_table[8][256];
static int hr_have_clmul, hr_have_sha, hr_have_avx2;

HR_UNUSED __attribute__((constructor)) static void hr_prepare(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = c & 1 ? 0xEDB88320u ^ (c >> 1) : c >> 1;
        hr_crc_table[0][i] = c;
    }
    for (int t = 1; t < 8; t++)
        for (int i = 0; i < 256; i++) {
            uint32_t c = hr_crc_table[t - 1][i];
            hr_crc_table[t][i] = hr_crc_table[0][c & 255] ^ (c >> 8);
        }
#ifdef HR_X86
    unsigned a, b, c, d;
    __builtin_cpu_init();
    hr_have_clmul = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    __asm__("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(7), "c"(0));
    hr_have_avx2 = __builtin_cpu_supports("avx2");
    hr_have_sha = (b >> 29 & 1) && __builtin_cpu_supports("sse4.1");
#endif
}

#ifdef HR_X86
#define HR_FOLD(x, k) \
    _mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), _mm_clmulepi64_si128(x, k, 0x11))

/* Folds n bytes, n >= 16, into the inverted crc; *left receives how many bytes remain (< 16). */
HR_UNUSED __attribute__((target("pclmul,sse4.1"))) static uint32_t
hr_crc_fold(uint32_t crc, const uint8_t *p, size_t n, size_t *left) {
    const __m128i k12 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i k34 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i low = _mm_setr_epi32(-1, 0, -1, 0);
#define HR_LOAD(i) _mm_loadu_si128((const __m128i *)p + (i))
    __m128i x = _mm_xor_si128(HR_LOAD(0), _mm_cvtsi32_si128((int)crc));
    if (n >= 128) {
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
        p += 16, n -= 16;
    }
    for (; n >= 16; p += 16, n -= 16) x = _mm_xor_si128(HR_FOLD(x, k34), HR_LOAD(0));
#undef HR_LOAD
    x = _mm_xor_si128(_mm_srli_si128(x, 8), _mm_clmulepi64_si128(x, k34, 0x10));
    __m128i y = _mm_clmulepi64_si128(_mm_and_si128(x, low), _mm_set_epi64x(0, 0x0163cd6124), 0);
    x = _mm_xor_si128(_mm_srli_si128(x, 4), y);
    const __m128i poly = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    y = _mm_clmulepi64_si128(_mm_and_si128(x, low), poly, 0x10);
    y = _mm_clmulepi64_si128(_mm_and_si128(y, low), poly, 0x00);
    *left = n;
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(x, y), 1);
}
#endif

HR_UNUSED static uint32_t hr_crc32(const uint8_t *p, Py_ssize_t length, uint32_t seed) {
    size_t n = (size_t)length;
    uint32_t crc = ~seed;
#ifdef HR_X86
    if (n >= 16 && hr_have_clmul) {
        size_t left;
        crc = hr_crc_fold(crc, p, n, &left);
        p += n - left;
        n = left;
    }
#endif
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t v = hr_le64(p) ^ crc;
        crc = hr_crc_table[7][v & 255] ^ hr_crc_table[6][v >> 8 & 255] ^
              hr_crc_table[5][v >> 16 & 255] ^ hr_crc_table[4][v >> 24 & 255] ^
              hr_crc_table[3][v >> 32 & 255] ^ hr_crc_table[2][v >> 40 & 255] ^
              hr_crc_table[1][v >> 48 & 255] ^ hr_crc_table[0][v >> 56];
    }
    while (n--) crc = hr_crc_table[0][(crc ^ *p++) & 255] ^ (crc >> 8);
    return ~crc;
}

/* ---- SipHash-2-4 with 128 bits of output: the agreement digest ---- */

#define HR_SIP_ROUND                                                               \
    v0 += v1, v2 += v3, v1 = hr_rotl(v1, 13) ^ v0, v3 = hr_rotl(v3, 16) ^ v2,      \
    v0 = hr_rotl(v0, 32), v2 += v1, v0 += v3, v1 = hr_rotl(v1, 17) ^ v2,           \
    v3 = hr_rotl(v3, 21) ^ v0, v2 = hr_rotl(v2, 32)

static inline void hr_sip_start(uint64_t k0, uint64_t k1, uint64_t *v) {
    v[0] = 0x736f6d6570736575ull ^ k0, v[1] = 0x646f72616e646f6dull ^ k1 ^ 0xee;
    v[2] = 0x6c7967656e657261ull ^ k0, v[3] = 0x7465646279746573ull ^ k1;
}

/* Goes on from state v at byte `from` of n, a multiple of 8, and writes the digest. */
static void hr_sip_finish(const uint8_t *p, Py_ssize_t from, Py_ssize_t n, const uint64_t *v,
                          uint64_t *out) {
    uint64_t v0 = v[0], v1 = v[1], v2 = v[2], v3 = v[3], m, last = (uint64_t)n << 56;
    for (; n - from >= 8; from += 8) {
        m = hr_le64(p + from);
        v3 ^= m, HR_SIP_ROUND, HR_SIP_ROUND, v0 ^= m;
    }
    for (int i = 0; i < n - from; i++) last |= (uint64_t)p[from + i] << (8 * i);
    v3 ^= last, HR_SIP_ROUND, HR_SIP_ROUND, v0 ^= last;
    v2 ^= 0xee;
    HR_SIP_ROUND, HR_SIP_ROUND, HR_SIP_ROUND, HR_SIP_ROUND;
    out[0] = v0 ^ v1 ^ v2 ^ v3;
    v1 ^= 0xdd;
    HR_SIP_ROUND, HR_SIP_ROUND, HR_SIP_ROUND, HR_SIP_ROUND;
    out[1] = v0 ^ v1 ^ v2 ^ v3;
}

HR_UNUSED static void hr_siphash(const uint8_t *p, Py_ssize_t n, uint64_t k0, uint64_t k1,
                                 uint64_t *out) {
    uint64_t v[4];
    hr_sip_start(k0, k1, v);
    hr_sip_finish(p, 0, n, v, out);
}

#ifdef HR_X86
#define HR_ROTL4(x, b) _mm256_or_si256(_mm256_slli_epi64(x, b), _mm256_srli_epi64(x, 64 - b))
#define HR_SIP_ROUND4                                                                   \
    v0 = _mm256_add_epi64(v0, v1), v2 = _mm256_add_epi64(v2, v3),                       \
    v1 = _mm256_xor_si256(HR_ROTL4(v1, 13), v0),                                        \
    v3 = _mm256_xor_si256(_mm256_shuffle_epi8(v3, by16), v2),                           \
    v0 = _mm256_shuffle_epi32(v0, 0xB1), v2 = _mm256_add_epi64(v2, v1),                 \
    v0 = _mm256_add_epi64(v0, v3), v1 = _mm256_xor_si256(HR_ROTL4(v1, 17), v2),         \
    v3 = _mm256_xor_si256(HR_ROTL4(v3, 21), v0), v2 = _mm256_shuffle_epi32(v2, 0xB1)

/* Four messages side by side as far as the shortest goes, then each alone. */
__attribute__((target("avx2"))) static void hr_siphash4(const uint8_t *const *p,
                                                        const Py_ssize_t *n, uint64_t k0,
                                                        uint64_t k1, uint64_t *out) {
    const __m256i by16 = _mm256_setr_epi8(6, 7, 0, 1, 2, 3, 4, 5, 14, 15, 8, 9, 10, 11, 12, 13,
                                          6, 7, 0, 1, 2, 3, 4, 5, 14, 15, 8, 9, 10, 11, 12, 13);
    uint64_t start[4], lanes[4][4];
    hr_sip_start(k0, k1, start);
    __m256i v0 = _mm256_set1_epi64x((long long)start[0]);
    __m256i v1 = _mm256_set1_epi64x((long long)start[1]);
    __m256i v2 = _mm256_set1_epi64x((long long)start[2]);
    __m256i v3 = _mm256_set1_epi64x((long long)start[3]);
    Py_ssize_t common = n[0], at = 0;
    for (int i = 1; i < 4; i++) common = n[i] < common ? n[i] : common;
    for (; common - at >= 8; at += 8) {
        __m256i m = _mm256_setr_epi64x(
            (long long)hr_le64(p[0] + at), (long long)hr_le64(p[1] + at),
            (long long)hr_le64(p[2] + at), (long long)hr_le64(p[3] + at));
        v3 = _mm256_xor_si256(v3, m);
        HR_SIP_ROUND4, HR_SIP_ROUND4;
        v0 = _mm256_xor_si256(v0, m);
    }
    _mm256_storeu_si256((__m256i *)lanes[0], v0);
    _mm256_storeu_si256((__m256i *)lanes[1], v1);
    _mm256_storeu_si256((__m256i *)lanes[2], v2);
    _mm256_storeu_si256((__m256i *)lanes[3], v3);
    for (int i = 0; i < 4; i++) {
        uint64_t v[4] = {lanes[0][i], lanes[1][i], lanes[2][i], lanes[3][i]};
        hr_sip_finish(p[i], at, n[i], v, out + 2 * i);
    }
}
#endif

/* The digests of `count` byte ranges: ranges[i * stride] and the number after it. */
HR_UNUSED static void hr_siphash_all(const uint8_t *base, const int64_t *ranges, int stride,
                                     int count, uint64_t k0, uint64_t k1, uint64_t *out) {
    int i = 0;
#ifdef HR_X86
    if (hr_have_avx2)
        for (; count - i >= 4; i += 4) {
            const uint8_t *p[4];
            Py_ssize_t n[4];
            for (int j = 0; j < 4; j++) {
                const int64_t *range = ranges + (i + j) * stride;
                p[j] = base + range[0], n[j] = range[1] - range[0];
            }
            hr_siphash4(p, n, k0, k1, out + 2 * i);
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
        h1 ^= hr_rotl(k1 * c1, 31) * c2;
        h1 = (hr_rotl(h1, 27) + h2) * 5 + 0x52dce729;
        h2 ^= hr_rotl(k2 * c2, 33) * c1;
        h2 = (hr_rotl(h2, 31) + h1) * 5 + 0x38495ab5;
    }
    k1 = k2 = 0;
    for (Py_ssize_t i = n - 1; i >= 8; i--) k2 ^= (uint64_t)(int64_t)(int8_t)p[i] << (8 * (i - 8));
    for (Py_ssize_t i = n < 8 ? n - 1 : 7; i >= 0; i--)
        k1 ^= (uint64_t)(int64_t)(int8_t)p[i] << (8 * i);
    if (n > 8) h2 ^= hr_rotl(k2 * c2, 33) * c1;
    if (n > 0) h1 ^= hr_rotl(k1 * c1, 31) * c2;
    h1 ^= length, h2 ^= length;
    h1 += h2, h2 += h1;
    h1 = hr_fmix(h1), h2 = hr_fmix(h2);
    h1 += h2;
    return (int64_t)h1 == INT64_MIN ? INT64_MAX : (int64_t)h1;
}

/* ---- SHA-256: the public mutation id ---- */

static const uint32_t hr_sha_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static inline uint32_t hr_rotr32(uint32_t x, int b) { return (x >> b) | (x << (32 - b)); }

static void hr_sha_block(uint32_t *s, const uint8_t *p) {
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++) w[i] = hr_be32(p + 4 * i);
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (hr_rotr32(a, 7) ^ hr_rotr32(a, 18) ^ a >> 3) +
               (hr_rotr32(b, 17) ^ hr_rotr32(b, 19) ^ b >> 10);
    }
    memcpy(v, s, 32);
    for (int i = 0; i < 64; i++) {
        uint32_t e = v[4], a = v[0];
        uint32_t t1 = v[7] + (hr_rotr32(e, 6) ^ hr_rotr32(e, 11) ^ hr_rotr32(e, 25)) +
                      ((e & v[5]) ^ (~e & v[6])) + hr_sha_k[i] + w[i];
        uint32_t t2 = (hr_rotr32(a, 2) ^ hr_rotr32(a, 13) ^ hr_rotr32(a, 22)) +
                      ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 28);
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++) s[i] += v[i];
}

#ifdef HR_X86
/* One block of each of `lanes` (1 or 2) messages; two hide the latency of each other's rounds. */
__attribute__((target("sha,sse4.1"), always_inline)) static inline void
hr_sha_block_ni(int lanes, uint32_t *const *s, const uint8_t *const *p) {
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bll, 0x0405060700010203ll);
    __m128i t[2], a[2], b[2], a0[2], b0[2], m[2][4];
#define HR_LANES for (int l = 0; l < lanes; l++)
    HR_LANES {
        t[l] = _mm_shuffle_epi32(_mm_loadu_si128((__m128i *)s[l]), 0xB1);
        b[l] = _mm_shuffle_epi32(_mm_loadu_si128((__m128i *)(s[l] + 4)), 0x1B);
        a0[l] = a[l] = _mm_alignr_epi8(t[l], b[l], 8);
        b0[l] = b[l] = _mm_blend_epi16(b[l], t[l], 0xF0);
        for (int i = 0; i < 4; i++)
            m[l][i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)p[l] + i), swap);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        const __m128i k = _mm_loadu_si128((const __m128i *)hr_sha_k + i);
        HR_LANES t[l] = _mm_add_epi32(m[l][i & 3], k);
        HR_LANES b[l] = _mm_sha256rnds2_epu32(b[l], a[l], t[l]);
        HR_LANES a[l] = _mm_sha256rnds2_epu32(a[l], b[l], _mm_shuffle_epi32(t[l], 0x0E));
        if (i < 12) HR_LANES {
                t[l] = _mm_alignr_epi8(m[l][(i + 3) & 3], m[l][(i + 2) & 3], 4);
                t[l] = _mm_add_epi32(_mm_sha256msg1_epu32(m[l][i & 3], m[l][(i + 1) & 3]), t[l]);
                m[l][i & 3] = _mm_sha256msg2_epu32(t[l], m[l][(i + 3) & 3]);
            }
    }
    HR_LANES {
        t[l] = _mm_shuffle_epi32(_mm_add_epi32(a[l], a0[l]), 0x1B);
        b[l] = _mm_shuffle_epi32(_mm_add_epi32(b[l], b0[l]), 0xB1);
        _mm_storeu_si128((__m128i *)s[l], _mm_blend_epi16(t[l], b[l], 0xF0));
        _mm_storeu_si128((__m128i *)(s[l] + 4), _mm_alignr_epi8(b[l], t[l], 8));
    }
#undef HR_LANES
}

__attribute__((target("sha,sse4.1"))) static void hr_sha_block1(uint32_t *s, const uint8_t *p) {
    hr_sha_block_ni(1, &s, &p);
}

__attribute__((target("sha,sse4.1"))) static void hr_sha_block2(uint32_t *const *s,
                                                                const uint8_t *const *p) {
    hr_sha_block_ni(2, s, p);
}
#endif

static const uint32_t hr_sha_start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

/* Writes the message's last, padded block or two to tail and returns their bytes. */
static int hr_sha_pad(const uint8_t *p, Py_ssize_t n, uint8_t *tail) {
    const int rest = (int)(n & 63), length = rest < 56 ? 64 : 128;
    const uint64_t bits = __builtin_bswap64((uint64_t)n * 8);
    memset(tail, 0, 128);
    memcpy(tail, p + n - rest, (size_t)rest);
    tail[rest] = 0x80;
    memcpy(tail + length - 8, &bits, 8);
    return length;
}

static void hr_sha_write(const uint32_t *s, uint8_t *out) {
    for (int i = 0; i < 4; i++) {
        uint32_t v = __builtin_bswap32(s[i]);
        memcpy(out + 4 * i, &v, 4);
    }
}

/* Goes on from state s at block `from` and writes the first 16 bytes of SHA-256 to out. */
static void hr_sha_finish(uint32_t *s, Py_ssize_t from, const uint8_t *p, Py_ssize_t n,
                          uint8_t *out) {
    void (*block)(uint32_t *, const uint8_t *) = hr_sha_block;
    uint8_t tail[128];
#ifdef HR_X86
    if (hr_have_sha) block = hr_sha_block1;
#endif
    for (; from < n >> 6; from++) block(s, p + 64 * from);
    const int length = hr_sha_pad(p, n, tail);
    for (int i = 0; i < length; i += 64) block(s, tail + i);
    hr_sha_write(s, out);
}

/* The first 16 bytes of SHA-256 of `count` byte ranges: ranges[i * stride] and the next number. */
HR_UNUSED static void hr_sha16_all(const uint8_t *base, const int64_t *ranges, int stride,
                                   Py_ssize_t count, uint8_t *out) {
    Py_ssize_t i = 0;
    uint32_t s[2][8];
#ifdef HR_X86
    for (; hr_have_sha && count - i >= 2; i += 2) {
        const int64_t *r = ranges + i * stride, *q = r + stride;
        const uint8_t *p[2] = {base + r[0], base + q[0]};
        const Py_ssize_t n[2] = {r[1] - r[0], q[1] - q[0]};
        const Py_ssize_t common = (n[0] < n[1] ? n[0] : n[1]) >> 6;
        uint32_t *const states[2] = {s[0], s[1]};
        memcpy(s[0], hr_sha_start, 32), memcpy(s[1], hr_sha_start, 32);
        for (Py_ssize_t block = 0; block < common; block++) {
            const uint8_t *at[2] = {p[0] + 64 * block, p[1] + 64 * block};
            hr_sha_block2(states, at);
        }
        for (int l = 0; l < 2; l++) hr_sha_finish(s[l], common, p[l], n[l], out + 16 * (i + l));
    }
#endif
    for (; i < count; i++) {
        const int64_t *r = ranges + i * stride;
        memcpy(s[0], hr_sha_start, 32);
        hr_sha_finish(s[0], 0, base + r[0], r[1] - r[0], out + 16 * i);
    }
}

HR_UNUSED static int hr_is_ascii(const uint8_t *p, Py_ssize_t n) {
    uint64_t seen = 0;
    for (; n >= 8; p += 8, n -= 8) seen |= hr_le64(p);
    while (n-- > 0) seen |= *p++;
    return (seen & 0x8080808080808080ull) == 0;
}

/* An Avro int or long at base[at]: zigzag, then seven bits a byte, the lowest first. */
static inline Py_ssize_t hr_put_long(uint8_t *base, Py_ssize_t at, int64_t number) {
    uint64_t rest = ((uint64_t)number << 1) ^ (uint64_t)(number >> 63);
    for (; rest > 0x7f; rest >>= 7) base[at++] = (uint8_t)(rest | 0x80);
    base[at++] = (uint8_t)rest;
    return at;
}

/* memmove, without its call for the few bytes that names and most values are. */
static inline void hr_copy(uint8_t *out, const uint8_t *p, size_t n) {
    if (n > 16) {
        memmove(out, p, n);
    } else if (n >= 8) {
        uint64_t a, b;
        memcpy(&a, p, 8), memcpy(&b, p + n - 8, 8);
        memcpy(out, &a, 8), memcpy(out + n - 8, &b, 8);
    } else if (n >= 4) {
        uint32_t a, b;
        memcpy(&a, p, 4), memcpy(&b, p + n - 4, 4);
        memcpy(out, &a, 4), memcpy(out + n - 4, &b, 4);
    } else {
        for (size_t i = 0; i < n; i++) out[i] = p[i];
    }
}

/* The 36 characters of a UUID at out. */
HR_UNUSED static void hr_put_uuid(uint8_t *out, const uint8_t *p) {
    static const char hex[] = "0123456789abcdef";
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10) *out++ = '-';
        *out++ = (uint8_t)hex[p[i] >> 4];
        *out++ = (uint8_t)hex[p[i] & 15];
    }
}

/* ---- What native.pxd declares ---- */

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
#define hr_v_i64(v, at) ((int64_t)hr_be64(hr_at(v, at)))
#define hr_v_u32(v, at) hr_be32(hr_at(v, at))
#define hr_v_u64(v, at) hr_be64(hr_at(v, at))
#define hr_v_same(a, at, b, from, n) (memcmp(hr_at(a, at), hr_at(b, from), (size_t)(n)) == 0)
#define hr_v_copy(out, at, v, start, end) \
    hr_copy(hr_at(out, at), hr_at(v, start), (size_t)((end) - (start)))
#define hr_v_take(v, start, end) \
    PyBytes_FromStringAndSize((const char *)hr_at(v, start), (end) - (start))
#define hr_v_is_ascii(v, start, end) hr_is_ascii(hr_at(v, start), (end) - (start))
#define hr_v_copy_bytes(out, at, content) \
    hr_copy(hr_at(out, at), (const uint8_t *)PyBytes_AS_STRING(content), \
            (size_t)PyBytes_GET_SIZE(content))
#define hr_v_put_long(out, at, number) hr_put_long(hr_at(out, 0), at, number)
#define hr_v_prefetch_slot(slots, at) __builtin_prefetch(hr_at(slots, 4 * (at)), 0)
#define hr_v_prefetch_record(words, at) \
    (__builtin_prefetch(hr_at(words, 8 * (at)), 1), __builtin_prefetch(hr_at(words, 8 * (at) + 64), 1))
#define hr_v_put_uuid(out, at, v, start) hr_put_uuid(hr_at(out, at), hr_at(v, start))
#define hr_popcount(x) __builtin_popcountll(x)

#endif
