//! Integer types, for codec `raw`: held as unsigned numbers. Sums and products wrap, as in core
//! (`core/src/element/integer.rs`). They have no weights and no averages.

template <class U, bool IS_SIGNED> struct Integer {
    typedef U Bits;
    typedef float Wide;
    static constexpr bool IS_INTEGER = true;
    static constexpr u32 BYTES = sizeof(U);
    /// What to flip so that unsigned numbers have the order of the values.
    static constexpr U SIGN = IS_SIGNED ? static_cast<U>(1ull << (8 * sizeof(U) - 1)) : 0;
};

typedef Integer<u8, true> I8;
typedef Integer<u8, false> U8;
typedef Integer<u16, true> I16;
typedef Integer<u16, false> U16;
typedef Integer<u32, true> I32;
typedef Integer<u32, false> U32;
typedef Integer<u64, true> I64;
typedef Integer<u64, false> U64;

/// Combines two integers by an operation.
template <class T>
DEVICE typename T::Bits operate_on_integers(u32 op, typename T::Bits a, typename T::Bits b) {
    typedef typename T::Bits Bits;
    if (op == SUM) {
        return static_cast<Bits>(a + b);
    }
    if (op == PRODUCT) {
        // Numbers of 16 bits would become signed ones, which must not overflow.
        return static_cast<Bits>(static_cast<u64>(a) * b);
    }
    const bool is_below = static_cast<Bits>(a ^ T::SIGN) < static_cast<Bits>(b ^ T::SIGN);
    return is_below == (op == MINIMUM) ? a : b;
}
