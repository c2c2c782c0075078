//! Codec `cuszp` (docs/format.md, section 7.10). As in `fz-light`, each thread has a block of 32
//! values. It transposes their bits in its registers.

/// Swaps bits of pairs of words: one step of the transposition of 32 words of 32 bits.
template <u32 DISTANCE> DEVICE void transpose_step(u32 *words, u32 mask) {
    UNROLL
    for (u32 k = 0; k < BLOCK; k++) {
        if ((k & DISTANCE) == 0) {
            const u32 t = (words[k] >> DISTANCE ^ words[k + DISTANCE]) & mask;
            words[k] ^= t << DISTANCE;
            words[k + DISTANCE] ^= t;
        }
    }
}

/// Bit i of word j becomes bit j of word i.
DEVICE void transpose(u32 *words) {
    transpose_step<16>(words, 0x0000ffff);
    transpose_step<8>(words, 0x00ff00ff);
    transpose_step<4>(words, 0x0f0f0f0f);
    transpose_step<2>(words, 0x33333333);
    transpose_step<1>(words, 0x55555555);
}

/// Length byte of a block whose values are stored unchanged.
static const u32 CUSZP_STORED = 0xff;

/// Mode and width of a block, and the bytes of an outlier.
struct CuSzpForm {
    bool is_fixed;
    u32 width;
    u32 n_apart;

    DEVICE u32 n_planes() const { return width == 0 && n_apart == 0 ? 0 : 1 + width; }
    DEVICE u32 n_bytes() const { return n_apart + 4 * n_planes(); }
};

template <class T> DEVICE constexpr u32 cuszp_width_bits() { return T::BYTES == 4 ? 5 : 6; }
template <class T> DEVICE constexpr u32 cuszp_max_width() { return T::BYTES == 4 ? 23 : 52; }

template <class T> DEVICE u32 cuszp_byte(const CuSzpForm &form) {
    u32 mode = form.is_fixed;
    if (form.n_apart > 0) {
        mode = T::BYTES == 4 ? 3 + form.n_apart : form.n_apart == 4 ? 2 : 3;
    }
    return mode << cuszp_width_bits<T>() | form.width;
}

/// Inverse of `cuszp_byte`; returns false if no writer writes the byte.
template <class T> DEVICE bool cuszp_form(u32 byte, CuSzpForm &form) {
    const u32 mode = byte >> cuszp_width_bits<T>();
    form = {mode == 1, byte & low_bits(cuszp_width_bits<T>()), 0};
    if (mode > 1) {
        form.n_apart = T::BYTES == 4 ? mode - 3 : mode == 2 ? 4 : 7;
    }
    const bool is_mode = T::BYTES == 8 || mode < 2 || (mode > 3 && mode < 7);
    return is_mode && form.width <= cuszp_max_width<T>();
}

/// Sign in the lowest bit, magnitude above it.
template <class T> DEVICE typename T::Code cuszp_fold(typename T::Code code) {
    typedef typename T::Code Code;
    const typename T::Signed own = static_cast<typename T::Signed>(code);
    const Code sign = static_cast<Code>(own >> (T::CODE_BITS - 1));
    return ((code ^ sign) - sign) << 1 | (sign & 1);
}
template <class T> DEVICE typename T::Code cuszp_unfold(typename T::Code number) {
    const typename T::Code sign = 0 - (number & 1);
    return (number >> 1 ^ sign) - sign;
}

/// The shortest form of a block whose first code needs `first` bits, the differences after it
/// `others`, and codes without differences `all`.
template <class T> DEVICE CuSzpForm cuszp_shortest(u32 first, u32 others, u32 all) {
    CuSzpForm best = {false, larger(first, others), 0};
    const CuSzpForm fixed = {true, all, 0};
    if (fixed.n_bytes() < best.n_bytes()) {
        best = fixed;
    }
    u32 n_apart = first <= 32 ? 4 : first <= 56 ? 7 : 0;
    if (T::BYTES == 4) {
        n_apart = first <= 8 ? 1 : first <= 16 ? 2 : first <= 24 ? 3 : 0;
    }
    const CuSzpForm outlier = {false, others, n_apart};
    return n_apart > 0 && outlier.n_bytes() < best.n_bytes() ? outlier : best;
}

template <class T>
DEVICE void encode_cuszp(const u8 *own, u64 n_values, const Slots &slots, double weight_of_own,
                         const Lattice<T> &lattice) {
    typedef typename T::Bits Bits;
    typedef typename T::Code Code;
    const u64 chunk = block_id();
    if (chunk * CHUNK >= n_values) {
        return;
    }
    SHARED(u8, stage, stage_bytes<T>());
    SHARED(u32, sums, 4);
    const typename T::Wide weight = static_cast<typename T::Wide>(weight_of_own);
    const u32 n = chunk_values(n_values, chunk), n_blocks = (n + BLOCK - 1) / BLOCK;
    const u32 n_own = block_values(n);
    const u8 *const values = own + chunk * CHUNK * T::BYTES;
    load_values<T>(values, n, stage);
    barrier();
    const Row<T> row(stage);
    weigh_row(row, n_own, weight);
    Code slots_of_values[BLOCK];
    bool are_points = true;
    UNROLL
    for (u32 i = 0; i < BLOCK; i++) {
        Code code = 0;
        are_points &= n_own == 0 || quantise<T>(row.get(i), lattice, code);
        slots_of_values[i] = code;
    }
    CuSzpForm form = {false, 0, 0};
    u64 apart = 0;
    if (are_points) {
        const Code first = cuszp_fold<T>(slots_of_values[0]);
        Code others = 0, all = 0;
        UNROLL
        for (u32 i = 0; i < BLOCK; i++) {
            const Code before = slots_of_values[i == 0 ? 0 : i - 1];
            others |= cuszp_fold<T>(slots_of_values[i] - before);
            all |= cuszp_fold<T>(slots_of_values[i]);
        }
        const auto width = [](Code x) { return T::CODE_BITS - leading_zeros(x >> 1); };
        form = cuszp_shortest<T>(width(first), width(others), width(all));
        apart = first >> 1;
        Code before = slots_of_values[0];
        UNROLL
        for (u32 i = 0; i < BLOCK; i++) {
            const Code code = slots_of_values[i];
            slots_of_values[i] = cuszp_fold<T>(form.is_fixed ? code : code - before);
            before = code;
        }
        if (!form.is_fixed) {
            slots_of_values[0] = form.n_apart > 0 ? first & 1 : first;
        }
    } else {
        UNROLL
        for (u32 i = 0; i < BLOCK; i++) {
            slots_of_values[i] = row.get(i);
        }
    }
    const u32 n_bytes = are_points ? form.n_bytes() : n_own * T::BYTES;
    const Scanned<u32> scanned = scan_block(n_bytes, sums);
    if (n_blocks + scanned.total >= n * T::BYTES) {
        store_unchanged<T>(values, n, weight, chunk, slots, FORM_AT);
        return;
    }
    // Every thread has read its values, before the barrier of the scan.
    if (n_own > 0) {
        const u32 byte = are_points ? cuszp_byte<T>(form) : CUSZP_STORED;
        stage.put(CODED_AT + thread_id(), static_cast<u8>(byte));
    }
    u32 at = CODED_AT + n_blocks + scanned.before;
    if (are_points) {
        for (u32 k = 0; k < form.n_apart; k++) {
            stage.put(at++, static_cast<u8>(apart >> 8 * k));
        }
        UNROLL
        for (u32 part = 0; part < T::BYTES / 4; part++) {
            u32 planes[BLOCK];
            UNROLL
            for (u32 i = 0; i < BLOCK; i++) {
                planes[i] = static_cast<u32>(static_cast<u64>(slots_of_values[i]) >> 32 * part);
            }
            transpose(planes);
            UNROLL
            for (u32 j = 0; j < BLOCK; j++) {
                if (32 * part + j < form.n_planes()) {
                    UNROLL
                    for (u32 k = 0; k < 4; k++) {
                        stage.put(at++, static_cast<u8>(planes[j] >> 8 * k));
                    }
                }
            }
        }
    } else {
        UNROLL
        for (u32 i = 0; i < BLOCK; i++) {
            if (i < n_own) {
                UNROLL
                for (u32 k = 0; k < T::BYTES; k++) {
                    const u64 bits = static_cast<Bits>(slots_of_values[i]);
                    stage.put(at++, static_cast<u8>(bits >> 8 * k));
                }
            }
        }
    }
    const u32 end = CODED_AT + n_blocks + scanned.total;
    if (thread_id() == 0) {
        for (u32 i = 0; i < CODED_AT; i++) {
            stage.put(i, i == FORM_AT ? CODED : 0);
        }
        for (u32 i = end; i % 16 != 0; i++) {
            stage.put(i, 0);
        }
    }
    store_chunk(stage, end, slots.slot(chunk));
    report_coded(n_blocks + scanned.total, chunk, slots);
}

/// Returns whether a number is a spacing that writers use.
template <class T> DEVICE bool is_step(double step) {
    typedef typename T::Wide Wide;
    typedef typename T::Bits Bits;
    const Wide wide = static_cast<Wide>(step), inverse = divide(static_cast<Wide>(1), wide);
    const auto is_normal = [](Wide x) {
        const Bits bits = T::narrow(x) & ~T::SIGN;
        // The least normal number is the lowest bit of the exponent.
        return bits < T::INFINITE && bits >= (T::INFINITE & (0 - T::INFINITE));
    };
    return static_cast<double>(wide) == step && is_normal(wide) && is_normal(inverse);
}

template <class T>
DEVICE void decode_cuszp(const u8 *src, u64 src_bytes, u8 *dst, u64 n_values, u8 *outcome,
                         double weight, u64 divisor) {
    typedef typename T::Bits Bits;
    typedef typename T::Code Code;
    typedef typename T::Wide Wide;
    const u64 chunk = block_id();
    Payload payload = {};
    if (!open_coded_payload<T>(src, src_bytes, n_values, outcome, payload)) {
        return;
    }
    const double step = float_of(payload.step);
    const bool has_points = step != 0;
    if (has_points && !is_step<T>(step)) {
        return report_undecodable(outcome);
    }
    if (chunk * CHUNK >= n_values) {
        return;
    }
    const u32 n = chunk_values(n_values, chunk), n_blocks = (n + BLOCK - 1) / BLOCK;
    const u32 n_own = block_values(n);
    const Wide of_sums = divisor_of_sums<T>(divisor, static_cast<Wide>(weight));
    u8 *const to = dst + chunk * CHUNK * T::BYTES;
    CodedChunk opened = {};
    if (!open_coded_chunk<T>(payload, chunk, n, opened)) {
        return report_undecodable(outcome);
    }
    if (opened.form == STORED) {
        return load_unchanged<T>(opened, n, to, of_sums);
    }
    if (!has_points || opened.n_bytes < n_blocks) {
        return report_undecodable(outcome);
    }
    SHARED(u8, stage, stage_bytes<T>());
    SHARED(u32, sums, 4);
    const u32 byte = n_own > 0 ? load<u8>(opened.bytes + thread_id()) : 0;
    const bool is_stored = byte == CUSZP_STORED;
    CuSzpForm form = {false, 0, 0};
    const bool is_bad = !is_stored && !cuszp_form<T>(byte, form);
    const u32 n_bytes = is_stored ? n_own * T::BYTES : form.n_bytes();
    const u32 both = is_bad ? 1u << 24 : n_bytes;
    const Scanned<u32> scanned = scan_block(both, sums);
    if (scanned.total != opened.n_bytes - n_blocks) {
        return report_undecodable(outcome);
    }
    const u8 *at = opened.bytes + n_blocks + scanned.before;
    const Row<T> row(stage);
    if (is_stored) {
        for (u32 i = 0; i < n_own; i++) {
            const Bits x = load_unaligned(at + i * T::BYTES, static_cast<Bits>(0));
            row.words.put(i, divided<T>(x, of_sums));
        }
    } else if (n_own > 0) {
        Code numbers[BLOCK];
        UNROLL
        for (u32 part = 0; part < T::BYTES / 4; part++) {
            u32 planes[BLOCK];
            UNROLL
            for (u32 j = 0; j < BLOCK; j++) {
                const u32 plane = 32 * part + j;
                planes[j] = plane < form.n_planes()
                                ? load_unaligned(at + form.n_apart + 4 * plane, 0u)
                                : 0;
            }
            transpose(planes);
            UNROLL
            for (u32 i = 0; i < BLOCK; i++) {
                const Code bits = static_cast<Code>(static_cast<u64>(planes[i]) << 32 * part);
                numbers[i] = part == 0 ? bits : numbers[i] | bits;
            }
        }
        Code code = 0;
        UNROLL
        for (u32 i = 0; i < BLOCK; i++) {
            Code number = cuszp_unfold<T>(numbers[i]);
            if (i == 0 && form.n_apart > 0) {
                Code outlier = 0;
                for (u32 k = 0; k < form.n_apart; k++) {
                    outlier |= static_cast<Code>(load<u8>(at + k)) << 8 * k;
                }
                number = numbers[0] & 1 ? 0 - outlier : outlier;
            }
            code = form.is_fixed ? number : code + number;
            const Bits x = value_of<T>(code, static_cast<Wide>(step));
            row.words.put(i, divided<T>(x, of_sums));
        }
    }
    barrier();
    store_values<T>(to, n, stage);
}

#define CUSZP_KERNELS(T, name)                                                                    \
    KERNEL(cuszp_encode_##name, BLOCKS, 2,                                                        \
           (const u8 *own, u64 n_values, u8 *reports, u8 *slots, u64 slot_bytes,                  \
            double weight_of_own, double spacing, double inverse, double limit, double bound),    \
           {                                                                                      \
               encode_cuszp<T>(own, n_values, {reports, slots, slot_bytes}, weight_of_own,        \
                               lattice_of<T>(spacing, inverse, limit, bound, 1));                 \
           })                                                                                     \
    KERNEL(cuszp_decode_##name, BLOCKS, 2,                                                        \
           (const u8 *src, u64 src_bytes, u8 *dst, u64 n_values, u8 *outcome, double weight,      \
            u64 divisor),                                                                         \
           { decode_cuszp<T>(src, src_bytes, dst, n_values, outcome, weight, divisor); })
