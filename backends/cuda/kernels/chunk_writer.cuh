//! Writer of a chunk of `fz-light`, into shared memory.

/// Writes a number to shared memory, from any byte on.
template <class N> DEVICE void put_bytes(const Shared<u8> &stage, u32 at, N x, u32 n_bytes) {
    for (u32 i = 0; i < n_bytes; i++) {
        stage.put(at + i, static_cast<u8>(x >> 8 * i));
    }
}

/// Writes numbers of `width` bits one after the other to shared memory, from a multiple of 4 on if
/// `IS_ALIGNED`.
template <class T, bool IS_ALIGNED> struct Packer {
    typedef typename T::Code Code;
    Shared<u8> stage;
    u32 width;
    Code word;
    u32 filled;

    DEVICE Packer(const Shared<u8> &stage, u32 width)
        : stage(stage), width(width), word(0), filled(0) {}

    DEVICE void put(Code x) {
        word |= x << filled;
        const u32 room = T::CODE_BITS - filled;
        filled += width;
        if (filled >= T::CODE_BITS) {
            if (!IS_ALIGNED) {
                put_bytes(stage, 0, word, sizeof(Code));
            } else {
                stage.as<u32>().put(0, static_cast<u32>(word));
                if (T::CODE_BITS == 64) {
                    stage.as<u32>().put(1, static_cast<u32>(static_cast<u64>(word) >> 32));
                }
            }
            stage = stage.from(sizeof(Code));
            filled -= T::CODE_BITS;
            word = shift_down(x, room);
        }
    }

    /// Writes the last bytes, and zeros up to `n_bytes` after the words that are written.
    DEVICE void finish(u32 n_bytes) const {
        const u32 n_own = (filled + 7) / 8;
        put_bytes(stage, 0, word, n_own);
        for (u32 i = n_own; i < n_bytes; i++) {
            stage.put(i, 0);
        }
    }
};

/// Code before the first residual of a chunk.
template <class T> struct First {
    /// False if it is the first code.
    bool is_given;
    typename T::Code code;
};

/// Turns codes into zig-zag residuals; exceptions stay. Returns the code before the chunk's first
/// residual. A collective of all threads; uses exchange 0 and 1.
template <class T>
DEVICE typename T::Code subtract_codes(Block<T> &block, const First<T> &first,
                                       const Exchange<T> &exchange) {
    typedef typename T::Code Code;
    const u32 coded = block.coded();
    Code first_own = block.slots[0], last = block.slots[BLOCK - 1];
    if (coded != ~0u && coded != 0) {
        first_own = block.slot(31 - leading_zeros(coded & (0 - coded)));
        last = block.slot(31 - leading_zeros(coded));
    }
    const Last<Code> before =
        last_before<Code>(coded != 0, last, exchange.numbers_of(0), exchange.codes_of(0));
    if (!before.is_found && coded != 0) {
        exchange.codes_of(1).put(0, first_own);
    }
    const bool has_codes = barrier_any(coded != 0);
    Code first_code = first.is_given ? first.code : 0;
    if (!first.is_given && has_codes) {
        first_code = exchange.codes_of(1).get(0);
    }
    Code code = before.is_found ? before.value : first_code;
    if (coded == ~0u) {
        UNROLL
        for (u32 i = 0; i < BLOCK; i++) {
            const Code next = block.slots[i];
            block.slots[i] = zigzag<T>(next - code);
            code = next;
        }
    } else if (coded != 0) {
        UNROLL
        for (u32 i = 0; i < BLOCK; i++) {
            if (coded >> i & 1) {
                const Code next = block.slots[i];
                block.slots[i] = zigzag<T>(next - code);
                code = next;
            }
        }
    }
    return first_code;
}

/// Bits of the largest residual.
template <class T> DEVICE u32 width_of(const Block<T> &block, u32 coded) {
    typename T::Code all = 0;
    UNROLL
    for (u32 i = 0; i < BLOCK; i++) {
        all |= coded >> i & 1 ? block.slots[i] : 0;
    }
    return T::CODE_BITS - leading_zeros(all);
}

/// How a block is written.
struct Layout {
    /// Width byte; 0 if the block is not occupied.
    u32 width;
    u32 n_bytes;
    /// Exceptions that are stored, from the first on.
    u32 n_stored;
};

/// Chooses the layout of a block. `before` is the last exception before it.
template <class T> DEVICE Layout layout_of(const Block<T> &block, typename T::Code before) {
    typedef typename T::Code Code;
    if (block.exceptions == 0) {
        const u32 width = block.n_values == 0 ? 0 : width_of(block, ~0u);
        return {width, 4 * width, 0};
    }
    const u32 n_exceptions = ones(block.exceptions);
    u32 n_stored = 0, nth = 0;
    Code last = before;
    UNROLL
    for (u32 i = 0; i < BLOCK; i++) {
        if (block.exceptions >> i & 1) {
            nth++;
            if (block.slots[i] != last) {
                last = block.slots[i];
                n_stored = nth;
            }
        }
    }
    if (n_exceptions == block.n_values) {
        if (n_stored == 0) {
            return {AGAIN, 0, 0};
        }
        // All are alike if the first one is new and no other is.
        if (n_stored == 1) {
            return {REPEAT, T::BYTES, 1};
        }
        return {VERBATIM, T::BYTES * block.n_values, block.n_values};
    }
    const u32 width = width_of(block, block.coded());
    const u32 n_packed = (width * (BLOCK - n_exceptions) + 7) / 8;
    return {MIXED + width, MIXED_HEAD + n_packed + T::BYTES * n_stored, n_stored};
}

/// Writes a block with exceptions.
template <class T>
DEVICE void write_mixed(const Block<T> &block, const Layout &layout, const Shared<u8> &stage,
                        u32 at) {
    u32 exact = at;
    if (layout.width < AGAIN) {
        put_bytes(stage, at, block.exceptions, 4);
        stage.put(at + 4, static_cast<u8>(layout.n_stored));
        exact = at + layout.n_bytes - T::BYTES * layout.n_stored;
        const u32 coded = block.coded();
        Packer<T, false> packer(stage.from(at + MIXED_HEAD), layout.width - MIXED);
        UNROLL
        for (u32 i = 0; i < BLOCK; i++) {
            if (coded >> i & 1) {
                packer.put(block.slots[i]);
            }
        }
        const u32 word_bytes = static_cast<u32>(sizeof(typename T::Code));
        const u32 n_written = packer.width * ones(coded) / T::CODE_BITS * word_bytes;
        packer.finish(exact - at - MIXED_HEAD - n_written);
    }
    u32 nth = 0;
    UNROLL
    for (u32 i = 0; i < BLOCK; i++) {
        if (block.exceptions >> i & 1 && nth < layout.n_stored) {
            put_bytes(stage, exact + T::BYTES * nth, block.slots[i], T::BYTES);
            nth++;
        }
    }
}

/// Writes a block of residuals without exceptions.
template <class T, bool IS_ALIGNED>
DEVICE void write_plain(const Block<T> &block, const Shared<u8> &stage, u32 width) {
    Packer<T, IS_ALIGNED> packer(stage, width);
    UNROLL
    for (u32 i = 0; i < BLOCK; i++) {
        packer.put(block.slots[i]);
    }
    if (T::CODE_BITS > 32 && width % 2 != 0) {
        packer.finish(4);
    }
}

/// Writes a chunk of residuals to shared memory, from `LEAD` on, and zeros before it and after it
/// up to a multiple of 16. `forced` is the width of a block that is copied, otherwise 0. All
/// threads; shared memory must be free, and holds the chunk after the next barrier. Uses exchanges
/// 2 to 4.
template <class T>
DEVICE ChunkReport write_chunk(const Block<T> &block, typename T::Code first, u32 forced,
                               u32 n_values, const Shared<u8> &stage,
                               const Exchange<T> &exchange) {
    typedef typename T::Code Code;
    const bool is_mixed = block.exceptions != 0;
    const u32 n_mixed = barrier_count(is_mixed);
    Layout layout = {forced, 4 * forced, 0};
    u32 n_exceptions = 0;
    if (n_mixed > 0) {
        const Code last = is_mixed ? block.slot(31 - leading_zeros(block.exceptions)) : 0;
        const Last<Code> before =
            last_before<Code>(is_mixed, last, exchange.numbers_of(2), exchange.codes_of(2));
        layout = layout_of(block, before.is_found ? before.value : T::QUIET_NAN);
        n_exceptions = scan_block(ones(block.exceptions), exchange.numbers_of(3)).total;
    } else if (forced == 0) {
        layout = layout_of(block, static_cast<Code>(0));
    }
    // Sizes in the low bits, occupied blocks in the high ones.
    const bool is_occupied = layout.width != 0;
    const u32 both = layout.n_bytes | static_cast<u32>(is_occupied) << 24;
    const Scanned<u32> scanned = scan_block(both, exchange.numbers_of(4));
    const u32 at = LEAD + 1 + (scanned.before & 0xffffff);
    const u32 n_payload = scanned.total & 0xffffff, n_widths = scanned.total >> 24;
    const u32 n_blocks = (n_values + BLOCK - 1) / BLOCK;
    if (is_mixed) {
        write_mixed(block, layout, stage, at);
    } else if (is_occupied && n_mixed > 0) {
        write_plain<T, false>(block, stage.from(at), layout.width);
    } else if (is_occupied) {
        write_plain<T, true>(block, stage.from(at), layout.width);
    }
    const u32 widths_at = LEAD + 1 + n_payload;
    if (is_occupied) {
        stage.put(widths_at + (scanned.before >> 24), static_cast<u8>(layout.width));
    }
    const u32 occupied = ballot(is_occupied);
    u32 first_at = widths_at + n_widths;
    const bool has_bitmap = n_widths > 0 && n_widths < n_blocks;
    if (has_bitmap) {
        const u32 n_bitmap = (n_blocks + 7) / 8;
        const u32 byte = thread_id() / 8;
        if (thread_id() % 8 == 0 && byte < n_bitmap) {
            stage.put(first_at + byte, static_cast<u8>(occupied >> (lane_id() / 8 * 8)));
        }
        first_at += n_bitmap;
    }
    const u32 significant = T::CODE_BITS - leading_zeros(zigzag<T>(first));
    const u32 log2_size = significant <= 8 ? 0 : significant <= 16 ? 1 : significant <= 32 ? 2 : 3;
    const u32 end = first_at + (1u << log2_size);
    if (thread_id() == 0) {
        u32 tag = n_mixed > 0 ? SPECIAL : 0;
        tag |= n_widths == 0 ? CONSTANT : n_widths == n_blocks ? DENSE : 0;
        tag |= log2_size << 4;
        stage.as<u32>().put(0, tag << 24);
        for (u32 i = first_at; i < end; i++) {
            stage.put(i, static_cast<u8>(static_cast<u64>(first) >> 8 * (i - first_at)));
        }
        for (u32 i = end; i % 16 != 0; i++) {
            stage.put(i, 0);
        }
    }
    return {end - LEAD, n_mixed, n_exceptions};
}
