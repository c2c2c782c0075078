//! Codec `raw`, and reductions of values: one value after the other, in vectors of 16 bytes.

static const u32 RAW_THREADS = 256;

/// Values of one vector, or of as many bytes as remain.
template <class T> struct Values {
    static constexpr u32 COUNT = 16 / T::BYTES;
    typename T::Bits values[COUNT];

    DEVICE void load_from(const u8 *at, u32 n) {
        if (n == COUNT && reinterpret_cast<u64>(at) % 16 == 0) {
            const Vector vector = load<Vector>(at);
            UNROLL
            for (u32 i = 0; i < COUNT; i++) {
                const u32 word = i * T::BYTES / 4;
                u64 bits = vector.words[word] >> i * T::BYTES % 4 * 8;
                if (T::BYTES == 8) {
                    bits |= static_cast<u64>(vector.words[(word + 1) % 4]) << 32;
                }
                values[i] = static_cast<typename T::Bits>(bits);
            }
            return;
        }
        UNROLL
        for (u32 i = 0; i < COUNT; i++) {
            values[i] = i < n ? load<typename T::Bits>(at + i * T::BYTES) : 0;
        }
    }

    DEVICE void store_to(u8 *at, u32 n) const {
        if (n == COUNT && reinterpret_cast<u64>(at) % 16 == 0) {
            Vector vector = {{0, 0, 0, 0}};
            UNROLL
            for (u32 i = 0; i < COUNT; i++) {
                const u32 word = i * T::BYTES / 4;
                const u64 bits = static_cast<u64>(values[i]) << i * T::BYTES % 4 * 8;
                vector.words[word] |= static_cast<u32>(bits);
                if (T::BYTES == 8) {
                    vector.words[(word + 1) % 4] = static_cast<u32>(bits >> 32);
                }
            }
            store<Vector>(at, vector);
            return;
        }
        UNROLL
        for (u32 i = 0; i < COUNT; i++) {
            if (i < n) {
                store<typename T::Bits>(at + i * T::BYTES, values[i]);
            }
        }
    }
};

/// Combines two values of any type.
template <class T>
DEVICE typename T::Bits combine(u32 op, typename T::Bits a, typename T::Bits b) {
    if constexpr (T::IS_INTEGER) {
        return operate_on_integers<T>(op, a, b);
    } else {
        return operate<T>(op, a, b);
    }
}

/// dst ← a ⊕ (b · weight), and output ← dst / divisor, for sums of operands of the weight
/// `weight_of_sums`. Without `b`, dst ← a · weight. Without `dst` or `output`, leaves that out.
/// Reports that `n_bytes` were written, unless that is 0.
template <class T>
DEVICE void operate_on_values(u8 *dst, const u8 *a, const u8 *b, u64 n_values, u64 op,
                              double weight, u8 *output, double weight_of_sums, u64 divisor,
                              u8 *outcome, u64 n_bytes) {
    typedef typename T::Wide Wide;
    const u32 count = Values<T>::COUNT;
    const u64 n_threads_in_all = static_cast<u64>(n_blocks()) * n_threads();
    const u64 thread = static_cast<u64>(block_id()) * n_threads() + thread_id();
    const Wide factor = static_cast<Wide>(weight);
    const Wide of_sums =
        divisor_of_sums<T>(divisor, static_cast<Wide>(weight_of_sums));
    for (u64 i = thread; i * count < n_values; i += n_threads_in_all) {
        const u64 at = i * count * T::BYTES;
        const u32 n = static_cast<u32>(smaller<u64>(n_values - i * count, count));
        Values<T> x, y;
        x.load_from(a + at, n);
        if (b != nullptr) {
            y.load_from(b + at, n);
        }
        UNROLL
        for (u32 k = 0; k < count; k++) {
            if constexpr (!T::IS_INTEGER) {
                typename T::Bits &local = b != nullptr ? y.values[k] : x.values[k];
                if (factor != 1) {
                    local = weigh<T>(local, factor);
                }
            }
            if (b != nullptr) {
                x.values[k] = combine<T>(static_cast<u32>(op), x.values[k], y.values[k]);
            }
        }
        if (dst != nullptr) {
            x.store_to(dst + at, n);
        }
        if (output != nullptr) {
            if constexpr (!T::IS_INTEGER) {
                UNROLL
                for (u32 k = 0; k < count; k++) {
                    x.values[k] = of_sums == 1 ? x.values[k] : quotient<T>(x.values[k], of_sums);
                }
            }
            x.store_to(output + at, n);
        }
    }
    if (thread == 0 && n_bytes != 0) {
        store<u64>(outcome, n_bytes);
    }
}

#define RAW_KERNELS(T, name)                                                                      \
    KERNEL(raw_operate_##name, RAW_THREADS, 1,                                                    \
           (u8 *dst, const u8 *a, const u8 *b, u64 n_values, u64 op, double weight, u8 *output,   \
            double weight_of_sums, u64 divisor, u8 *outcome, u64 n_bytes),                        \
           {                                                                                      \
               operate_on_values<T>(dst, a, b, n_values, op, weight, output, weight_of_sums,      \
                                    divisor, outcome, n_bytes);                                   \
           })                                                                                     \
    KERNEL(raw_report_##name, WARP, 1, (u8 *outcome, u64 error, u64 a, u64 b), {                  \
        if (thread_id() == 0) {                                                                   \
            store<u64>(outcome + 8, error);                                                       \
            store<u64>(outcome + 64, a);                                                          \
            store<u64>(outcome + 72, b);                                                          \
        }                                                                                         \
    })
