//! A device that the host's processor plays: defines the primitives of `kernels/primitives.cuh`.
//!
//! Blocks of a grid run one after the other. The threads of a block are fibers of one thread of the
//! host. A fiber runs to its next collective, then the next lane. At the last lane all lanes of
//! the warp must be at the same collective, and at the last warp all warps at the same barrier.
//! Found and reported: divergence at collectives, accesses outside of the memory that the caller
//! named, or of a shared array, or that are not aligned, reads of shared memory that nothing has written, and accesses of
//! two threads to the same shared bytes without a barrier between them, one of them a write.

#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#define DEVICE inline __attribute__((always_inline))
#define UNROLL

namespace shim {

/// Memory that kernels may access.
struct Range {
    u64 start;
    u64 n_bytes;
};

/// Kernel of the list that [`Entry`] makes.
struct Kernel {
    const char *name;
    u32 n_threads;
    void (*call)(const u64 *args);
    u32 n_args;
    const Kernel *next;
};

extern const Kernel *kernels;

template <class A> A argument(u64 bits) {
    A x;
    static_assert(sizeof(A) == sizeof(u64), "arguments have 8 bytes");
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

template <auto F> struct Caller;
template <class... A, void (*F)(A...)> struct Caller<F> {
    static const u32 N_ARGS = sizeof...(A);
    template <std::size_t... I> struct Indices {};
    template <std::size_t N, std::size_t... I> struct Make : Make<N - 1, N - 1, I...> {};
    template <std::size_t... I> struct Make<0, I...> {
        typedef Indices<I...> Type;
    };
    template <std::size_t... I> static void with(const u64 *args, Indices<I...>) {
        F(argument<A>(args[I])...);
    }
    static void call(const u64 *args) { with(args, typename Make<N_ARGS>::Type()); }
};

/// Adds a kernel to the list.
struct Entry {
    Kernel kernel;
    template <class C> Entry(const char *name, u32 n_threads, C) {
        kernel = {name, n_threads, &C::call, C::N_ARGS, kernels};
        kernels = &kernel;
    }
};

/// Where the fiber that runs is.
struct Position {
    u32 block;
    u32 n_blocks;
    u32 thread;
    u32 n_threads;
};
extern thread_local Position position;

/// Kind of a collective.
enum class Kind : u32 { Running, Ballot, Shuffle, Barrier, End };

/// Passes `bits` to the warp or block, and waits until all are there.
void wait(Kind kind, u32 line, u64 bits);
/// What lane `lane` of the warp passed to the collective that has just ended.
u64 passed(u32 lane);
/// In how many threads the argument of the barrier that has just ended was not 0.
u32 counted();
/// Ends the launch with a report.
[[noreturn]] void fail(const char *what, u64 detail);
/// Checks an access to device memory.
void check(const void *at, u64 n_bytes, bool is_write);
/// Returns the shared array of a place in the source.
void *shared_array(const void *site, u64 n_bytes);
/// Checks an access to the shared memory between `start` and `end`.
void check_shared(const void *at, u64 n_bytes, bool is_write, const void *start, const void *end);

} // namespace shim

#define KERNEL(name, threads, resident, parameters, ...)                                          \
    static void name parameters __VA_ARGS__                                                       \
    static shim::Entry name##_entry(#name, threads, shim::Caller<&name>());

static inline u32 block_id() { return shim::position.block; }
static inline u32 thread_id() { return shim::position.thread; }
static inline u32 n_blocks() { return shim::position.n_blocks; }
static inline u32 n_threads() { return shim::position.n_threads; }

static inline void barrier(u32 line = __builtin_LINE()) {
    shim::wait(shim::Kind::Barrier, line, 0);
}
static inline u32 barrier_count(bool is, u32 line = __builtin_LINE()) {
    shim::wait(shim::Kind::Barrier, line, is);
    return shim::counted();
}
static inline bool barrier_any(bool is, u32 line = __builtin_LINE()) {
    return barrier_count(is, line) != 0;
}

static inline u32 ballot(bool is, u32 line = __builtin_LINE()) {
    shim::wait(shim::Kind::Ballot, line, is);
    u32 mask = 0;
    for (u32 lane = 0; lane < WARP; lane++) {
        mask |= static_cast<u32>(shim::passed(lane)) << lane;
    }
    return mask;
}
static inline u64 shuffle(u64 x, u32 lane, u32 line = __builtin_LINE()) {
    shim::wait(shim::Kind::Shuffle, line, x);
    return shim::passed(lane % WARP);
}
static inline u32 shuffle(u32 x, u32 lane, u32 line = __builtin_LINE()) {
    return static_cast<u32>(shuffle(static_cast<u64>(x), lane, line));
}
static inline u64 shuffle_up(u64 x, u32 by, u32 line = __builtin_LINE()) {
    const u32 lane = shim::position.thread % WARP;
    return shuffle(x, lane >= by ? lane - by : lane, line);
}
static inline u32 shuffle_up(u32 x, u32 by, u32 line = __builtin_LINE()) {
    return static_cast<u32>(shuffle_up(static_cast<u64>(x), by, line));
}

template <class T> DEVICE T load(const u8 *at) {
    shim::check(at, sizeof(T), false);
    T x;
    std::memcpy(&x, at, sizeof x);
    return x;
}
template <class T> DEVICE void store(u8 *at, T x) {
    shim::check(at, sizeof(T), true);
    std::memcpy(at, &x, sizeof x);
}

/// Shared memory from `memory` to `end`: an array, or the rest of one.
template <class T> struct Shared {
    T *memory;
    const void *end;
    T get(u32 i) const {
        shim::check_shared(memory + i, sizeof(T), false, memory, end);
        T x;
        std::memcpy(&x, memory + i, sizeof x);
        return x;
    }
    void put(u32 i, T x) const {
        shim::check_shared(memory + i, sizeof(T), true, memory, end);
        std::memcpy(memory + i, &x, sizeof x);
    }
    template <class U> Shared<U> as() const { return {reinterpret_cast<U *>(memory), end}; }
    Shared<T> from(u32 i) const { return {memory + i, end}; }
};

#define SHARED(type, name, n)                                                                     \
    static const char name##_site = 0;                                                            \
    type *const name##_memory =                                                                   \
        static_cast<type *>(shim::shared_array(&name##_site, sizeof(type) * (n)));                \
    const Shared<type> name = {name##_memory, name##_memory + (n)}

static inline u32 ones(u32 x) { return static_cast<u32>(__builtin_popcount(x)); }
static inline u32 leading_zeros(u32 x) {
    return x == 0 ? 32 : static_cast<u32>(__builtin_clz(x));
}
static inline u32 leading_zeros(u64 x) {
    return x == 0 ? 64 : static_cast<u32>(__builtin_clzll(x));
}
static inline u32 shift_pair(u32 low, u32 high, u32 shift) {
    return static_cast<u32>((static_cast<u64>(high) << 32 | low) >> (shift % 32));
}
static inline u32 shift_down(u32 x, u32 shift) { return shift < 32 ? x >> shift : 0; }
static inline u32 permute_bytes(u32 low, u32 high, u32 digits) {
    const u64 both = static_cast<u64>(high) << 32 | low;
    u32 bytes = 0;
    for (u32 i = 0; i < 4; i++) {
        bytes |= static_cast<u32>(both >> 8 * (digits >> 4 * i & 7) & 0xff) << 8 * i;
    }
    return bytes;
}

template <class To, class From> DEVICE To same_bits(From x) {
    To y;
    static_assert(sizeof x == sizeof y, "the same bits");
    std::memcpy(&y, &x, sizeof y);
    return y;
}
static inline u32 bits_of(float x) { return same_bits<u32>(x); }
static inline u64 bits_of(double x) { return same_bits<u64>(x); }
static inline float float_of(u32 bits) { return same_bits<float>(bits); }
static inline double float_of(u64 bits) { return same_bits<double>(bits); }

static inline float add(float a, float b) { return a + b; }
static inline double add(double a, double b) { return a + b; }
static inline float subtract(float a, float b) { return a - b; }
static inline double subtract(double a, double b) { return a - b; }
static inline float multiply(float a, float b) { return a * b; }
static inline double multiply(double a, double b) { return a * b; }
static inline float divide(float a, float b) { return a / b; }
static inline double divide(double a, double b) { return a / b; }
static inline float magnitude(float x) { return std::fabs(x); }
static inline double magnitude(double x) { return std::fabs(x); }

static const bool ROUNDS_PAIRS = false;
static inline u32 pair_of_bf16(float, float) { return 0; }
static inline float widen_half(u16 bits) {
    const u32 exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
    const u32 sign = static_cast<u32>(bits & 0x8000) << 16;
    if (exponent == 0) {
        const float size = static_cast<float>(fraction) * 0x1p-24f;
        return float_of(bits_of(size) | sign);
    }
    const u32 wide = exponent == 31 ? 255 : exponent + 112;
    return float_of(sign | wide << 23 | fraction << 13);
}
static inline u16 narrow_half(float x) {
    const u32 bits = bits_of(x), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000) {
        return 0x7fff; // What devices return.
    }
    if (size >= 0x47800000) {
        return static_cast<u16>(sign | 0x7c00);
    }
    if (size < 0x38800000) {
        // The last place of 1/2 is the unit of subnormals, so the addition rounds.
        return static_cast<u16>(sign | (bits_of(float_of(size) + 0.5f) - 0x3f000000));
    }
    const u32 rounded = size + 0xfff + (size >> 13 & 1);
    return static_cast<u16>(sign | (rounded - 0x38000000) >> 13);
}
