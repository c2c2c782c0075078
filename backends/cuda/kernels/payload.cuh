//! Payloads that consist of chunks (docs/format.md, section 2): head, index, chunks, pad. Kernels
//! of codecs write chunks to slots of scratch memory. `finish` finds their places, and `gather`
//! moves them there.

/// Values of a block, and of a chunk, and blocks of a chunk.
static const u32 BLOCK = 32;
static const u32 BLOCKS = 128;
static const u32 CHUNK = 4096;
/// Readable bytes after the chunks.
static const u32 PAD = 64;
/// Bytes before the index.
static const u32 HEAD_BYTES = 24;

/// A payload whose head has been checked.
struct Payload {
    const u8 *index;
    const u8 *body;
    /// Bytes of chunks and pad.
    u64 n_body;
    u32 operands;
    u64 n_values;
    /// Bits of the lattice's spacing, or of the codec's parameter.
    u64 step;
};

/// Result of a chunk's writer: its bytes, and the statistics of its blocks.
struct ChunkReport {
    u32 n_bytes;
    u32 n_mixed;
    u32 n_exceptions;
};

// Words of an outcome, and its errors.
static const u32 OUTCOME_BYTES = 0;
static const u32 OUTCOME_ERROR = 1;
static const u32 OUTCOME_BLOCKS = 2;
static const u32 OUTCOME_DETAILS = 8;
static const u64 NO_ERROR = 0;
static const u64 TRUNCATED = 1;
static const u64 DAMAGED = 2;
static const u64 VERSION = 3;
static const u64 TYPE = 4;
static const u64 COUNT = 5;
static const u64 QUANTUM = 6;
static const u64 HEAD_ROOM = 7;

/// A finding about a payload, with the numbers that describe it.
struct Finding {
    u64 error;
    u64 details[2];
};

DEVICE u64 outcome_word(const u8 *outcome, u32 word) { return load<u64>(outcome + 8 * word); }
DEVICE void set_outcome(u8 *outcome, u32 word, u64 x) { store<u64>(outcome + 8 * word, x); }

/// Reports a finding, which all threads of all blocks have made.
DEVICE void report(u8 *outcome, const Finding &finding) {
    if (block_id() == 0 && thread_id() == 0) {
        set_outcome(outcome, OUTCOME_ERROR, finding.error);
        set_outcome(outcome, OUTCOME_DETAILS, finding.details[0]);
        set_outcome(outcome, OUTCOME_DETAILS + 1, finding.details[1]);
    }
}

/// Result of one chunk, for `finish`: bytes, MIXED blocks, exceptions, and pairs of blocks of which
/// only the left one, only the right one, and both are occupied.
static const u32 REPORT_MIXED = 16;
static const u32 REPORT_EXCEPTIONS = 24;
static const u32 REPORT_PAIRS = 37;
static const u64 REPORT_DAMAGED = 1ull << 63;

DEVICE u64 report_of(const ChunkReport &chunk) {
    return chunk.n_bytes | static_cast<u64>(chunk.n_mixed) << REPORT_MIXED |
           static_cast<u64>(chunk.n_exceptions) << REPORT_EXCEPTIONS;
}

/// Checks the head of a payload, as core's `CheckedPayload::parse`.
template <class T> DEVICE Finding open_payload(const u8 *src, u64 n_bytes, Payload &payload) {
    if (n_bytes < HEAD_BYTES) {
        return {TRUNCATED, {HEAD_BYTES, n_bytes}};
    }
    const u32 head = load<u32>(src);
    if ((head & 0xff) != 2) {
        return {VERSION, {head & 0xff, 0}};
    }
    if ((head >> 8 & 0xff) != T::DTYPE) {
        return {TYPE, {head >> 8 & 0xff, 0}};
    }
    const u32 operands = load<u32>(src + 4);
    const u64 step = load<u64>(src + 8), n_values = load<u32>(src + 16);
    double most;
    nearest(T::widen(T::MAX), most);
    const double spacing = float_of(step);
    if (operands == 0 || head >> 16 != 0 || load<u32>(src + 20) != 0 || !(spacing >= 0) ||
        !(spacing <= most)) {
        return {DAMAGED, {0, 0}};
    }
    const u64 n_chunks = (n_values + CHUNK - 1) / CHUNK, body_at = HEAD_BYTES + 4 * n_chunks;
    if (n_bytes < body_at + PAD) {
        return {TRUNCATED, {body_at + PAD, n_bytes}};
    }
    payload = {src + HEAD_BYTES, src + body_at, n_bytes - body_at, operands, n_values, step};
    const u64 used = n_chunks == 0 ? 0 : load<u32>(src + body_at - 4);
    if (payload.n_body - PAD < used) {
        return {TRUNCATED, {body_at + used + PAD, n_bytes}};
    }
    if (payload.n_body - PAD > used) {
        return {DAMAGED, {0, 0}};
    }
    return {NO_ERROR, {0, 0}};
}

/// Same for an operand of a reduction on this lattice.
template <class T>
DEVICE Finding open_operand(const u8 *src, u64 n_bytes, double ours, Payload &payload) {
    const Finding finding = open_payload<T>(src, n_bytes, payload);
    if (finding.error == NO_ERROR && payload.step != bits_of(ours)) {
        return {QUANTUM, {bits_of(ours), payload.step}};
    }
    return finding;
}

/// Length of a payload that an earlier kernel has written, which the outcome has.
static const u64 JUST_WRITTEN = ~0ull;

/// Returns whether an earlier kernel has written a payload, and its length.
DEVICE bool was_written(const u8 *outcome, u64 &n_bytes) {
    // One thread asks, because other blocks may report an error meanwhile.
    const bool is_first = thread_id() == 0;
    if (barrier_any(is_first && outcome_word(outcome, OUTCOME_ERROR) != NO_ERROR)) {
        return false;
    }
    n_bytes = outcome_word(outcome, OUTCOME_BYTES);
    return true;
}

/// Reports a damaged chunk.
DEVICE void report_damaged(u8 *reports, u64 chunk) {
    if (thread_id() == 0) {
        store<u64>(reports + 8 * chunk, REPORT_DAMAGED);
    }
}

/// Copies bytes from shared memory to a slot, after a barrier. Copies up to a multiple of 16.
DEVICE void store_chunk(const Shared<u8> &stage, u32 n_bytes, u8 *slot) {
    barrier();
    for (u32 i = thread_id(); 16 * i < n_bytes; i += n_threads()) {
        store<Vector>(slot + 16 * i, stage.as<Vector>().get(i));
    }
}

/// Writes head, index and pad of a payload, and the outcome. One block.
static const u32 FINISHERS = 1024;
template <class T>
DEVICE void finish(u8 *dst, u64 n_values, const u8 *reports, u8 *outcome, double step,
                   const u8 *a, const u8 *b, u64 own_operands) {
    if (outcome_word(outcome, OUTCOME_ERROR) != NO_ERROR) {
        return;
    }
    SHARED(u32, sums, 2 * 32);
    SHARED(u32, totals, 6 * 32);
    const u64 n_chunks = (n_values + CHUNK - 1) / CHUNK;
    u32 n_bytes = 0, counts[5] = {0, 0, 0, 0, 0};
    bool is_damaged = false;
    for (u64 first = 0; first < n_chunks; first += n_threads()) {
        const u64 chunk = first + thread_id();
        const u64 found = chunk < n_chunks ? load<u64>(reports + 8 * chunk) : 0;
        is_damaged |= (found & REPORT_DAMAGED) != 0;
        const u32 size = static_cast<u32>(found & 0xffff);
        const u32 turn = static_cast<u32>(first / n_threads() % 2);
        const Scanned<u32> scanned = scan_block(size, sums.from(32 * turn));
        if (chunk < n_chunks) {
            store<u32>(dst + HEAD_BYTES + 4 * chunk, n_bytes + scanned.before + size);
        }
        n_bytes += scanned.total;
        counts[0] += static_cast<u32>(found >> REPORT_MIXED & 0xff);
        counts[1] += static_cast<u32>(found >> REPORT_EXCEPTIONS & 0x1fff);
        UNROLL
        for (u32 i = 0; i < 3; i++) {
            counts[2 + i] += static_cast<u32>(found >> (REPORT_PAIRS + 8 * i) & 0xff);
        }
    }
    UNROLL
    for (u32 i = 0; i < 5; i++) {
        counts[i] = scan_block(counts[i], totals.from(32 * i)).total;
    }
    if (barrier_any(is_damaged)) {
        if (thread_id() == 0) {
            set_outcome(outcome, OUTCOME_ERROR, DAMAGED);
        }
        return;
    }
    u8 *const end = dst + HEAD_BYTES + 4 * n_chunks + n_bytes;
    if (thread_id() < PAD) {
        store<u8>(end + thread_id(), 0);
    }
    if (thread_id() == 0) {
        const u32 operands = static_cast<u32>(own_operands) +
                             (a == nullptr ? 0 : load<u32>(a + 4)) +
                             (b == nullptr ? 0 : load<u32>(b + 4));
        store<u32>(dst, 2 | T::DTYPE << 8);
        store<u32>(dst + 4, operands);
        store<u64>(dst + 8, bits_of(step));
        store<u32>(dst + 16, static_cast<u32>(n_values));
        store<u32>(dst + 20, 0);
        set_outcome(outcome, OUTCOME_BYTES, end + PAD - dst);
        set_outcome(outcome, OUTCOME_BLOCKS, counts[0]);
        set_outcome(outcome, OUTCOME_BLOCKS + 1, counts[1]);
        u32 n_pairs = 0;
        UNROLL
        for (u32 i = 0; i < 3; i++) {
            set_outcome(outcome, OUTCOME_BLOCKS + 3 + i, counts[2 + i]);
            n_pairs += counts[2 + i];
        }
        const u64 n_blocks = (n_values + BLOCK - 1) / BLOCK;
        set_outcome(outcome, OUTCOME_BLOCKS + 2, b == nullptr ? 0 : n_blocks - n_pairs);
    }
}

/// Moves chunks from their slots to their places. A chunk begins `shift` bytes behind the start of
/// its slot.
DEVICE void gather(u8 *dst, u64 n_values, const u8 *slots, u64 slot_bytes, u64 shift,
                   const u8 *outcome) {
    const u64 n_chunks = (n_values + CHUNK - 1) / CHUNK, chunk = block_id();
    if (outcome_word(outcome, OUTCOME_ERROR) != NO_ERROR) {
        return;
    }
    const u32 start = chunk == 0 ? 0 : load<u32>(dst + HEAD_BYTES + 4 * (chunk - 1));
    const u32 end = load<u32>(dst + HEAD_BYTES + 4 * chunk);
    u8 *const to = dst + HEAD_BYTES + 4 * n_chunks + start;
    copy_bytes(slots + chunk * slot_bytes, static_cast<u32>(shift), to, end - start);
}

#define PAYLOAD_KERNELS(T, name)                                                                  \
    KERNEL(payload_finish_##name, FINISHERS, 1,                                                   \
           (u8 *dst, u64 n_values, const u8 *reports, u8 *outcome, double step, const u8 *a,      \
            const u8 *b, u64 own_operands),                                                       \
           { finish<T>(dst, n_values, reports, outcome, step, a, b, own_operands); })             \
    KERNEL(payload_gather_##name, BLOCKS, 1,                                                      \
           (u8 *dst, u64 n_values, const u8 *slots, u64 slot_bytes, u64 shift,                    \
            const u8 *outcome),                                                                   \
           { gather(dst, n_values, slots, slot_bytes, shift, outcome); })
