//! Element types. Kernels hold values as their bits, and compute in the type `Wide`. Results have
//! the bits that core's definitions give (`core/src/op.rs`, `core/src/element/sixteen.rs`), NaN
//! included: devices return a NaN of their own from every operation.

/// Operations, by their codes in frames.
enum Operation : u32 { SUM = 1, MINIMUM = 3, MAXIMUM = 4, PRODUCT = 5 };

struct F32 {
    typedef u32 Bits;
    typedef float Wide;
    /// Lattice codes, whose arithmetic wraps, and the same as signed numbers.
    typedef u32 Code;
    typedef i32 Signed;
    /// Unit in which values lie in shared memory.
    typedef u32 Word;
    static constexpr bool IS_INTEGER = false;
    static constexpr u32 DTYPE = 1;
    static constexpr u32 BYTES = 4;
    static constexpr u32 CODE_BITS = 32;
    static constexpr u32 SIGN = 0x80000000;
    static constexpr u32 INFINITE = 0x7f800000;
    static constexpr u32 MAX = 0x7f7fffff;
    static constexpr u32 QUIET_NAN = 0x7fc00000;
    static constexpr u32 QUIET = 0x00400000;
    static constexpr float ROUNDER = 12582912.0f;
    static DEVICE float widen(u32 bits) { return float_of(bits); }
    static DEVICE u32 narrow(float x) { return bits_of(x); }
    /// A word of shared memory that holds these values, as many as fit: here the first.
    static DEVICE u32 narrow_word(float x, float) { return bits_of(x); }
    /// A NaN as an operation on it returns it.
    static DEVICE u32 quiet(u32 bits) { return bits | QUIET; }
};

struct F64 {
    typedef u64 Bits;
    typedef double Wide;
    typedef u64 Code;
    typedef i64 Signed;
    typedef u64 Word;
    static constexpr bool IS_INTEGER = false;
    static constexpr u32 DTYPE = 2;
    static constexpr u32 BYTES = 8;
    static constexpr u32 CODE_BITS = 64;
    static constexpr u64 SIGN = 0x8000000000000000;
    static constexpr u64 INFINITE = 0x7ff0000000000000;
    static constexpr u64 MAX = 0x7fefffffffffffff;
    static constexpr u64 QUIET_NAN = 0x7ff8000000000000;
    static constexpr u64 QUIET = 0x0008000000000000;
    static constexpr double ROUNDER = 6755399441055744.0;
    static DEVICE double widen(u64 bits) { return float_of(bits); }
    static DEVICE u64 narrow(double x) { return bits_of(x); }
    static DEVICE u64 narrow_word(double x, double) { return bits_of(x); }
    static DEVICE u64 quiet(u64 bits) { return bits | QUIET; }
};

/// What `f16` and `bf16` share.
struct Narrow {
    typedef u16 Bits;
    typedef float Wide;
    typedef u32 Code;
    typedef i32 Signed;
    typedef u32 Word;
    static constexpr bool IS_INTEGER = false;
    static constexpr u32 BYTES = 2;
    static constexpr u32 CODE_BITS = 32;
    static constexpr u16 SIGN = 0x8000;
    static constexpr float ROUNDER = 12582912.0f;
};

struct F16 : Narrow {
    static constexpr u32 DTYPE = 3;
    static constexpr u16 INFINITE = 0x7c00;
    static constexpr u16 MAX = 0x7bff;
    static constexpr u16 QUIET_NAN = 0x7e00;
    static DEVICE float widen(u16 bits) { return widen_half(bits); }
    static DEVICE u16 narrow(float x) { return narrow_half(x); }
    static DEVICE u32 narrow_word(float x, float y) {
        return narrow(x) | static_cast<u32>(narrow(y)) << 16;
    }
    static DEVICE u16 quiet(u16 bits) { return static_cast<u16>((bits & 0x8000) | 0x7e00); }
};

struct BF16 : Narrow {
    static constexpr u32 DTYPE = 4;
    static constexpr u16 INFINITE = 0x7f80;
    static constexpr u16 MAX = 0x7f7f;
    static constexpr u16 QUIET_NAN = 0x7fc0;
    static DEVICE float widen(u16 bits) { return float_of(static_cast<u32>(bits) << 16); }
    static DEVICE u16 narrow(float x) {
        const u32 bits = bits_of(x);
        const u32 rounded = bits + 0x7fff + (bits >> 16 & 1);
        const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
        return static_cast<u16>((is_nan ? bits | 0x00400000 : rounded) >> 16);
    }
    /// None of the values is NaN.
    static DEVICE u32 narrow_word(float x, float y) {
        return ROUNDS_PAIRS ? pair_of_bf16(x, y) : narrow(x) | static_cast<u32>(narrow(y)) << 16;
    }
    static DEVICE u16 quiet(u16 bits) { return static_cast<u16>(bits | 0x40); }
};

template <class T> DEVICE bool is_nan(typename T::Bits bits) {
    return static_cast<typename T::Bits>(bits & ~T::SIGN) > T::INFINITE;
}

template <class T> DEVICE typename T::Bits or_quiet_nan(typename T::Wide x) {
    return x == x ? T::narrow(x) : T::QUIET_NAN;
}

/// Combines two values by an operation.
template <class T>
DEVICE typename T::Bits operate(u32 op, typename T::Bits a, typename T::Bits b) {
    const typename T::Wide x = T::widen(a), y = T::widen(b);
    if (op == SUM) {
        return or_quiet_nan<T>(add(x, y));
    }
    if (op == PRODUCT) {
        return or_quiet_nan<T>(multiply(x, y));
    }
    if (x != x || y != y) {
        return T::QUIET_NAN;
    }
    // -0 is below +0.
    if (op == MINIMUM) {
        return x < y || (x == y && a == T::SIGN) ? a : b;
    }
    return x > y || (x == y && b == T::SIGN) ? a : b;
}

/// An operand times its weight. The caller leaves out a weight of 1, which changes no bit.
template <class T>
DEVICE typename T::Bits weigh(typename T::Bits x, typename T::Wide weight) {
    return is_nan<T>(x) ? T::quiet(x) : T::narrow(multiply(T::widen(x), weight));
}

/// A sum divided to get an average, which does not exceed the largest value if the sum is finite.
/// The caller leaves out a divisor of 1.
template <class T>
DEVICE typename T::Bits quotient(typename T::Bits sum, typename T::Wide divisor) {
    if (is_nan<T>(sum)) {
        return T::quiet(sum);
    }
    const typename T::Bits result = T::narrow(divide(T::widen(sum), divisor));
    const bool is_infinite = static_cast<typename T::Bits>(result & ~T::SIGN) == T::INFINITE;
    const bool was_infinite = static_cast<typename T::Bits>(sum & ~T::SIGN) == T::INFINITE;
    if (is_infinite && !was_infinite) {
        return static_cast<typename T::Bits>((sum & T::SIGN) | T::MAX);
    }
    return result;
}

/// The number by which sums of `divisor` weighted operands are divided.
template <class T>
DEVICE typename T::Wide divisor_of_sums(u64 divisor, typename T::Wide weight) {
    typedef typename T::Wide Wide;
    return divisor == 1 ? static_cast<Wide>(1) : multiply(static_cast<Wide>(divisor), weight);
}
