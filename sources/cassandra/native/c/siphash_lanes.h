/* SipHash of many messages side by side; siphash.h includes it once for each kind of vectors, which
   it describes by names that are undefined again after it:

   HR_SIP_WIDE  what is made: hr_siphash of one or two `groups` of HR_SIP_LANES messages
   HR_SIP_PAIRS  16 bytes of every second message of a group
   HR_SIP_LOW, HR_SIP_HIGH  of the pairs of even and odd messages: each one's first word, and second
   HR_SIP_ROTL16, HR_SIP_ROTL32  rotations of lanes */

#define HR_SIP_PASTE(a, b) a##b
#define HR_SIP_NAMED(name, end) HR_SIP_PASTE(name, end)
#define hr_lanes HR_SIP_NAMED(HR_SIP_WIDE, _lanes)
#define hr_sip_groups HR_SIP_NAMED(HR_SIP_WIDE, _groups)
#define HR_ROUND HR_SIP_ROUND(HR_SIP_ROTL16, HR_SIP_ROTL32)
#define HR_EACH _Pragma("GCC unroll 2") for (int g = 0; g < groups; g++)
#define HR_LANE _Pragma("GCC unroll 8") for (int i = 0; i < HR_SIP_LANES; i++)
#define v0 a[g]
#define v1 b[g]
#define v2 c[g]
#define v3 d[g]

typedef uint64_t hr_lanes __attribute__((vector_size(8 * HR_SIP_LANES)));

/* Two groups hide the latency of each other's rounds. After the end of the shortest message, lanes
   that have ended do not change. */
__attribute__((target(HR_SIP_TARGET), always_inline)) static inline void
hr_sip_groups(const int groups, const uint8_t *const *p, const Py_ssize_t *n, uint64_t k0,
              uint64_t k1, uint64_t *out) {
    hr_lanes a[2], b[2], c[2], d[2], m[2], next[2], on[2];
    Py_ssize_t least = n[0], most = n[0], at = 0;
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
            m[g] = HR_SIP_LOW(HR_SIP_PAIRS(q, at), HR_SIP_PAIRS(q + 1, at));
            next[g] = HR_SIP_HIGH(HR_SIP_PAIRS(q, at), HR_SIP_PAIRS(q + 1, at));
        }
        HR_EACH v3 ^= m[g];
        HR_EACH HR_ROUND;
        HR_EACH HR_ROUND;
        HR_EACH v0 ^= m[g];
        HR_EACH v3 ^= next[g];
        HR_EACH HR_ROUND;
        HR_EACH HR_ROUND;
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
        HR_EACH HR_ROUND;
        HR_EACH HR_ROUND;
        HR_EACH {
            v0 ^= m[g];
            v0 = (v0 & on[g]) | (s0[g] & ~on[g]), v1 = (v1 & on[g]) | (s1[g] & ~on[g]);
            v2 = (v2 & on[g]) | (s2[g] & ~on[g]), v3 = (v3 & on[g]) | (s3[g] & ~on[g]);
        }
    }
    HR_EACH {
        v2 ^= 0xee, HR_ROUND, HR_ROUND, HR_ROUND, HR_ROUND;
        const hr_lanes first = v0 ^ v1 ^ v2 ^ v3;
        v1 ^= 0xdd, HR_ROUND, HR_ROUND, HR_ROUND, HR_ROUND;
        const hr_lanes second = v0 ^ v1 ^ v2 ^ v3;
        uint64_t *made = out + 2 * HR_SIP_LANES * g;
        for (int i = 0; i < HR_SIP_LANES; i++) made[2 * i] = first[i], made[2 * i + 1] = second[i];
    }
}

/* Each count of groups has code of its own. */
__attribute__((target(HR_SIP_TARGET))) static void
HR_SIP_WIDE(int groups, const uint8_t *const *p, const Py_ssize_t *n, uint64_t k0, uint64_t k1,
            uint64_t *out) {
    if (groups == 2)
        hr_sip_groups(2, p, n, k0, k1, out);
    else
        hr_sip_groups(1, p, n, k0, k1, out);
}

#undef v0
#undef v1
#undef v2
#undef v3
#undef HR_LANE
#undef HR_EACH
#undef HR_ROUND
#undef hr_sip_groups
#undef hr_lanes
#undef HR_SIP_NAMED
#undef HR_SIP_PASTE
#undef HR_SIP_ROTL32
#undef HR_SIP_ROTL16
#undef HR_SIP_HIGH
#undef HR_SIP_LOW
#undef HR_SIP_PAIRS
#undef HR_SIP_LANES
#undef HR_SIP_TARGET
#undef HR_SIP_WIDE
