/* The functions of the C library under names that ctypes finds, and a switch for instructions. */
#include "native.h"

/* Keeps what the processor has of these; what it lacks stays off. */
void restrict_to(int clmul, int sha, int avx2, int avx512) {
    hr_look_at_processor();
    hr_have_clmul = hr_have_clmul && clmul;
    hr_have_sha = hr_have_sha && sha;
    hr_have_avx2 = hr_have_avx2 && avx2;
    hr_have_avx512 = hr_have_avx512 && avx512;
    hr_have_wide_clmul = hr_have_wide_clmul && avx512;
}
uint32_t crc32(const uint8_t *p, Py_ssize_t start, Py_ssize_t end, uint32_t seed) {
    return hr_crc32(p + start, end - start, seed);
}
int64_t token(const uint8_t *p, Py_ssize_t n) { return hr_token(p, n); }
void siphash_all(const uint8_t *base, const int64_t *ranges, int count, uint64_t k0, uint64_t k1,
                 uint64_t *out) {
    hr_siphash_all(base, ranges, 2, count, k0, k1, out);
}
void sha16_all(const uint8_t *base, const int64_t *ranges, Py_ssize_t count, uint8_t *out) {
    hr_sha16_all(base, ranges, 2, count, out);
}
Py_ssize_t put_value(uint8_t *out, int type, const uint8_t *p, Py_ssize_t n, Py_ssize_t readable) {
    return hr_put_value(out, 0, type, p, n, p + readable);
}
void put_shares(uint64_t *out, const uint64_t *digest, int count) {
    uint64_t bound[2];
    for (int i = 0; i < count; i++) {
        out[2 * i] = out[2 * i + 1] = 0;
        if (i) {
            hr_put_bound(bound, digest, i);
            hr_add_checksum(out + 2 * (i - 1), bound);
            hr_subtract_checksum(out + 2 * i, bound);
        }
    }
    if (count) hr_add_checksum(out + 2 * (count - 1), digest);
}
