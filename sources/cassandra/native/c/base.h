/* What the other headers share: loads, bit operations and what this processor can do. */
#ifndef HEADRACE_BASE_H
#define HEADRACE_BASE_H

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
/* The builtin calls a library function where the processor may not have the instruction. */
static inline int hr_popcount(uint64_t x) {
    x -= x >> 1 & 0x5555555555555555ull;
    x = (x & 0x3333333333333333ull) + (x >> 2 & 0x3333333333333333ull);
    return (int)(((x + (x >> 4)) & 0x0f0f0f0f0f0f0f0full) * 0x0101010101010101ull >> 56);
}
#define HR_ROTL(x, b) ((x) << (b) | (x) >> (64 - (b)))  /* Of one word or of lanes. */

/* memmove, without its call for the few bytes that names, keys and most values are. */
static inline void hr_copy(uint8_t *out, const uint8_t *p, size_t n) {
    if (n > 64) {
        memmove(out, p, n);
    } else if (n > 16) {
        typedef struct { uint8_t bytes[16]; } part;
        const size_t middle = n > 32 ? 16 : 0;
        part a, b, c, d;
        memcpy(&a, p, 16), memcpy(&b, p + middle, 16);
        memcpy(&c, p + n - 16 - middle, 16), memcpy(&d, p + n - 16, 16);
        memcpy(out, &a, 16), memcpy(out + middle, &b, 16);
        memcpy(out + n - 16 - middle, &c, 16), memcpy(out + n - 16, &d, 16);
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

/* How many bytes follow the first one of a vint: its leading ones. */
#define hr_vint_extra(first) __builtin_clz(~((uint32_t)(first) << 24))

/* An unsigned vint at p[*at]; moves *at behind it; 0 if it is incomplete. */
static inline int hr_uvint(const uint8_t *p, Py_ssize_t *at, Py_ssize_t end, uint64_t *value) {
    Py_ssize_t left = end - *at;
    if (left <= 0) return 0;
    uint64_t first = p[*at];
    if (first < 0x80) {
        *value = first;
        *at += 1;
        return 1;
    }
    int extra = hr_vint_extra(first);
    if (left <= extra) return 0;
    *value = extra < 8 ? first & (0x7f >> extra) : 0;
    for (int i = 1; i <= extra; i++) *value = *value << 8 | p[*at + i];
    *at += 1 + extra;
    return 1;
}

/* The processor's features, detected when the module is loaded; 0 selects portable code. */
static int hr_have_clmul, hr_have_sha, hr_have_avx2, hr_have_avx512, hr_have_wide_clmul;

#ifdef HR_X86
HR_UNUSED __attribute__((constructor)) static void hr_look_at_processor(void) {
    unsigned a, b, c, d;
    __builtin_cpu_init();
    hr_have_clmul = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    __asm__("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(7), "c"(0));
    hr_have_avx2 = __builtin_cpu_supports("avx2");
    hr_have_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
    hr_have_wide_clmul = hr_have_avx512 && __builtin_cpu_supports("vpclmulqdq");
    hr_have_sha = (b >> 29 & 1) && __builtin_cpu_supports("sse4.1");
}
#endif

#endif
