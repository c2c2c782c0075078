//! What codecs with a coder for each chunk share (`core/src/codec/coder.rs`). A chunk is a byte
//! that names its form, and then the coder's output, or the values unchanged.

static const u32 STORED = 0;
static const u32 CODED = 1;
/// In its slot a chunk's form lies at this offset, so that what follows is aligned.
static const u32 FORM_AT = 7;
static const u32 CODED_AT = FORM_AT + 1;

/// Where kernels of encoders write.
struct Slots {
    u8 *reports;
    u8 *slots;
    u64 slot_bytes;
    DEVICE u8 *slot(u64 chunk) const { return slots + chunk * slot_bytes; }
};

/// A value as it is encoded: local values are multiplied by a weight.
template <class T>
DEVICE typename T::Bits load_weighted(const u8 *values, u32 i, typename T::Wide weight) {
    const typename T::Bits x = load<typename T::Bits>(values + i * T::BYTES);
    return weight == 1 ? x : weigh<T>(x, weight);
}

/// Multiplies the values of a thread's row by a weight.
template <class T> DEVICE void weigh_row(const Row<T> &row, u32 n, typename T::Wide weight) {
    if (weight != 1 && n > 0) {
        UNROLL
        for (u32 i = 0; i < BLOCK; i++) {
            row.words.put(i, weigh<T>(row.get(i), weight));
        }
    }
}

/// Writes a chunk of unchanged values to its slot, with its form at `form_at`.
template <class T>
DEVICE void store_unchanged(const u8 *values, u32 n, typename T::Wide weight, u64 chunk,
                            const Slots &slots, u32 form_at) {
    u8 *const slot = slots.slot(chunk);
    for (u32 i = thread_id(); i < n; i += n_threads()) {
        const typename T::Bits x = load_weighted<T>(values, i, weight);
        u8 *const at = slot + form_at + 1 + i * T::BYTES;
        if (form_at == FORM_AT) {
            store<typename T::Bits>(at, x);
        } else {
            UNROLL
            for (u32 k = 0; k < T::BYTES; k++) {
                store<u8>(at + k, static_cast<u8>(x >> 8 * k));
            }
        }
    }
    if (thread_id() == 0) {
        store<u8>(slot + form_at, STORED);
        const ChunkReport report = {1 + n * T::BYTES, (n + BLOCK - 1) / BLOCK, 0};
        store<u64>(slots.reports + 8 * chunk, report_of(report));
    }
}

/// Reports a chunk of `n_bytes` behind its form.
DEVICE void report_coded(u32 n_bytes, u64 chunk, const Slots &slots) {
    if (thread_id() == 0) {
        const ChunkReport report = {1 + n_bytes, 0, 0};
        store<u64>(slots.reports + 8 * chunk, report_of(report));
    }
}

/// A chunk to be read: its bytes behind the form.
struct CodedChunk {
    const u8 *bytes;
    u32 n_bytes;
    u32 form;
};

/// Opens the payload for all threads; returns false if it does not suit, and reports why.
template <class T>
DEVICE bool open_coded_payload(const u8 *src, u64 src_bytes, u64 n_values, u8 *outcome,
                               Payload &payload) {
    if (src_bytes == JUST_WRITTEN && !was_written(outcome, src_bytes)) {
        return false;
    }
    Finding finding = open_payload<T>(src, src_bytes, payload);
    if (finding.error == NO_ERROR && payload.n_values != n_values) {
        finding = {COUNT, {payload.n_values, n_values}};
    }
    if (finding.error != NO_ERROR) {
        report(outcome, finding);
    }
    return finding.error == NO_ERROR;
}

/// Opens chunk `chunk`, of `n` values. Returns false if it is damaged.
template <class T>
DEVICE bool open_coded_chunk(const Payload &payload, u64 chunk, u32 n, CodedChunk &opened) {
    const u64 start = chunk == 0 ? 0 : load<u32>(payload.index + 4 * (chunk - 1));
    const u64 end = load<u32>(payload.index + 4 * chunk);
    // No coder writes more bytes than the values have.
    if (end <= start || end + PAD > payload.n_body || end - start > 1 + n * T::BYTES) {
        return false;
    }
    const u8 *const bytes = payload.body + start;
    opened = {bytes + 1, static_cast<u32>(end - start) - 1, load<u8>(bytes)};
    return opened.form == CODED || (opened.form == STORED && opened.n_bytes == n * T::BYTES);
}

/// Reports a damaged chunk of a payload that is decoded.
DEVICE void report_undecodable(u8 *outcome) {
    if (thread_id() == 0) {
        set_outcome(outcome, OUTCOME_ERROR, DAMAGED);
    }
}

template <class T>
DEVICE typename T::Bits divided(typename T::Bits x, typename T::Wide divisor) {
    return divisor == 1 ? x : quotient<T>(x, divisor);
}

/// Decodes a chunk of unchanged values.
template <class T>
DEVICE void load_unchanged(const CodedChunk &chunk, u32 n, u8 *to, typename T::Wide divisor) {
    typedef typename T::Bits Bits;
    for (u32 i = thread_id(); i < n; i += n_threads()) {
        const Bits x = load_unaligned(chunk.bytes + i * T::BYTES, static_cast<Bits>(0));
        store<Bits>(to + i * T::BYTES, divided<T>(x, divisor));
    }
}
