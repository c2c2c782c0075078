//! Reader of a chunk of `fz-light`, in device memory. It checks what core's reader checks before it
//! uses a number from the payload, and refuses the same chunks.

/// A checked chunk, as the thread of one block sees it.
template <class T> struct ChunkView {
    /// Bytes after the tag.
    const u8 *bytes;
    typename T::Code first;
    bool is_special;
    /// Width byte of the thread's block; 0 if it is not occupied.
    u32 width;
    /// Offset of the thread's block.
    u32 at;
};

/// Loads the first code, which is signed and has 1, 2, 4 or 8 bytes.
template <class T> DEVICE typename T::Code load_first(const u8 *at, u32 n_bytes) {
    u64 bits = 0;
    for (u32 i = 0; i < n_bytes; i++) {
        bits |= static_cast<u64>(load<u8>(at + i)) << 8 * i;
    }
    const u32 unused = 64 - 8 * n_bytes;
    return static_cast<typename T::Code>(static_cast<i64>(bits << unused) >> unused);
}

/// Where the MIXED blocks of a chunk end. The head of each says its length, so one thread goes from
/// one to the next, in a copy of the chunk in shared memory.
struct MixedWalk {
    /// The blocks by 32: which are MIXED.
    Shared<u32> mixed;
    /// For each block where it would begin if MIXED blocks were empty, and its width byte. After
    /// the walk the bytes of all MIXED blocks up to its end.
    Shared<u32> blocks;

    /// Returns the bytes of all MIXED blocks; all bits set if one is damaged. `payload` is a copy.
    template <class T>
    DEVICE u32 walk(const Shared<u8> &payload, u32 n_payload, u32 n_values) const {
        u32 sum = 0;
        for (u32 word = 0; word < BLOCKS / 32; word++) {
            for (u32 those = mixed.get(word); those != 0; those &= those - 1) {
                const u32 block = 32 * word + 31 - leading_zeros(those & (0 - those));
                const u32 entry = blocks.get(block);
                const u32 at = (entry & 0xffffff) + sum, width = (entry >> 24) - MIXED;
                if (at + MIXED_HEAD > n_payload) {
                    return ~0u;
                }
                u32 mask = 0;
                UNROLL
                for (u32 i = 0; i < 4; i++) {
                    mask |= static_cast<u32>(payload.get(at + i)) << 8 * i;
                }
                const u32 n_stored = payload.get(at + 4), n_exceptions = ones(mask);
                const u32 n = smaller(n_values - block * BLOCK, BLOCK);
                if (mask == 0 || mask >= low_bits(n) || n_stored > n_exceptions) {
                    return ~0u;
                }
                const u32 n_packed = (width * (BLOCK - n_exceptions) + 7) / 8;
                sum += MIXED_HEAD + n_packed + n_stored * T::BYTES;
                blocks.put(block, sum);
            }
        }
        return sum;
    }

    /// Bytes of all MIXED blocks before this thread's.
    DEVICE u32 before() const {
        for (u32 word = warp_id() + 1; word > 0; word--) {
            u32 those = mixed.get(word - 1);
            those &= word - 1 == warp_id() ? low_bits(lane_id()) : ~0u;
            if (those != 0) {
                return blocks.get(32 * (word - 1) + 31 - leading_zeros(those));
            }
        }
        return 0;
    }
};

/// Checks chunk `chunk`, of `n_values`, and finds each thread's block. Returns false to all threads
/// if it is damaged. Shared memory must be free, and is free after the next barrier. Uses exchanges
/// `base` to `base + 2`.
template <class T>
DEVICE bool open_chunk(const Payload &payload, u64 chunk, u32 n_values, const Shared<u8> &stage,
                       const Exchange<T> &exchange, u32 base, ChunkView<T> &view) {
    const u64 start = chunk == 0 ? 0 : load<u32>(payload.index + 4 * (chunk - 1));
    const u64 end = load<u32>(payload.index + 4 * chunk);
    if (end < start || end + PAD > payload.n_body || end == start ||
        end - start > max_chunk_bytes<T>()) {
        return false;
    }
    const u8 *const bytes = payload.body + start;
    const u32 n_bytes = static_cast<u32>(end - start), tag = load<u8>(bytes);
    const u32 n_first = 1u << (tag >> 4 & 3), n_blocks = (n_values + BLOCK - 1) / BLOCK;
    if (n_first > sizeof(typename T::Code) || n_bytes < 1 + n_first) {
        return false;
    }
    u32 at = n_bytes - n_first;
    view.first = load_first<T>(bytes + at, n_first);
    view.is_special = (tag & SPECIAL) != 0;
    const u32 kind = tag & ~(SPECIAL | 3 << 4), n_bitmap = (n_blocks + 7) / 8;
    if (kind == 0) {
        if (at < 1 + n_bitmap) {
            return false;
        }
        at -= n_bitmap;
    } else if (kind != CONSTANT && kind != DENSE) {
        return false;
    }
    u32 n_widths = 0, rank = 0, own = 0, beyond = 0;
    UNROLL
    for (u32 word = 0; word < BLOCKS / 32; word++) {
        const u32 before = 32 * word;
        const u32 those = low_bits(n_blocks <= before ? 0 : smaller(n_blocks - before, 32u));
        u32 occupied = kind == DENSE ? those : 0;
        if (kind == 0 && 4 * word < n_bitmap) {
            const u32 n_here = smaller(n_bitmap - 4 * word, 4u);
            occupied = load_unaligned(bytes + at + 4 * word, 0u) & low_bits(8 * n_here);
        }
        beyond |= occupied & ~those;
        n_widths += ones(occupied);
        rank += word < warp_id() ? ones(occupied) : 0;
        own = word == warp_id() ? occupied : own;
    }
    if (beyond != 0 || at < 1 + n_widths) {
        return false;
    }
    at -= n_widths;
    const u32 n_payload = at - 1;
    const bool is_occupied = own >> lane_id() & 1;
    rank += ones(own & low_bits(lane_id()));
    view.bytes = bytes + 1;
    view.width = is_occupied ? load<u8>(bytes + at + rank) : 0;
    const u32 width = view.width;
    u32 size = 4 * width;
    bool is_bad = is_occupied && (width == 0 || width > T::CODE_BITS), is_mixed = false;
    if (view.is_special && width >= MIXED) {
        is_mixed = width <= MIXED + T::CODE_BITS;
        is_bad = !is_mixed && width < AGAIN;
        size = width == VERBATIM ? T::BYTES * block_values(n_values)
                                 : width == REPEAT ? T::BYTES : 0;
    }
    // Sizes in the low bits, invalid widths in the high ones.
    const u32 both = (is_bad ? 0 : size) | static_cast<u32>(is_bad) << 24;
    const Scanned<u32> scanned = scan_block(both, exchange.numbers_of(base));
    view.at = scanned.before & 0xffffff;
    u32 total = scanned.total;
    if (total >> 24 != 0) {
        return false;
    }
    if (view.is_special) {
        SHARED(u32, blocks, BLOCKS);
        const MixedWalk walk = {exchange.numbers_of(base + 1), blocks};
        const u32 those = ballot(is_mixed);
        if (lane_id() == 0) {
            walk.mixed.put(warp_id(), those);
        }
        blocks.put(thread_id(), view.at | width << 24);
        const u32 shift = static_cast<u32>(reinterpret_cast<u64>(bytes) % 4);
        for (u32 i = thread_id(); 4 * i < shift + n_bytes; i += BLOCKS) {
            stage.as<u32>().put(i, load<u32>(bytes - shift + 4 * i));
        }
        barrier();
        if (thread_id() == 0) {
            const u32 sum = walk.walk<T>(stage.from(shift + 1), n_payload, n_values);
            exchange.numbers_of(base + 2).put(0, sum);
        }
        barrier();
        const u32 sum = exchange.numbers_of(base + 2).get(0);
        if (sum == ~0u) {
            return false;
        }
        view.at += walk.before();
        total += sum;
    }
    return total == n_payload;
}

/// Reads numbers of `width` bits one after the other, from any address. Touches the aligned words
/// that hold them, and two after those.
template <class T> struct Unpacker {
    typedef typename T::Code Code;
    const u8 *word;
    Code low;
    Code high;
    u32 bit;
    u32 width;
    Code mask;

    DEVICE Unpacker(const u8 *at, u32 width) : width(width) {
        const u32 shift = static_cast<u32>(reinterpret_cast<u64>(at) % sizeof(Code));
        word = at - shift;
        bit = 8 * shift;
        mask = width == 0 ? 0 : ~static_cast<Code>(0) >> (T::CODE_BITS - width);
        low = load<Code>(word);
        high = load<Code>(word + sizeof(Code));
    }

    static DEVICE u32 window(u32 low, u32 high, u32 bit) { return shift_pair(low, high, bit); }
    static DEVICE u64 window(u64 low, u64 high, u32 bit) {
        return low >> bit | (high << 1) << (63 - bit);
    }

    DEVICE Code next() {
        const Code x = window(low, high, bit) & mask;
        bit += width;
        if (bit >= T::CODE_BITS) {
            bit -= T::CODE_BITS;
            word += sizeof(Code);
            low = high;
            high = load<Code>(word + sizeof(Code));
        }
        return x;
    }
};

/// A thread's block of a chunk, as a stream of its residuals and exceptions.
template <class T> struct BlockReader {
    typedef typename T::Code Code;
    const u8 *packed;
    const u8 *exact;
    /// Bits of a residual.
    u32 width;
    u32 exceptions;
    u32 n_stored;

    DEVICE BlockReader(const ChunkView<T> &view, u32 n_values)
        : packed(view.bytes + view.at), exact(packed), width(view.width), exceptions(0),
          n_stored(0) {
        if (width >= AGAIN) {
            exceptions = low_bits(n_values);
            n_stored = width == VERBATIM ? n_values : width == REPEAT ? 1 : 0;
            width = 0;
        } else if (width >= MIXED) {
            exceptions = load_unaligned(packed, 0u);
            n_stored = load<u8>(packed + 4);
            width -= MIXED;
            packed += MIXED_HEAD;
            exact = packed + (width * (BLOCK - ones(exceptions)) + 7) / 8;
        }
    }

    /// Loads residuals to the places without exceptions; the other places become 0. Returns their
    /// sum.
    DEVICE Code residuals(Block<T> &block) const {
        block.exceptions = exceptions;
        Code sum = 0;
        if (width == 0) {
            UNROLL
            for (u32 i = 0; i < BLOCK; i++) {
                block.slots[i] = 0;
            }
            return sum;
        }
        Unpacker<T> unpacker(packed, width);
        UNROLL
        for (u32 i = 0; i < BLOCK; i++) {
            Code d = 0;
            if (!(exceptions >> i & 1)) {
                d = unzigzag<T>(unpacker.next());
            }
            block.slots[i] = d;
            sum += d;
        }
        return sum;
    }

    /// Sum of the residuals.
    DEVICE Code sum() const {
        Code sum = 0;
        if (width != 0) {
            Unpacker<T> unpacker(packed, width);
            const u32 n = BLOCK - ones(exceptions);
            UNROLL
            for (u32 i = 0; i < BLOCK; i++) {
                if (i < n) {
                    sum += unzigzag<T>(unpacker.next());
                }
            }
        }
        return sum;
    }

    /// Exception number `nth`. `before` is the last one before the block.
    DEVICE Code exception(u32 nth, Code before) const {
        if (n_stored == 0) {
            return before;
        }
        const u32 n = smaller(nth, n_stored - 1);
        return load_unaligned(exact + T::BYTES * n, static_cast<typename T::Bits>(0));
    }
};

/// What precedes a thread's block: the last code, and the last exception.
template <class T> struct Preceding {
    typename T::Code code;
    typename T::Code exception;
};

/// Finds what precedes each block, whose residuals sum up to `sum`. All threads; uses exchanges
/// `base` and `base + 1`.
template <class T>
DEVICE Preceding<T> preceding(const ChunkView<T> &view, const BlockReader<T> &reader,
                              typename T::Code sum, const Exchange<T> &exchange, u32 base) {
    typedef typename T::Code Code;
    Preceding<T> before = {view.first + scan_block(sum, exchange.codes_of(base)).before,
                           T::QUIET_NAN};
    if (view.is_special) {
        const bool has = reader.n_stored > 0;
        const Code last = has ? reader.exception(~0u, 0) : 0;
        const Last<Code> found = last_before<Code>(has, last, exchange.numbers_of(base + 1),
                                                   exchange.codes_of(base + 1));
        before.exception = found.is_found ? found.value : static_cast<Code>(T::QUIET_NAN);
    }
    return before;
}

/// Loads the thread's block: codes and exceptions. All threads; uses exchanges `base` and
/// `base + 1`.
template <class T>
DEVICE void load_block(const ChunkView<T> &view, u32 n_values, const Exchange<T> &exchange,
                       u32 base, Block<T> &block) {
    typedef typename T::Code Code;
    block.n_values = n_values;
    const BlockReader<T> reader(view, n_values);
    const Code sum = reader.residuals(block);
    const Preceding<T> before = preceding(view, reader, sum, exchange, base);
    Code code = before.code;
    UNROLL
    for (u32 i = 0; i < BLOCK; i++) {
        code += block.slots[i];
        block.slots[i] = code;
    }
    if (block.exceptions != 0) {
        u32 nth = 0;
        UNROLL
        for (u32 i = 0; i < BLOCK; i++) {
            if (block.exceptions >> i & 1) {
                block.slots[i] = reader.exception(nth++, before.exception);
            }
        }
    }
}
