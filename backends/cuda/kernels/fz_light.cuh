//! Codec `fz-light` (docs/format.md, section 2). One thread block for each chunk.

template <class T>
DEVICE void encode(const u8 *own, u64 n_values, u8 *reports, u8 *slots,
                   u64 slot_bytes, const Lattice<T> &lattice) {
    const u64 chunk = block_id();
    if (chunk * CHUNK >= n_values) {
        return;
    }
    SHARED(u8, stage, stage_bytes<T>());
    EXCHANGE(T, exchange);
    const u32 n = chunk_values(n_values, chunk);
    load_values<T>(own + chunk * CHUNK * T::BYTES, n, stage);
    barrier();
    Block<T> block;
    block.n_values = block_values(n);
    encode_block(Row<T>(stage), lattice, block);
    const First<T> found = {false, 0};
    const typename T::Code first = subtract_codes(block, found, exchange);
    const ChunkReport written = write_chunk(block, first, 0, n, stage, exchange);
    store_chunk(stage, LEAD + written.n_bytes, slots + chunk * slot_bytes);
    if (thread_id() == 0) {
        store<u64>(reports + 8 * chunk, report_of(written));
    }
}

/// Writes a block's values to its row of shared memory.
template <class T>
DEVICE void decode_block(const Block<T> &block, typename T::Wide of_codes,
                         typename T::Wide divisor, const Row<T> &row) {
    typedef typename T::Bits Bits;
    const u32 per_word = Row<T>::PER_WORD;
    UNROLL
    for (u32 i = 0; i < BLOCK; i += per_word) {
        const typename T::Wide x = wide_value_of<T>(block.slots[i], of_codes);
        const typename T::Wide last = wide_value_of<T>(block.slots[i + per_word - 1], of_codes);
        row.words.put(i / per_word, T::narrow_word(x, last));
    }
    if (block.exceptions == 0) {
        return;
    }
    UNROLL
    for (u32 i = 0; i < BLOCK; i++) {
        if (block.exceptions >> i & 1) {
            const Bits x = static_cast<Bits>(block.slots[i]);
            row.put(i, divisor == 1 ? x : quotient<T>(x, divisor));
        }
    }
}

/// Factor of codes in a decoder.
template <class T>
DEVICE typename T::Wide factor_of_codes(double step, u64 divisor, typename T::Wide weight) {
    typedef typename T::Wide Wide;
    const Wide spacing = static_cast<Wide>(step);
    return divisor == 1 ? multiply(spacing, weight) : divide(spacing, static_cast<Wide>(divisor));
}

/// Decodes a payload, of a lattice of this spacing unless that is negative.
template <class T>
DEVICE void decode(const u8 *src, u64 src_bytes, u8 *dst, u64 n_values, u8 *outcome,
                   double weight, u64 divisor, double spacing) {
    typedef typename T::Wide Wide;
    const u64 chunk = block_id();
    if (src_bytes == JUST_WRITTEN && !was_written(outcome, src_bytes)) {
        return;
    }
    Payload payload = {};
    Finding finding = spacing < 0 ? open_payload<T>(src, src_bytes, payload)
                                  : open_operand<T>(src, src_bytes, spacing, payload);
    if (finding.error == NO_ERROR && payload.n_values != n_values) {
        finding = {COUNT, {payload.n_values, n_values}};
    }
    if (finding.error != NO_ERROR) {
        report(outcome, finding);
        return;
    }
    if (chunk * CHUNK >= n_values) {
        return;
    }
    SHARED(u8, stage, stage_bytes<T>());
    EXCHANGE(T, exchange);
    const u32 n = chunk_values(n_values, chunk);
    Chunk found;
    ChunkView<T> view;
    if (!find_chunk<T>(payload, chunk, found) ||
        !open_chunk(found, n, stage, exchange, 5, view)) {
        if (thread_id() == 0) {
            set_outcome(outcome, OUTCOME_ERROR, DAMAGED);
        }
        return;
    }
    Block<T> block;
    load_block(view, block_values(n), exchange, 8, block);
    const Wide own_weight = static_cast<Wide>(weight);
    const Wide factor = factor_of_codes<T>(float_of(payload.step), divisor, own_weight);
    const Wide of_sums = divisor_of_sums<T>(divisor, own_weight);
    decode_block(block, factor, of_sums, Row<T>(stage));
    barrier();
    store_values<T>(dst + chunk * CHUNK * T::BYTES, n, stage);
}

template <class T>
DEVICE typename T::Code operate_on_codes(u32 op, typename T::Code a, typename T::Code b) {
    typedef typename T::Signed Signed;
    if (op == SUM) {
        return a + b;
    }
    const bool is_less = static_cast<Signed>(a) < static_cast<Signed>(b);
    return is_less == (op == MINIMUM) ? a : b;
}

/// Folds a thread's values into its codes, except where one of both is not on the lattice. Returns
/// the mask of the values that are not.
template <class T, bool IS_SUM>
DEVICE u32 fold_codes(u32 op, const Row<T> &values, const Lattice<T> &lattice, Block<T> &block,
                      typename T::Code &first_own) {
    typedef typename T::Code Code;
    u32 off = 0;
    UNROLL
    for (u32 i = 0; i < BLOCK; i++) {
        Code code;
        const bool is_point =
            quantise<T>(block.n_values > 0 ? values.get(i) : 0, lattice, code);
        first_own = i == 0 ? code : first_own;
        off |= static_cast<u32>(!is_point) << i;
        if (is_point && !(block.exceptions >> i & 1)) {
            block.slots[i] = operate_on_codes<T>(IS_SUM ? SUM : op, block.slots[i], code);
        }
    }
    return off & low_bits(block.n_values);
}

/// Values to store beside a folded payload.
struct Output {
    u8 *values;
    u64 divisor;
};

template <class T>
DEVICE void fold(const u8 *src, u64 src_bytes, const u8 *own, u64 n_values, u8 *reports,
                 u8 *slots, u64 slot_bytes, u8 *outcome, const Lattice<T> &lattice, double step,
                 u64 max_operands, u32 op, const Output &output) {
    typedef typename T::Bits Bits;
    typedef typename T::Code Code;
    typedef typename T::Wide Wide;
    const u64 chunk = block_id();
    Payload payload = {};
    Finding finding = open_operand<T>(src, src_bytes, step, payload);
    if (finding.error == NO_ERROR && payload.n_values != n_values) {
        finding = {COUNT, {payload.n_values, n_values}};
    }
    if (finding.error == NO_ERROR && payload.operands + 1ull > max_operands) {
        finding = {HEAD_ROOM, {payload.operands + 1ull, max_operands}};
    }
    if (finding.error != NO_ERROR) {
        report(outcome, finding);
        return;
    }
    if (chunk * CHUNK >= n_values) {
        return;
    }
    SHARED(u8, stage, stage_bytes<T>());
    EXCHANGE(T, exchange);
    const u32 n = chunk_values(n_values, chunk);
    Chunk found;
    ChunkView<T> view;
    if (!find_chunk<T>(payload, chunk, found) ||
        !open_chunk(found, n, stage, exchange, 5, view)) {
        report_damaged(reports, chunk);
        return;
    }
    Block<T> block;
    load_block(view, block_values(n), exchange, 8, block);
    load_values<T>(own + chunk * CHUNK * T::BYTES, n, stage);
    barrier();
    const Row<T> values(stage);
    // Kept in shared memory, because registers are short.
    const Shared<Code> firsts = exchange.codes_of(7);
    if (thread_id() == 0) {
        firsts.put(0, view.first);
    }
    Code first_own = 0;
    const u32 off = op == SUM ? fold_codes<T, true>(op, values, lattice, block, first_own)
                              : fold_codes<T, false>(op, values, lattice, block, first_own);
    // Sums without exceptions keep the first residual of the payload.
    if (thread_id() == 0) {
        firsts.put(1, first_own);
    }
    const bool any_off = barrier_any(off != 0);
    const bool keeps = op == SUM && !view.is_special && !any_off && output.values == nullptr;
    const First<T> first = {keeps, firsts.get(0) + firsts.get(1)};
    if ((block.exceptions | off) != 0) {
        const Wide of_codes = multiply(lattice.step, lattice.weight);
        UNROLL
        for (u32 i = 0; i < BLOCK; i++) {
            if ((block.exceptions | off) >> i & 1) {
                const Bits x = values.get(i);
                Code code;
                Bits other;
                if (quantise<T>(x, lattice, code)) {
                    other = value_of<T>(code, of_codes);
                } else {
                    other = lattice.weight == 1 ? x : weigh<T>(x, lattice.weight);
                }
                const Bits left = block.exceptions >> i & 1
                                      ? static_cast<Bits>(block.slots[i])
                                      : value_of<T>(block.slots[i], of_codes);
                block.slots[i] = operate<T>(op, left, other);
            }
        }
        block.exceptions |= off;
    }
    if (output.values != nullptr) {
        const Wide factor = factor_of_codes<T>(step, output.divisor, lattice.weight);
        const Wide of_sums = divisor_of_sums<T>(output.divisor, lattice.weight);
        // A thread's row is its own until the next barrier.
        decode_block(block, factor, of_sums, values);
        barrier();
        store_values<T>(output.values + chunk * CHUNK * T::BYTES, n, stage);
    }
    const Code first_code = subtract_codes(block, first, exchange);
    const ChunkReport written = write_chunk(block, first_code, 0, n, stage, exchange);
    store_chunk(stage, LEAD + written.n_bytes, slots + chunk * slot_bytes);
    if (thread_id() == 0) {
        store<u64>(reports + 8 * chunk, report_of(written));
    }
}

/// Combines block `b` into `a`, on absolute codes. `b` is preceded by `before`.
template <class T>
DEVICE void combine_blocks(u32 op, Block<T> &a, const BlockReader<T> &b,
                           const Preceding<T> &before, const Lattice<T> &lattice) {
    typedef typename T::Bits Bits;
    typedef typename T::Code Code;
    const u32 exceptions = (a.exceptions | b.exceptions) & low_bits(a.n_values);
    Unpacker<T> numbers = b.unpacker();
    Code code = before.code;
    const typename T::Wide of_codes = multiply(lattice.step, lattice.weight);
    u32 nth = 0;
    UNROLL
    for (u32 i = 0; i < BLOCK; i++) {
        const bool is_stored = b.exceptions >> i & 1;
        code += is_stored ? 0 : numbers.next();
        if (!(exceptions >> i & 1)) {
            a.slots[i] = operate_on_codes<T>(op, a.slots[i], code);
            continue;
        }
        const Bits left = a.exceptions >> i & 1 ? static_cast<Bits>(a.slots[i])
                                                : value_of<T>(a.slots[i], of_codes);
        const Bits other = is_stored ? static_cast<Bits>(b.exception(nth++, before.exception))
                                     : value_of<T>(code, of_codes);
        a.slots[i] = operate<T>(op, left, other);
    }
    a.exceptions = exceptions;
}

template <class T>
DEVICE void combine(const u8 *a, u64 a_bytes, const u8 *b, u64 b_bytes, u64 n_values,
                    u8 *reports, u8 *slots, u64 slot_bytes, u8 *outcome,
                    const Lattice<T> &lattice, double step,
                    u64 max_operands, u32 op, bool is_static) {
    typedef typename T::Code Code;
    const u64 chunk = block_id();
    Payload left = {}, right = {};
    Finding finding = open_operand<T>(a, a_bytes, step, left);
    if (finding.error == NO_ERROR) {
        finding = open_operand<T>(b, b_bytes, step, right);
    }
    if (finding.error == NO_ERROR && right.n_values != left.n_values) {
        finding = {COUNT, {right.n_values, left.n_values}};
    }
    if (finding.error == NO_ERROR && left.n_values != n_values) {
        finding = {COUNT, {left.n_values, n_values}};
    }
    const u64 operands = 0ull + left.operands + right.operands;
    if (finding.error == NO_ERROR && operands > max_operands) {
        finding = {HEAD_ROOM, {operands, max_operands}};
    }
    if (finding.error != NO_ERROR) {
        report(outcome, finding);
        return;
    }
    if (chunk * CHUNK >= n_values) {
        return;
    }
    SHARED(u8, stage, stage_bytes<T>());
    EXCHANGE(T, exchange);
    const u32 n = chunk_values(n_values, chunk);
    Chunk of_left, of_right;
    ChunkView<T> x, y;
    if (!find_chunk<T>(left, chunk, of_left) || !find_chunk<T>(right, chunk, of_right) ||
        !open_chunk(of_left, n, stage, exchange, 5, x)) {
        report_damaged(reports, chunk);
        return;
    }
    // The sum of two differences is the difference of the sums.
    const bool adds_differences =
        op == SUM && !is_static && !x.is_special && !of_right.is_special();
    const u32 n_own = block_values(n);
    Block<T> block;
    if (adds_differences) {
        block.n_values = n_own;
        BlockReader<T>(x, n_own).residuals(block);
        barrier();
    } else {
        load_block(x, n_own, exchange, 12, block);
    }
    if (!open_chunk(of_right, n, stage, exchange, 8, y)) {
        report_damaged(reports, chunk);
        return;
    }
    const u32 is_left = x.width != 0 && y.width == 0, is_right = x.width == 0 && y.width != 0;
    const u32 is_neither = x.width != 0 && y.width != 0;
    const u32 pairs =
        scan_block(is_left | is_right << 8 | is_neither << 16, exchange.numbers_of(11)).total;
    Code first;
    u32 forced = 0;
    const BlockReader<T> of_y(y, n_own);
    if (adds_differences) {
        Unpacker<T> numbers = of_y.unpacker();
        UNROLL
        for (u32 i = 0; i < BLOCK; i++) {
            block.slots[i] = zigzag<T>(block.slots[i] + numbers.next());
        }
        forced = is_left ? x.width : is_right ? y.width : 0;
        first = x.first + y.first;
    } else {
        const Preceding<T> before = preceding(y, of_y, of_y.sum(), exchange, 14);
        combine_blocks(op, block, of_y, before, lattice);
        const First<T> found = {false, 0};
        first = subtract_codes(block, found, exchange);
    }
    const ChunkReport written = write_chunk(block, first, forced, n, stage, exchange);
    store_chunk(stage, LEAD + written.n_bytes, slots + chunk * slot_bytes);
    if (thread_id() == 0) {
        store<u64>(reports + 8 * chunk,
                   report_of(written) | static_cast<u64>(pairs) << REPORT_PAIRS);
    }
}

#define LATTICE_PARAMETERS                                                                        \
    double spacing, double inverse, double limit, double bound, double weight
#define LATTICE(T) lattice_of<T>(spacing, inverse, limit, bound, weight)
#define FZ_LIGHT_KERNELS(T, name)                                                                 \
    KERNEL(fz_light_encode_##name, BLOCKS, (T::BYTES < 8 ? 8 : 4),                                \
           (const u8 *own, u64 n_values, u8 *reports, u8 *slots, u64 slot_bytes,                  \
            LATTICE_PARAMETERS),                                                                  \
           { encode<T>(own, n_values, reports, slots, slot_bytes, LATTICE(T)); })                 \
    KERNEL(fz_light_decode_##name, BLOCKS, (T::BYTES < 8 ? 8 : 4),                                \
           (const u8 *src, u64 src_bytes, u8 *dst, u64 n_values, u8 *outcome, double weight,      \
            u64 divisor, double spacing),                                                         \
           { decode<T>(src, src_bytes, dst, n_values, outcome, weight, divisor, spacing); })      \
    KERNEL(fz_light_fold_##name, BLOCKS, (T::BYTES < 8 ? 4 : 2),                                  \
           (const u8 *src, u64 src_bytes, const u8 *own, u64 n_values, u8 *reports, u8 *slots,    \
            u64 slot_bytes, u8 *outcome, LATTICE_PARAMETERS, double step, u64 max_operands,       \
            u64 op, u8 *output, u64 divisor),                                                     \
           {                                                                                      \
               fold<T>(src, src_bytes, own, n_values, reports, slots, slot_bytes, outcome,        \
                       LATTICE(T), step, max_operands, static_cast<u32>(op),                      \
                       {output, divisor});                                                        \
           })                                                                                     \
    KERNEL(fz_light_combine_##name, BLOCKS, (T::BYTES < 8 ? 5 : 3),                               \
           (const u8 *a, u64 a_bytes, const u8 *b, u64 b_bytes, u64 n_values, u8 *reports,        \
            u8 *slots, u64 slot_bytes, u8 *outcome, LATTICE_PARAMETERS, double step,              \
            u64 max_operands, u64 op, u64 is_static),                                             \
           {                                                                                      \
               combine<T>(a, a_bytes, b, b_bytes, n_values, reports, slots, slot_bytes, outcome,  \
                          LATTICE(T), step, max_operands, static_cast<u32>(op),                   \
                          is_static != 0);                                                        \
           })
