/* Checksums of 128 bits in two words, the lower one first, modulo 2^128. Each change of a mutation
   has a share of the mutation's digest; the last one has what is left, so all shares add up to it. */

#ifndef HEADRACE_CHECKSUM_H
#define HEADRACE_CHECKSUM_H

#include <stdint.h>

static inline void hr_put_digest(uint64_t *out, uint64_t d0, uint64_t d1) {
    out[0] = d0;
    out[1] = d1;
}

static inline void hr_add_checksum(uint64_t *out, const uint64_t *words) {
    uint64_t low = out[0] + words[0];
    out[1] += words[1] + (low < out[0]);
    out[0] = low;
}

static inline void hr_subtract_checksum(uint64_t *out, const uint64_t *words) {
    uint64_t low = out[0] - words[0];
    out[1] -= words[1] + (low > out[0]);
    out[0] = low;
}

/* What the first `count` shares of a digest come to; `count` is at least 1. */
static inline void hr_put_bound(uint64_t *out, const uint64_t *digest, uint64_t count) {
    for (int i = 0; i < 2; i++) {
        uint64_t half = (digest[i] ^ count * 0x9e3779b97f4a7c15ull) * 0xbf58476d1ce4e5b9ull;
        out[i] = half ^ half >> 31;
    }
}

#endif
