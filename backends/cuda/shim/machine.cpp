//! The device that the host plays: fibers, checks, and launches for Rust.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;
static const u32 WARP = 32;

#include "machine.hpp"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <unordered_map>
#include <vector>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace shim {

thread_local Position position;

// A switch from one stack to another.
#if defined(__x86_64__)
typedef void *Context;
extern "C" void foldwire_shim_switch(Context *from, Context to);
asm(R"(
.text
.globl foldwire_shim_switch
.type foldwire_shim_switch, @function
foldwire_shim_switch:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
.size foldwire_shim_switch, .-foldwire_shim_switch
)");
static void switch_to(Context &from, Context &to) { foldwire_shim_switch(&from, to); }
static void prepare(Context &context, u8 *stack, u64 n_bytes, void (*start)()) {
    // As if `start` had been called: its return address, which is never used, at 8 below a
    // multiple of 16, and six registers below its own address.
    u64 *top = reinterpret_cast<u64 *>(stack + n_bytes) - 1;
    *top = 0;
    *--top = reinterpret_cast<u64>(start);
    for (int i = 0; i < 6; i++) {
        *--top = 0;
    }
    context = top;
}
#else
typedef ucontext_t Context;
static void switch_to(Context &from, Context &to) { swapcontext(&from, &to); }
static void prepare(Context &context, u8 *stack, u64 n_bytes, void (*start)()) {
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = n_bytes;
    context.uc_link = nullptr;
    makecontext(&context, start, 0);
}
#endif

static const u32 MAX_THREADS = 1024;
/// Not a power of two, so that the stacks' tops share no lines of caches.
static const u64 STACK_BYTES = (1 << 15) + 192;
/// What a block may have without special leave of the driver.
static const u64 SHARED_BYTES = 48 << 10;

struct Fiber {
    Context context;
    Kind kind;
    u32 line;
};

/// Last accesses to a byte of shared memory, by time, which counts barriers.
struct Access {
    u32 write_time;
    u32 read_time;
    u16 writer;
    u16 reader;
};
static const u16 SEVERAL = 0xffff;

struct Machine {
    Context main;
    std::vector<Fiber> fibers{MAX_THREADS};
    std::unique_ptr<u8[]> stacks{new u8[MAX_THREADS * STACK_BYTES]};
    alignas(16) u8 shared[SHARED_BYTES];
    std::vector<Access> accesses{SHARED_BYTES};
    std::unordered_map<const void *, u8 *> arrays;
    u64 n_shared;
    u32 time = 0;
    /// Time at which the block began.
    u32 start;
    /// Values passed to the last two collectives of each warp, and where in it a lane is.
    u64 values[2][MAX_THREADS];
    u32 turn[MAX_THREADS];
    u32 counts[2];
    u32 barriers[MAX_THREADS];
    const Kernel *kernel;
    const u64 *args;
    const Range *ranges;
    u32 n_ranges;
    u32 last_range;
    char report[512];
};

static Machine &machine() {
    static thread_local std::unique_ptr<Machine> machine;
    if (!machine) {
        machine.reset(new Machine());
    }
    return *machine;
}
static thread_local Machine *current;

void fail(const char *what, u64 detail) {
    Machine &m = *current;
    const Fiber &fiber = m.fibers[position.thread];
    std::snprintf(m.report, sizeof m.report,
                  "%s (%llu) in block %u, thread %u, after line %u", what, detail,
                  position.block, position.thread, fiber.line);
    // Fibers hold nothing that must be given back, so they need not end.
    Context unused;
    switch_to(unused, m.main);
    std::abort();
}

static void report_divergence(u32 thread) {
    position.thread = thread;
    fail("a thread is not at the collective at which the others are: kind",
         static_cast<u64>(current->fibers[thread].kind));
}

/// Chooses the fiber that runs after the one that has just stopped.
static u32 next_thread() {
    Machine &m = *current;
    const u32 thread = position.thread, first = thread - thread % WARP;
    if (thread % WARP != WARP - 1) {
        return thread + 1;
    }
    for (u32 lane = first; lane < thread; lane++) {
        const Fiber &fiber = m.fibers[lane];
        if (fiber.kind != m.fibers[thread].kind || fiber.line != m.fibers[thread].line) {
            report_divergence(lane);
        }
    }
    if (m.fibers[thread].kind == Kind::Ballot || m.fibers[thread].kind == Kind::Shuffle) {
        return first;
    }
    if (thread + 1 < position.n_threads) {
        return thread + 1;
    }
    for (u32 lane = 0; lane < thread; lane += WARP) {
        const Fiber &fiber = m.fibers[lane];
        if (fiber.kind != m.fibers[thread].kind || fiber.line != m.fibers[thread].line) {
            report_divergence(lane);
        }
    }
    m.time++;
    return 0;
}

static void go_on(u32 thread) {
    Machine &m = *current;
    const u32 from = position.thread;
    position.thread = thread;
    switch_to(m.fibers[from].context, m.fibers[thread].context);
}

void wait(Kind kind, u32 line, u64 bits) {
    Machine &m = *current;
    const u32 thread = position.thread;
    Fiber &fiber = m.fibers[thread];
    fiber.kind = kind;
    fiber.line = line;
    if (kind == Kind::Barrier) {
        // The first thread to come to a barrier makes its counter ready.
        u32 &count = m.counts[++m.barriers[thread] % 2];
        count = (thread == 0 ? 0 : count) + static_cast<u32>(bits != 0);
    } else {
        m.values[++m.turn[thread] % 2][thread] = bits;
    }
    go_on(next_thread());
}

u64 passed(u32 lane) {
    const Machine &m = *current;
    const u32 thread = position.thread;
    return m.values[m.turn[thread] % 2][thread - thread % WARP + lane];
}

u32 counted() {
    const Machine &m = *current;
    return m.counts[m.barriers[position.thread] % 2];
}

void check(const void *at, u64 n_bytes, bool is_write) {
    Machine &m = *current;
    const u64 start = reinterpret_cast<u64>(at);
    const auto is_in = [&](const Range &range) {
        return start >= range.start && start - range.start <= range.n_bytes &&
               range.n_bytes - (start - range.start) >= n_bytes;
    };
    if (start % n_bytes != 0) {
        fail("an access that is not aligned: bytes", n_bytes);
    }
    if (m.last_range < m.n_ranges && is_in(m.ranges[m.last_range])) {
        return;
    }
    for (u32 i = 0; i < m.n_ranges; i++) {
        if (is_in(m.ranges[i])) {
            m.last_range = i;
            return;
        }
    }
    fail(is_write ? "a write outside of all buffers: address"
                  : "a read outside of all buffers: address",
         start);
}

void *shared_array(const void *site, u64 n_bytes) {
    Machine &m = *current;
    u8 *&array = m.arrays[site];
    if (array == nullptr) {
        if (m.n_shared + n_bytes > SHARED_BYTES) {
            fail("more shared memory than a block has: bytes", m.n_shared + n_bytes);
        }
        array = m.shared + m.n_shared;
        m.n_shared += (n_bytes + 15) / 16 * 16;
    }
    return array;
}

void check_shared(const void *at, u64 n_bytes, bool is_write, const void *array,
                  const void *end) {
    Machine &m = *current;
    const u64 start = static_cast<u64>(static_cast<const u8 *>(at) - m.shared);
    if (at < array || at > end ||
        static_cast<u64>(static_cast<const u8 *>(end) - static_cast<const u8 *>(at)) < n_bytes) {
        fail("an access outside of a shared array: offset", start);
    }
    if (start % n_bytes != 0) {
        fail("an access to shared memory that is not aligned: offset", start);
    }
    const u16 thread = static_cast<u16>(position.thread);
    for (u64 i = start; i < start + n_bytes; i++) {
        Access &access = m.accesses[i];
        const bool was_written = access.write_time == m.time && access.writer != thread;
        if (was_written) {
            fail("a race in shared memory: offset", i);
        }
        if (is_write) {
            if (access.read_time == m.time && access.reader != thread) {
                fail("a race in shared memory: offset", i);
            }
            access.write_time = m.time;
            access.writer = thread;
        } else {
            if (access.write_time < m.start) {
                fail("a read of shared memory that nothing has written: offset", i);
            }
            const bool is_first = access.read_time != m.time;
            access.reader = is_first || access.reader == thread ? thread : SEVERAL;
            access.read_time = m.time;
        }
    }
}

/// First function of a fiber.
static void run_thread() {
    Machine &m = *current;
    m.kernel->call(m.args);
    Fiber &fiber = m.fibers[position.thread];
    fiber.kind = Kind::End;
    fiber.line = 0;
    const u32 thread = next_thread();
    if (thread != 0) {
        go_on(thread);
    }
    Context unused;
    switch_to(unused, m.main);
    std::abort();
}

static void run_block() {
    Machine &m = *current;
    m.n_shared = 0;
    m.arrays.clear();
    m.start = ++m.time;
    for (u32 thread = 0; thread < position.n_threads; thread++) {
        m.turn[thread] = m.barriers[thread] = 0;
        m.fibers[thread].kind = Kind::Running;
        m.fibers[thread].line = 0;
        u8 *stack = m.stacks.get() + thread * STACK_BYTES;
        prepare(m.fibers[thread].context, stack, STACK_BYTES, run_thread);
    }
    position.thread = 0;
    switch_to(m.main, m.fibers[0].context);
}

} // namespace shim

/// Runs a kernel on the ranges of memory that it may access. Returns a report of what went wrong,
/// or null; it is valid until the calling thread's next launch.
extern "C" const char *foldwire_shim_launch(const char *name, u32 n_blocks, u32 n_threads,
                                            const u64 *args, u32 n_args,
                                            const shim::Range *ranges, u32 n_ranges) {
    using namespace shim;
    const Kernel *kernel = kernels;
    while (kernel != nullptr && std::strcmp(kernel->name, name) != 0) {
        kernel = kernel->next;
    }
    if (kernel == nullptr) {
        return "no kernel has this name";
    }
    if (kernel->n_args != n_args) {
        return "the kernel has another number of arguments";
    }
    if (n_blocks == 0 || n_threads == 0 || n_threads > kernel->n_threads || n_threads % WARP != 0) {
        return "the kernel cannot run with so many blocks and threads";
    }
    Machine &m = machine();
    current = &m;
    m.kernel = kernel;
    m.args = args;
    m.ranges = ranges;
    m.n_ranges = n_ranges;
    m.last_range = 0;
    m.report[0] = 0;
    for (u32 block = 0; block < n_blocks && m.report[0] == 0; block++) {
        position = {block, n_blocks, 0, n_threads};
        run_block();
    }
    return m.report[0] == 0 ? nullptr : m.report;
}

/// Returns the name of the kernel with this number; null if there are fewer.
extern "C" const char *foldwire_shim_kernel(u32 i) {
    const shim::Kernel *kernel = shim::kernels;
    for (; kernel != nullptr && i > 0; i--) {
        kernel = kernel->next;
    }
    return kernel == nullptr ? nullptr : kernel->name;
}
