//! Codec `mpc` (docs/format.md, section 7.6). A warp transposes a group of residuals, as many as a
//! word has bits, by ballots. It does so twice: to count the words to keep, and to write them.

/// Values of a section.
static const u32 SECTION = 1024;
/// Largest distance to the value that a residual refers to.
static const u32 MAX_DIM = 64;
/// Most samples of a chunk.
static const u32 N_SAMPLES = 4;
static const u32 WARPS = BLOCKS / WARP;

DEVICE u32 ones(u64 x) { return ones(static_cast<u32>(x)) + ones(static_cast<u32>(x >> 32)); }

/// Words of a lane: of a group of 32, or of both halves of a group of 64.
template <class T> struct Words {
    static constexpr u32 N = T::CODE_BITS / WARP;
    typename T::Bits words[N];
};

/// Bit i of word p becomes bit p of word i. A collective of the warp.
DEVICE Words<F32> transposed(const Words<F32> &from) {
    Words<F32> to = {{0}};
    UNROLL
    for (u32 i = 0; i < WARP; i++) {
        const u32 bits = ballot(from.words[0] >> i & 1);
        to.words[0] = lane_id() == i ? bits : to.words[0];
    }
    return to;
}
DEVICE Words<F64> transposed(const Words<F64> &from) {
    Words<F64> to = {{0, 0}};
    UNROLL
    for (u32 i = 0; i < 2 * WARP; i++) {
        const u64 low = ballot(from.words[0] >> i & 1), high = ballot(from.words[1] >> i & 1);
        if (lane_id() == i % WARP) {
            to.words[i / WARP] = low | high << 32;
        }
    }
    return to;
}

/// Residual of value `i`, of `n` values; 0 behind the last one.
template <class T>
DEVICE typename T::Bits mpc_residual(const Shared<typename T::Bits> &values, u32 i, u32 n,
                                     u32 dim) {
    if (i >= n) {
        return 0;
    }
    const typename T::Bits x = values.get(i);
    return i % SECTION < dim ? x : x - values.get(i - dim);
}

/// Residuals of the words of group `group`. A collective of the warp.
template <class T>
DEVICE Words<T> mpc_changes(const Shared<typename T::Bits> &values, u32 group, u32 n, u32 dim) {
    typedef typename T::Bits Bits;
    Words<T> residuals;
    UNROLL
    for (u32 k = 0; k < Words<T>::N; k++) {
        const u32 i = group * T::CODE_BITS + k * WARP + lane_id();
        residuals.words[k] = mpc_residual<T>(values, i, n, dim);
    }
    // The last word of the group before has its residuals' highest bits.
    Bits before = 0;
    if (group % (SECTION / T::CODE_BITS) != 0) {
        UNROLL
        for (u32 k = 0; k < Words<T>::N; k++) {
            const u32 i = (group - 1) * T::CODE_BITS + k * WARP + lane_id();
            const Bits residual = mpc_residual<T>(values, i, n, dim);
            const Bits those = ballot(residual >> (T::CODE_BITS - 1));
            before |= static_cast<Bits>(static_cast<u64>(those) << WARP * k);
        }
    }
    const Words<T> planes = transposed(residuals);
    Words<T> changes;
    UNROLL
    for (u32 k = 0; k < Words<T>::N; k++) {
        const Bits below = shuffle_up(planes.words[k], 1);
        changes.words[k] = planes.words[k] - (lane_id() == 0 ? before : below);
        before = shuffle(planes.words[k], WARP - 1);
    }
    return changes;
}

/// The distance for which a sample of a chunk takes the fewest bits. All threads.
template <class T>
DEVICE u32 mpc_best_dim(const Shared<typename T::Bits> &values, u32 n, const Shared<u32> &keys) {
    typedef typename T::Bits Bits;
    const u32 n_places = n <= MAX_DIM ? 0 : (n - MAX_DIM) / T::CODE_BITS;
    const u32 step = larger((n_places + N_SAMPLES - 1) / N_SAMPLES, 1u);
    if (thread_id() < MAX_DIM) {
        const u32 dim = thread_id() + 1;
        u32 n_words = 0;
        for (u32 place = 0; place < n_places; place += step) {
            const u32 first = place * T::CODE_BITS + MAX_DIM;
            Bits changes = 0;
            for (u32 i = first; i < first + T::CODE_BITS; i++) {
                const Bits residual = values.get(i) - values.get(i - dim);
                changes |= residual ^ residual << 1;
            }
            n_words += 1 + ones(changes);
        }
        keys.put(thread_id(), n_words * 256 + dim);
    }
    barrier();
    u32 best = ~0u;
    for (u32 i = 0; i < MAX_DIM; i++) {
        best = smaller(best, keys.get(i));
    }
    return best % 256;
}

template <class T>
DEVICE void encode_mpc(const u8 *own, u64 n_values, const Slots &slots, double weight_of_own,
                       u64 fixed_dim) {
    typedef typename T::Bits Bits;
    const u64 chunk = block_id();
    if (chunk * CHUNK >= n_values) {
        return;
    }
    SHARED(Bits, values, CHUNK);
    SHARED(u32, keys, MAX_DIM);
    SHARED(u32, counts, BLOCKS);
    SHARED(u32, sums, WARPS);
    const u32 n = chunk_values(n_values, chunk);
    const u32 n_groups = (n + T::CODE_BITS - 1) / T::CODE_BITS;
    const typename T::Wide weight = static_cast<typename T::Wide>(weight_of_own);
    const u8 *const from = own + chunk * CHUNK * T::BYTES;
    for (u32 i = thread_id(); i < n; i += BLOCKS) {
        values.put(i, load_weighted<T>(from, i, weight));
    }
    barrier();
    const bool says_dim = fixed_dim == 0;
    const u32 dim = says_dim ? mpc_best_dim<T>(values, n, keys) : static_cast<u32>(fixed_dim);
    for (u32 group = warp_id(); group < n_groups; group += WARPS) {
        const Words<T> changes = mpc_changes<T>(values, group, n, dim);
        u32 n_kept = 0;
        UNROLL
        for (u32 k = 0; k < Words<T>::N; k++) {
            n_kept += ones(ballot(changes.words[k] != 0));
        }
        if (lane_id() == 0) {
            counts.put(group, n_kept);
        }
    }
    barrier();
    const bool has_group = thread_id() < n_groups;
    const Scanned<u32> scanned = scan_block(has_group ? counts.get(thread_id()) : 0, sums);
    const u32 n_bytes = says_dim + (n_groups + scanned.total) * T::BYTES;
    if (n_bytes >= n * T::BYTES) {
        store_unchanged<T>(from, n, weight, chunk, slots, FORM_AT - says_dim);
        return;
    }
    if (has_group) {
        counts.put(thread_id(), scanned.before);
    }
    barrier();
    u8 *const slot = slots.slot(chunk), *const bitmaps = slot + CODED_AT;
    u8 *const words = bitmaps + n_groups * T::BYTES;
    for (u32 group = warp_id(); group < n_groups; group += WARPS) {
        const Words<T> changes = mpc_changes<T>(values, group, n, dim);
        u32 at = counts.get(group);
        Bits bitmap = 0;
        UNROLL
        for (u32 k = 0; k < Words<T>::N; k++) {
            const u32 kept = ballot(changes.words[k] != 0);
            if (kept >> lane_id() & 1) {
                const u32 before = ones(kept & low_bits(lane_id()));
                store<Bits>(words + (at + before) * T::BYTES, changes.words[k]);
            }
            at += ones(kept);
            bitmap |= static_cast<Bits>(static_cast<u64>(kept) << WARP * k);
        }
        if (lane_id() == 0) {
            store<Bits>(bitmaps + group * T::BYTES, bitmap);
        }
    }
    if (thread_id() == 0) {
        store<u8>(slot + FORM_AT - says_dim, CODED);
        if (says_dim) {
            store<u8>(slot + FORM_AT, static_cast<u8>(dim));
        }
    }
    report_coded(n_bytes, chunk, slots);
}

template <class T>
DEVICE void decode_mpc(const u8 *src, u64 src_bytes, u8 *dst, u64 n_values, u8 *outcome,
                       double weight, u64 divisor) {
    typedef typename T::Bits Bits;
    typedef typename T::Wide Wide;
    const u64 chunk = block_id();
    Payload payload = {};
    if (!open_coded_payload<T>(src, src_bytes, n_values, outcome, payload)) {
        return;
    }
    const double parameter = float_of(payload.step);
    const bool is_in_range = parameter >= 0 && parameter <= MAX_DIM;
    u32 dim = is_in_range ? static_cast<u32>(parameter) : 0;
    if (!is_in_range || static_cast<double>(dim) != parameter) {
        return report_undecodable(outcome);
    }
    if (chunk * CHUNK >= n_values) {
        return;
    }
    const u32 n = chunk_values(n_values, chunk);
    const u32 n_groups = (n + T::CODE_BITS - 1) / T::CODE_BITS;
    const Wide of_sums = divisor_of_sums<T>(divisor, static_cast<Wide>(weight));
    u8 *const to = dst + chunk * CHUNK * T::BYTES;
    CodedChunk opened = {};
    if (!open_coded_chunk<T>(payload, chunk, n, opened)) {
        return report_undecodable(outcome);
    }
    if (opened.form == STORED) {
        return load_unchanged<T>(opened, n, to, of_sums);
    }
    if (dim == 0) {
        dim = opened.n_bytes > 0 ? load<u8>(opened.bytes) : 0;
        if (dim == 0 || dim > MAX_DIM) {
            return report_undecodable(outcome);
        }
        opened.bytes++;
        opened.n_bytes--;
    }
    if (opened.n_bytes < n_groups * T::BYTES) {
        return report_undecodable(outcome);
    }
    SHARED(Bits, values, CHUNK);
    SHARED(Bits, totals, BLOCKS);
    SHARED(Bits, befores, BLOCKS);
    SHARED(u32, places, BLOCKS);
    SHARED(u32, sums, WARPS);
    const u8 *const words = opened.bytes + n_groups * T::BYTES;
    const bool has_group = thread_id() < n_groups;
    Bits own_bitmap = 0;
    if (has_group) {
        own_bitmap = load_unaligned(opened.bytes + thread_id() * T::BYTES, own_bitmap);
    }
    const Scanned<u32> scanned = scan_block(ones(own_bitmap), sums);
    if (scanned.total * T::BYTES != opened.n_bytes - n_groups * T::BYTES) {
        return report_undecodable(outcome);
    }
    places.put(thread_id(), scanned.before);
    barrier();
    // Words as sums of the residuals of their group so far.
    bool is_bad = false;
    const auto sums_of = [&](u32 group) {
        Bits bitmap = 0;
        bitmap = load_unaligned(opened.bytes + group * T::BYTES, bitmap);
        u32 at = places.get(group);
        Bits before = 0;
        Words<T> result;
        UNROLL
        for (u32 k = 0; k < Words<T>::N; k++) {
            const u32 kept = static_cast<u32>(static_cast<u64>(bitmap) >> WARP * k);
            Bits sum = 0;
            if (kept >> lane_id() & 1) {
                const u32 nth = at + ones(kept & low_bits(lane_id()));
                sum = load_unaligned(words + nth * T::BYTES, sum);
                is_bad |= sum == 0;
            }
            at += ones(kept);
            UNROLL
            for (u32 by = 1; by < WARP; by *= 2) {
                const Bits other = shuffle_up(sum, by);
                sum += lane_id() >= by ? other : 0;
            }
            result.words[k] = before + sum;
            before = shuffle(result.words[k], WARP - 1);
        }
        return result;
    };
    for (u32 group = warp_id(); group < n_groups; group += WARPS) {
        const Words<T> all = sums_of(group);
        if (lane_id() == WARP - 1) {
            totals.put(group, all.words[Words<T>::N - 1]);
        }
    }
    barrier();
    if (has_group) {
        const u32 per_section = SECTION / T::CODE_BITS;
        Bits before = 0;
        for (u32 i = thread_id() / per_section * per_section; i < thread_id(); i++) {
            before += totals.get(i);
        }
        befores.put(thread_id(), before);
    }
    barrier();
    for (u32 group = warp_id(); group < n_groups; group += WARPS) {
        Words<T> planes = sums_of(group);
        const Bits before = befores.get(group);
        UNROLL
        for (u32 k = 0; k < Words<T>::N; k++) {
            planes.words[k] += before;
        }
        const Words<T> residuals = transposed(planes);
        UNROLL
        for (u32 k = 0; k < Words<T>::N; k++) {
            const u32 i = group * T::CODE_BITS + k * WARP + lane_id();
            values.put(i, residuals.words[k]);
            is_bad |= i >= n && residuals.words[k] != 0;
        }
    }
    if (barrier_any(is_bad)) {
        return report_undecodable(outcome);
    }
    // Sums of every `dim`th residual of a section: of 2, of 4, and so on.
    for (u32 by = dim; by < SECTION; by *= 2) {
        Bits others[CHUNK / BLOCKS];
        UNROLL
        for (u32 k = 0; k < CHUNK / BLOCKS; k++) {
            const u32 i = k * BLOCKS + thread_id();
            others[k] = i < n && i % SECTION >= by ? values.get(i) + values.get(i - by) : 0;
        }
        barrier();
        UNROLL
        for (u32 k = 0; k < CHUNK / BLOCKS; k++) {
            const u32 i = k * BLOCKS + thread_id();
            if (i < n && i % SECTION >= by) {
                values.put(i, others[k]);
            }
        }
        barrier();
    }
    for (u32 i = thread_id(); i < n; i += BLOCKS) {
        store<Bits>(to + i * T::BYTES, divided<T>(values.get(i), of_sums));
    }
}

#define MPC_KERNELS(T, name)                                                                      \
    KERNEL(mpc_encode_##name, BLOCKS, 2,                                                          \
           (const u8 *own, u64 n_values, u8 *reports, u8 *slots, u64 slot_bytes,                  \
            double weight_of_own, u64 dim),                                                       \
           { encode_mpc<T>(own, n_values, {reports, slots, slot_bytes}, weight_of_own, dim); })   \
    KERNEL(mpc_decode_##name, BLOCKS, 2,                                                          \
           (const u8 *src, u64 src_bytes, u8 *dst, u64 n_values, u8 *outcome, double weight,      \
            u64 divisor),                                                                         \
           { decode_mpc<T>(src, src_bytes, dst, n_values, outcome, weight, divisor); })
