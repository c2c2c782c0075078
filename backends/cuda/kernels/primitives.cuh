//! The primitives that kernels use of a device. Everything else in `kernels/` is plain C++, so that
//! the host can run it too: `shim/machine.hpp` defines the same names.
//!
//! Threads of a warp call collectives (ballot, shuffle) together, and threads of a block barriers.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

/// Threads of a warp.
static const u32 WARP = 32;

/// 16 bytes, which one instruction loads or stores.
struct alignas(16) Vector {
    u32 words[4];
};

#ifdef FOLDWIRE_HOST
#include "machine.hpp"
#else

// Kernels of one file need not use every constant of the others.
#pragma nv_diag_suppress 177

#define DEVICE __device__ __forceinline__
#define UNROLL _Pragma("unroll")
/// Defines a kernel: its name, threads in a block, parameters in brackets, and body. At least
/// `resident` blocks should fit a multiprocessor.
#define KERNEL(name, threads, resident, parameters, ...)                                          \
    extern "C" __global__ void __launch_bounds__(threads, resident) name parameters __VA_ARGS__

// Where a thread is.
DEVICE u32 block_id() { return blockIdx.x; }
DEVICE u32 thread_id() { return threadIdx.x; }
DEVICE u32 n_blocks() { return gridDim.x; }
DEVICE u32 n_threads() { return blockDim.x; }

// Collectives of a block.
DEVICE void barrier() { __syncthreads(); }
/// Barrier that returns whether the argument is true in any thread.
DEVICE bool barrier_any(bool is) { return __syncthreads_or(is); }
/// Barrier that returns in how many threads the argument is true.
DEVICE u32 barrier_count(bool is) { return __syncthreads_count(is); }

// Collectives of a warp.
/// Mask of the lanes in which the argument is true.
DEVICE u32 ballot(bool is) { return __ballot_sync(~0u, is); }
/// The value of another lane.
DEVICE u32 shuffle(u32 x, u32 lane) { return __shfl_sync(~0u, x, lane); }
DEVICE u64 shuffle(u64 x, u32 lane) { return __shfl_sync(~0u, x, lane); }
/// The value of the lane `by` lower; a lane that has none keeps its own.
DEVICE u32 shuffle_up(u32 x, u32 by) { return __shfl_up_sync(~0u, x, by); }
DEVICE u64 shuffle_up(u64 x, u32 by) { return __shfl_up_sync(~0u, x, by); }

// Device memory.
template <class T> DEVICE T load(const u8 *at) { return *reinterpret_cast<const T *>(at); }
template <class T> DEVICE void store(u8 *at, T x) { *reinterpret_cast<T *>(at) = x; }

/// Array in the memory that the threads of a block share.
template <class T> struct Shared {
    T *memory;
    DEVICE T get(u32 i) const { return memory[i]; }
    DEVICE void put(u32 i, T x) const { memory[i] = x; }
    /// The same memory as an array of another type. A barrier must lie between accesses by
    /// different types.
    template <class U> DEVICE Shared<U> as() const { return {reinterpret_cast<U *>(memory)}; }
    DEVICE Shared<T> from(u32 i) const { return {memory + i}; }
};

/// Declares an array in shared memory.
#define SHARED(type, name, n)                                                                     \
    __shared__ __align__(16) type name##_memory[n];                                               \
    const Shared<type> name = {name##_memory}

// Bits.
DEVICE u32 ones(u32 x) { return __popc(x); }
DEVICE u32 leading_zeros(u32 x) { return __clz(x); }
DEVICE u32 leading_zeros(u64 x) { return __clzll(x); }
/// The low bits of (high:low) >> shift, for shifts below 32.
DEVICE u32 shift_pair(u32 low, u32 high, u32 shift) {
    return __funnelshift_r(low, high, shift);
}
/// x >> shift, for shifts up to 32.
DEVICE u32 shift_down(u32 x, u32 shift) { return __funnelshift_rc(x, 0, shift); }
/// The bytes of (high:low) that the four digits of `digits` name.
DEVICE u32 permute_bytes(u32 low, u32 high, u32 digits) {
    return __byte_perm(low, high, digits);
}
DEVICE u32 bits_of(float x) { return __float_as_uint(x); }
DEVICE u64 bits_of(double x) { return __double_as_longlong(x); }
DEVICE float float_of(u32 bits) { return __uint_as_float(bits); }
DEVICE double float_of(u64 bits) { return __longlong_as_double(bits); }

// Floats, each operation rounded to nearest and not contracted with others.
DEVICE float add(float a, float b) { return __fadd_rn(a, b); }
DEVICE double add(double a, double b) { return __dadd_rn(a, b); }
DEVICE float subtract(float a, float b) { return __fsub_rn(a, b); }
DEVICE double subtract(double a, double b) { return __dsub_rn(a, b); }
DEVICE float multiply(float a, float b) { return __fmul_rn(a, b); }
DEVICE double multiply(double a, double b) { return __dmul_rn(a, b); }
DEVICE float divide(float a, float b) { return __fdiv_rn(a, b); }
DEVICE double divide(double a, double b) { return __ddiv_rn(a, b); }
DEVICE float magnitude(float x) { return fabsf(x); }
DEVICE double magnitude(double x) { return fabs(x); }
/// Between the bits of an `f16` and a float, rounded to nearest. The bits of a NaN may change.
DEVICE float widen_half(u16 bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}
DEVICE u16 narrow_half(float x) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
/// The bits of two `bf16`, rounded to nearest, the first one in the low half. Only if
/// `ROUNDS_PAIRS`, and not of NaN, whose bits change.
#if __CUDA_ARCH__ >= 800
static const bool ROUNDS_PAIRS = true;
DEVICE u32 pair_of_bf16(float low, float high) {
    u32 bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}
#else
static const bool ROUNDS_PAIRS = false;
DEVICE u32 pair_of_bf16(float, float) { return 0; }
#endif

#endif

/// Rounds an `f64` to the type of computations.
DEVICE void nearest(double x, float &to) { to = static_cast<float>(x); }
DEVICE void nearest(double x, double &to) { to = x; }

template <class T> DEVICE T smaller(T a, T b) { return b < a ? b : a; }
template <class T> DEVICE T larger(T a, T b) { return a < b ? b : a; }

/// Mask of the lowest `n` of 32 bits, for `n` up to 32.
DEVICE u32 low_bits(u32 n) { return n == 0 ? 0 : ~0u >> (32 - n); }

DEVICE u64 shift_down(u64 x, u32 shift) { return shift < 64 ? x >> shift : 0; }

DEVICE u32 lane_id() { return thread_id() % WARP; }
DEVICE u32 warp_id() { return thread_id() / WARP; }

/// Loads a number that need not be aligned. Touches the aligned words of 4 bytes that hold it, and
/// the word after it.
DEVICE u32 load_unaligned(const u8 *at, u32) {
    const u32 shift = static_cast<u32>(reinterpret_cast<u64>(at) % 4);
    const u8 *word = at - shift;
    return shift_pair(load<u32>(word), load<u32>(word + 4), 8 * shift);
}
DEVICE u64 load_unaligned(const u8 *at, u64) {
    const u32 low = load_unaligned(at, 0u);
    return low | static_cast<u64>(load_unaligned(at + 4, 0u)) << 32;
}
DEVICE u16 load_unaligned(const u8 *at, u16) {
    return static_cast<u16>(load<u8>(at) | load<u8>(at + 1) << 8);
}

/// Sum of the values of all threads before this one, and of all. Up to 32 warps; `sums` has an
/// element for each, and nothing else may use it before the next barrier.
template <class N> struct Scanned {
    N before;
    N total;
};
template <class N> DEVICE Scanned<N> scan_block(N x, const Shared<N> &sums) {
    N sum = x;
    UNROLL
    for (u32 by = 1; by < WARP; by *= 2) {
        const N other = shuffle_up(sum, by);
        sum += lane_id() >= by ? other : 0;
    }
    if (lane_id() == WARP - 1) {
        sums.put(warp_id(), sum);
    }
    barrier();
    Scanned<N> scanned = {sum - x, 0};
    for (u32 warp = 0; warp < n_threads() / WARP; warp++) {
        const N other = sums.get(warp);
        scanned.before += warp < warp_id() ? other : 0;
        scanned.total += other;
    }
    return scanned;
}

/// The value of the last thread before this one that has one, otherwise `none`. `found` has one
/// element for each warp, `values` too.
template <class N> struct Last {
    bool is_found;
    N value;
};
template <class N>
DEVICE Last<N> last_before(bool has, N x, const Shared<u32> &found, const Shared<N> &values) {
    const u32 those = ballot(has);
    const u32 before = those & low_bits(lane_id());
    const N in_warp = shuffle(x, before == 0 ? 0 : 31 - leading_zeros(before));
    const N last = shuffle(x, those == 0 ? 0 : 31 - leading_zeros(those));
    if (lane_id() == 0) {
        found.put(warp_id(), those != 0);
        values.put(warp_id(), last);
    }
    barrier();
    Last<N> result = {before != 0, in_warp};
    for (u32 warp = warp_id(); warp > 0 && !result.is_found; warp--) {
        if (found.get(warp - 1) != 0) {
            result = {true, values.get(warp - 1)};
        }
    }
    return result;
}

/// Copies bytes from where they lie at a multiple of 4 plus `shift` to any address, all threads of
/// a block together. `from` is the multiple of 4; touches the words that hold the bytes, and the
/// word after them.
DEVICE void copy_bytes(const u8 *from, u32 shift, u8 *to, u32 n_bytes) {
    // Bytes up to the first multiple of 4 of the destination, then words, then the rest.
    const u32 lead = smaller(static_cast<u32>(-reinterpret_cast<u64>(to) % 4), n_bytes);
    const u32 n_words = (n_bytes - lead) / 4;
    const u32 at = shift + lead;
    const u8 *word = from + at / 4 * 4;
    const u32 digits = 0x3210 + 0x1111 * (at % 4);
    for (u32 i = thread_id(); i < n_words; i += n_threads()) {
        const u32 low = load<u32>(word + 4 * i), high = load<u32>(word + 4 * i + 4);
        store<u32>(to + lead + 4 * i, permute_bytes(low, high, digits));
    }
    const u32 rest = n_bytes - lead - 4 * n_words;
    if (thread_id() < lead) {
        store<u8>(to + thread_id(), load<u8>(from + shift + thread_id()));
    }
    if (thread_id() < rest) {
        const u32 i = n_bytes - rest + thread_id();
        store<u8>(to + i, load<u8>(from + shift + i));
    }
}
