//! Reader of a chunk of `fz-light`. It copies the chunk to shared memory, checks what core's reader
//! checks before it uses a number from the payload, and refuses the same chunks.

/// A chunk in device memory. Only its place has been checked.
struct Chunk {
    const u8 *bytes;
    u32 n_bytes;
    u32 tag;

    DEVICE bool is_special() const { return (tag & SPECIAL) != 0; }
};

/// Finds chunk `chunk` of a payload. Returns false if its place is damaged.
template <class T> DEVICE bool find_chunk(const Payload &payload, u64 chunk, Chunk &found) {
    const u64 start = chunk == 0 ? 0 : load<u32>(payload.index + 4 * (chunk - 1));
    const u64 end = load<u32>(payload.index + 4 * chunk);
    if (end < start || end + PAD > payload.n_body || end == start ||
        end - start > max_chunk_bytes<T>()) {
        return false;
    }
    const u8 *const bytes = payload.body + start;
    found = {bytes, static_cast<u32>(end - start), load<u8>(bytes)};
    return true;
}

/// Reads a number that need not be aligned. Touches the aligned words of 4 bytes that hold it, and
/// the word after it.
DEVICE u32 get_unaligned(const Shared<u8> &stage, u32 at, u32) {
    const Shared<u32> words = stage.as<u32>();
    return shift_pair(words.get(at / 4), words.get(at / 4 + 1), 8 * (at % 4));
}
DEVICE u64 get_unaligned(const Shared<u8> &stage, u32 at, u64) {
    const u32 low = get_unaligned(stage, at, 0u);
    return low | static_cast<u64>(get_unaligned(stage, at + 4, 0u)) << 32;
}
DEVICE u16 get_unaligned(const Shared<u8> &stage, u32 at, u16) {
    return static_cast<u16>(get_unaligned(stage, at, 0u));
}

/// A checked chunk, copied to shared memory, as the thread of one block sees it.
template <class T> struct ChunkView {
    Shared<u8> stage;
    typename T::Code first;
    bool is_special;
    /// Width byte of the thread's block; 0 if it is not occupied.
    u32 width;
    /// Place of the thread's block in shared memory.
    u32 at;
};

/// The first code, which is signed and has 1, 2, 4 or 8 bytes.
template <class T>
DEVICE typename T::Code first_code(const Shared<u8> &stage, u32 at, u32 n_bytes) {
    const u64 bits = get_unaligned(stage, at, static_cast<typename T::Code>(0));
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

/// Copies a chunk of `n_values` to shared memory, checks it, and finds each thread's block. Returns
/// false to all threads if it is damaged. Shared memory must be free. Uses exchanges `base` to
/// `base + 2`.
template <class T>
DEVICE bool open_chunk(const Chunk &chunk, u32 n_values, const Shared<u8> &stage,
                       const Exchange<T> &exchange, u32 base, ChunkView<T> &view) {
    const u32 n_first = 1u << (chunk.tag >> 4 & 3), n_blocks = (n_values + BLOCK - 1) / BLOCK;
    if (n_first > sizeof(typename T::Code) || chunk.n_bytes < 1 + n_first) {
        return false;
    }
    const u32 shift = static_cast<u32>(reinterpret_cast<u64>(chunk.bytes) % sizeof(Vector));
    const u32 n_vectors = (shift + chunk.n_bytes + 15) / 16 + 1;
    for (u32 i = thread_id(); i < n_vectors; i += BLOCKS) {
        stage.as<Vector>().put(i, load<Vector>(chunk.bytes - shift + 16 * i));
    }
    barrier();
    // The blocks lie from here on. Behind them, from the end: first code, bitmap, width bytes.
    const u32 begin = shift + 1;
    u32 at = shift + chunk.n_bytes - n_first;
    view.stage = stage;
    view.first = first_code<T>(stage, at, n_first);
    view.is_special = chunk.is_special();
    const u32 kind = chunk.tag & ~(SPECIAL | 3 << 4), n_bitmap = (n_blocks + 7) / 8;
    if (kind == 0) {
        if (at < begin + n_bitmap) {
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
            occupied = get_unaligned(stage, at + 4 * word, 0u) & low_bits(8 * n_here);
        }
        beyond |= occupied & ~those;
        n_widths += ones(occupied);
        rank += word < warp_id() ? ones(occupied) : 0;
        own = word == warp_id() ? occupied : own;
    }
    if (beyond != 0 || at < begin + n_widths) {
        return false;
    }
    at -= n_widths;
    const u32 n_payload = at - begin;
    const bool is_occupied = own >> lane_id() & 1;
    rank += ones(own & low_bits(lane_id()));
    view.width = is_occupied ? stage.get(at + rank) : 0;
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
    u32 before = scanned.before & 0xffffff, total = scanned.total;
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
        blocks.put(thread_id(), before | width << 24);
        barrier();
        if (thread_id() == 0) {
            const u32 sum = walk.walk<T>(stage.from(begin), n_payload, n_values);
            exchange.numbers_of(base + 2).put(0, sum);
        }
        barrier();
        const u32 sum = exchange.numbers_of(base + 2).get(0);
        if (sum == ~0u) {
            return false;
        }
        before += walk.before();
        total += sum;
    }
    view.at = begin + before;
    return total == n_payload;
}

/// Reads residuals of `width` bits one after the other, from any byte of shared memory. Touches the
/// aligned words that hold them, and two after those.
template <class T> struct Unpacker {
    typedef typename T::Code Code;
    Code low;
    Code high;
    /// The words after those two.
    Shared<Code> rest;
    /// Place of the next residual, whose lowest bits say where it is in `low`.
    u32 bit;
    u32 width;
    /// Mask of a residual without its sign.
    Code mask;

    DEVICE Unpacker(const Shared<u8> &stage, u32 at, u32 width)
        : rest(stage.as<Code>().from(at / sizeof(Code) + 2)), bit(8 * at), width(width) {
        const Shared<Code> words = stage.as<Code>().from(at / sizeof(Code));
        low = width == 0 ? 0 : words.get(0);
        high = width == 0 ? 0 : words.get(1);
        mask = width == 0 ? 0 : ~static_cast<Code>(0) >> (T::CODE_BITS - width) >> 1;
    }

    static DEVICE u32 window(u32 low, u32 high, u32 bit) { return shift_pair(low, high, bit); }
    static DEVICE u64 window(u64 low, u64 high, u32 bit) {
        return low >> bit % 64 | (high << 1) << (63 - bit % 64);
    }

    DEVICE Code next() {
        const Code zigzag = window(low, high, bit);
        const u32 next = bit + width;
        if (((bit ^ next) & T::CODE_BITS) != 0) {
            low = high;
            high = rest.get(0);
            rest = rest.from(1);
        }
        bit = next;
        return (zigzag >> 1 & mask) ^ (0 - (zigzag & 1));
    }
};

/// A thread's block of a chunk, as a stream of its residuals and exceptions.
template <class T> struct BlockReader {
    typedef typename T::Code Code;
    Shared<u8> stage;
    /// Places of the residuals, and of the exceptions.
    u32 packed;
    u32 exact;
    /// Bits of a residual.
    u32 width;
    u32 exceptions;
    u32 n_stored;

    DEVICE BlockReader(const ChunkView<T> &view, u32 n_values)
        : stage(view.stage), packed(view.at), exact(packed), width(view.width), exceptions(0),
          n_stored(0) {
        if (!view.is_special) {
            return;
        }
        if (width >= AGAIN) {
            exceptions = low_bits(n_values);
            n_stored = width == VERBATIM ? n_values : width == REPEAT ? 1 : 0;
            width = 0;
        } else if (width >= MIXED) {
            exceptions = get_unaligned(stage, packed, 0u);
            n_stored = stage.get(packed + 4);
            width -= MIXED;
            packed += MIXED_HEAD;
            exact = packed + (width * (BLOCK - ones(exceptions)) + 7) / 8;
        }
    }

    DEVICE Unpacker<T> unpacker() const { return Unpacker<T>(stage, packed, width); }

    /// Loads residuals to the places without exceptions; the other places become 0. Returns their
    /// sum.
    DEVICE Code residuals(Block<T> &block) const {
        block.exceptions = exceptions;
        Code sum = 0;
        Unpacker<T> numbers = unpacker();
        if (exceptions == 0) {
            UNROLL
            for (u32 i = 0; i < BLOCK; i++) {
                block.slots[i] = numbers.next();
                sum += block.slots[i];
            }
            return sum;
        }
        UNROLL
        for (u32 i = 0; i < BLOCK; i++) {
            Code d = 0;
            if (!(exceptions >> i & 1)) {
                d = numbers.next();
            }
            block.slots[i] = d;
            sum += d;
        }
        return sum;
    }

    /// Sum of the residuals.
    DEVICE Code sum() const {
        Code sum = 0;
        Unpacker<T> numbers = unpacker();
        const u32 n = BLOCK - ones(exceptions);
        UNROLL
        for (u32 i = 0; i < BLOCK; i++) {
            if (i < n) {
                sum += numbers.next();
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
        return get_unaligned(stage, exact + T::BYTES * n, static_cast<typename T::Bits>(0));
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
/// `base + 1`. The chunk's shared memory is free afterwards.
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
    if (view.is_special) {
        barrier();
    }
}
