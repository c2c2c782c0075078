//! Value ranges: each block finds the smallest and the largest finite value of some values.

static const u32 RANGE_THREADS = 256;

template <class T> DEVICE void value_range(const u8 *values, u64 n, u8 *parts) {
    SHARED(u64, lows, RANGE_THREADS / WARP);
    SHARED(u64, highs, RANGE_THREADS / WARP);
    const u64 infinity = 0x7ff0000000000000;
    double low = float_of(infinity), high = -low;
    const u64 step = static_cast<u64>(n_blocks()) * n_threads();
    for (u64 i = static_cast<u64>(block_id()) * n_threads() + thread_id(); i < n; i += step) {
        const typename T::Bits bits = load<typename T::Bits>(values + i * T::BYTES);
        if ((bits & ~T::SIGN) < T::INFINITE) {
            const double x = T::widen(bits);
            low = x < low ? x : low;
            high = x > high ? x : high;
        }
    }
    UNROLL
    for (u32 by = WARP / 2; by > 0; by /= 2) {
        const u32 lane = (lane_id() + by) % WARP;
        const double a = float_of(shuffle(bits_of(low), lane));
        const double b = float_of(shuffle(bits_of(high), lane));
        low = a < low ? a : low;
        high = b > high ? b : high;
    }
    if (lane_id() == 0) {
        lows.put(warp_id(), bits_of(low));
        highs.put(warp_id(), bits_of(high));
    }
    barrier();
    if (thread_id() == 0) {
        for (u32 warp = 1; warp < n_threads() / WARP; warp++) {
            const double a = float_of(lows.get(warp)), b = float_of(highs.get(warp));
            low = a < low ? a : low;
            high = b > high ? b : high;
        }
        store<u64>(parts + 16 * static_cast<u64>(block_id()), bits_of(low));
        store<u64>(parts + 16 * static_cast<u64>(block_id()) + 8, bits_of(high));
    }
}

#define RANGE_KERNELS(T, name)                                                                    \
    KERNEL(value_range_##name, RANGE_THREADS, 1, (const u8 *values, u64 n, u8 *parts),            \
           { value_range<T>(values, n, parts); })
