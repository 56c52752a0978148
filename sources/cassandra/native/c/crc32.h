/* CRC-32 as zlib computes it: carry-less multiplication for 32 bytes and more, else tables. */
#ifndef HEADRACE_CRC32_H
#define HEADRACE_CRC32_H

#include "base.h"

static uint32_t hr_crc_table[4][256];

HR_UNUSED __attribute__((constructor)) static void hr_crc_prepare(void) {
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

#endif
