/* The first half of SHA-256, which is the public id of a mutation. */
#ifndef HEADRACE_SHA256_H
#define HEADRACE_SHA256_H

#include "base.h"

#define HR_SHA_LANES 16
#define HR_SHA_AHEAD 512 /* Bytes of a message that are fetched before they are needed. */
#define HR_SHA_LANES_LEAST 8 /* Fewer messages are faster by the processor's own instructions. */

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
#define HR_V(i) v[((i) - j) & 7]
    for (int i = 0; i < 64; i += 8) {
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) { /* Names change places, not words. */
            const uint32_t a = HR_V(8), e = HR_V(12);
            const uint32_t t1 = HR_V(15) + (hr_rotr32(e, 6) ^ hr_rotr32(e, 11) ^ hr_rotr32(e, 25)) +
                                ((e & HR_V(13)) ^ (~e & HR_V(14))) + hr_sha_k[i + j] + w[i + j];
            HR_V(11) += t1;
            HR_V(15) = t1 + (hr_rotr32(a, 2) ^ hr_rotr32(a, 13) ^ hr_rotr32(a, 22)) +
                       ((a & HR_V(9)) ^ (a & HR_V(10)) ^ (HR_V(9) & HR_V(10)));
        }
    }
#undef HR_V
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

/* Sixteen rows of sixteen words become columns. */
__attribute__((target("avx512f"), always_inline)) static inline void hr_turn16(__m512i *w) {
    __m512i t[16], a, b;
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(w[i], w[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(w[i], w[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        w[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        w[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        w[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        w[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(w[i], w[4 + i], 0x88);
        t[4 + i] = _mm512_shuffle_i32x4(w[i], w[4 + i], 0xdd);
        t[8 + i] = _mm512_shuffle_i32x4(w[8 + i], w[12 + i], 0x88);
        t[12 + i] = _mm512_shuffle_i32x4(w[8 + i], w[12 + i], 0xdd);
    }
    for (int i = 0; i < 8; i++) {
        a = t[i], b = t[8 + i];
        w[i] = _mm512_shuffle_i32x4(a, b, 0x88);
        w[8 + i] = _mm512_shuffle_i32x4(a, b, 0xdd);
    }
}

/* One block of each of sixteen messages; the state of those that are not `on` stays. */
__attribute__((target("avx512f,avx512bw"))) static void
hr_sha_block16(uint32_t (*s)[HR_SHA_LANES], const uint8_t *const *p, __mmask16 on) {
    const __m512i swap = _mm512_broadcast_i32x4(
        _mm_set_epi64x(0x0c0d0e0f08090a0bll, 0x0405060700010203ll));
    __m512i w[16], v[8];
#define HR_XOR3(x, y, z) _mm512_ternarylogic_epi32(x, y, z, 0x96)
#define HR_ROR(x, b) _mm512_ror_epi32(x, b)
#define HR_SHR(x, b) _mm512_srli_epi32(x, b)
#define HR_ADD(x, y) _mm512_add_epi32(x, y)
#define HR_V(i) v[((i) - j) & 7]
    for (int i = 0; i < 16; i++) w[i] = _mm512_shuffle_epi8(_mm512_loadu_si512(p[i]), swap);
    hr_turn16(w);
    for (int i = 0; i < 8; i++) v[i] = _mm512_loadu_si512(s[i]);
    for (int i = 0; i < 64; i += 16) {
#pragma GCC unroll 16
        for (int j = 0; j < 16; j++) {
            const __m512i a = HR_V(8), e = HR_V(12);
            const __m512i next = w[(j + 1) & 15], last = w[(j + 14) & 15];
            /* Known operands come first: a round waits for three operations of the last. */
            const __m512i key = _mm512_set1_epi32((int)hr_sha_k[i + j]);
            const __m512i early = HR_ADD(HR_ADD(w[j], key), HR_V(15));
            const __m512i sum = HR_XOR3(HR_ROR(e, 6), HR_ROR(e, 11), HR_ROR(e, 25));
            const __m512i chosen = _mm512_ternarylogic_epi32(e, HR_V(13), HR_V(14), 0xca);
            const __m512i most = _mm512_ternarylogic_epi32(a, HR_V(9), HR_V(10), 0xe8);
            const __m512i t = HR_ADD(HR_ADD(early, chosen), sum);
            HR_V(11) = HR_ADD(HR_V(11), t);
            HR_V(15) = HR_ADD(HR_ADD(t, most), HR_XOR3(HR_ROR(a, 2), HR_ROR(a, 13), HR_ROR(a, 22)));
            if (i == 48) continue; /* The words after these are not needed. */
            const __m512i low = HR_XOR3(HR_ROR(next, 7), HR_ROR(next, 18), HR_SHR(next, 3));
            const __m512i high = HR_XOR3(HR_ROR(last, 17), HR_ROR(last, 19), HR_SHR(last, 10));
            w[j] = HR_ADD(HR_ADD(w[j], w[(j + 9) & 15]), HR_ADD(low, high));
        }
    }
    for (int i = 0; i < 8; i++) {
        const __m512i before = _mm512_loadu_si512(s[i]);
        _mm512_storeu_si512(s[i], _mm512_mask_add_epi32(before, on, before, v[i]));
    }
#undef HR_V
#undef HR_ADD
#undef HR_SHR
#undef HR_ROR
#undef HR_XOR3
}
#endif

static const uint32_t hr_sha_start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

static const uint8_t hr_sha_zeros[128];

/* Writes the message's last, padded block or two to tail and returns their bytes. */
static int hr_sha_pad(const uint8_t *p, Py_ssize_t n, uint8_t *tail) {
    const int rest = (int)(n & 63), length = rest < 56 ? 64 : 128;
    const uint64_t bits = __builtin_bswap64((uint64_t)n * 8);
    memcpy(tail, hr_sha_zeros, 128); /* A memset of so little is a slow loop in the processor. */
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

#define HR_BLOCK(l, b) ((b) < full[l] ? p[l] + 64 * (b) : tail[l] + 64 * ((b) - full[l]))

#ifdef HR_X86
/* Blocks of all lanes side by side, as long as enough of them have some; returns how many. */
static Py_ssize_t hr_sha_wide(int lanes, const uint8_t *const *p, const Py_ssize_t *full,
                              const Py_ssize_t *all, uint8_t (*tail)[128], uint32_t (*s)[8]) {
    uint32_t turned[8][HR_SHA_LANES];
    const uint8_t *at[HR_SHA_LANES];
    unsigned on = (1u << lanes) - 1;
    Py_ssize_t least = full[0], done = 0;
    for (int l = 0; l < HR_SHA_LANES; l++) {
        at[l] = p[l < lanes ? l : 0];
        if (l < lanes && full[l] < least) least = full[l];
        for (int i = 0; i < 8; i++) turned[i][l] = hr_sha_start[i];
    }
    for (; done < least; done++) {
        hr_sha_block16(turned, at, (__mmask16)on);
        for (int l = 0; l < HR_SHA_LANES; l++) at[l] += 64;
    }
    for (;; done++) {
        on = 0;
        for (int l = 0; l < lanes; l++) {
            if (done >= all[l]) continue;
            at[l] = HR_BLOCK(l, done);
            on |= 1u << l;
        }
        if (__builtin_popcount(on) < HR_SHA_LANES_LEAST) break;
        for (int l = 0; l < HR_SHA_LANES; l++)
            if (!(on >> l & 1)) at[l] = tail[0];
        hr_sha_block16(turned, at, (__mmask16)on);
    }
    for (int l = 0; l < lanes; l++)
        for (int i = 0; i < 8; i++) s[l][i] = turned[i][l];
    return done;
}
#endif

/* Writes the first 16 bytes of SHA-256 of up to HR_SHA_LANES messages. */
static void hr_sha16(int lanes, const uint8_t *const *p, const Py_ssize_t *n, uint8_t *out) {
    void (*one)(uint32_t *, const uint8_t *) = hr_sha_block;
    uint8_t tail[HR_SHA_LANES][128];
    uint32_t s[HR_SHA_LANES][8];
    Py_ssize_t full[HR_SHA_LANES], all[HR_SHA_LANES], done = 0, b;
    for (int l = 0; l < lanes; l++) {
        full[l] = n[l] >> 6;
        all[l] = full[l] + hr_sha_pad(p[l], n[l], tail[l]) / 64;
        memcpy(s[l], hr_sha_start, 32);
    }
#ifdef HR_X86
    if (hr_have_sha) one = hr_sha_block1;
    if (hr_have_avx512 && lanes >= HR_SHA_LANES_LEAST)
        done = hr_sha_wide(lanes, p, full, all, tail, s);
#endif
    for (int l = 0; l < lanes; l += 2) {
        const int two = l + 1 < lanes;
        b = done;
#ifdef HR_X86
        if (two && hr_have_sha) {
            uint32_t *const states[2] = {s[l], s[l + 1]};
            for (; b < all[l] && b < all[l + 1]; b++) {
                const uint8_t *at[2] = {HR_BLOCK(l, b), HR_BLOCK(l + 1, b)};
                hr_sha_block2(states, at);
            }
        }
#endif
        for (int m = l; m <= l + two; m++) {
            for (Py_ssize_t c = b; c < all[m]; c++) one(s[m], HR_BLOCK(m, c));
            hr_sha_write(s[m], out + 16 * m);
        }
    }
}
#undef HR_BLOCK

/* The first 16 bytes of SHA-256 of `count` byte ranges: ranges[i * stride] and the next number. */
HR_UNUSED static void hr_sha16_all(const uint8_t *base, const int64_t *ranges, int stride,
                                   Py_ssize_t count, uint8_t *out) {
    for (Py_ssize_t i = 0; i < count; i += HR_SHA_LANES) {
        const uint8_t *p[HR_SHA_LANES];
        Py_ssize_t n[HR_SHA_LANES];
        const int lanes = count - i < HR_SHA_LANES ? (int)(count - i) : HR_SHA_LANES;
        for (int l = 0; l < lanes; l++) {
            const int64_t *range = ranges + (i + l) * stride;
            p[l] = base + range[0], n[l] = range[1] - range[0];
            if (i + HR_SHA_LANES + l < count) { /* Too many streams to be prefetched. */
                range += HR_SHA_LANES * stride;
                for (int64_t at = range[0]; at < range[1] && at < range[0] + HR_SHA_AHEAD; at += 64)
                    __builtin_prefetch(base + at);
            }
        }
        hr_sha16(lanes, p, n, out + 16 * i);
    }
}

#endif
