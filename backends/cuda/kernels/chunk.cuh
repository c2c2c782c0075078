//! Chunks of codec `fz-light` (docs/format.md, section 3). A thread block has a chunk of up to 4096
//! values, and each of its 128 threads a block of 32, whose codes it keeps in registers. So
//! differences, widths and packing need no exchange; only the sizes of blocks, codes and exceptions
//! before a block come from other threads.

// Bits of a tag.
static const u32 DENSE = 1;
static const u32 SPECIAL = 2;
static const u32 CONSTANT = 4;
// Width bytes.
static const u32 MIXED = 0x80;
static const u32 AGAIN = 0xfd;
static const u32 REPEAT = 0xfe;
static const u32 VERBATIM = 0xff;
/// Bytes before the residuals of a MIXED block.
static const u32 MIXED_HEAD = 5;

/// Bytes of the longest chunk.
template <class T> DEVICE constexpr u32 max_chunk_bytes() {
    return 1 + BLOCKS * (MIXED_HEAD + 31 * T::CODE_BITS / 8 + T::BYTES + 1) + BLOCKS / 8 + 8;
}
/// In shared memory a tag lies at this offset, so that the blocks after it begin at words.
static const u32 LEAD = 3;
/// Words of a row of values in shared memory. The row of each block has one more, so that threads
/// with the same place in different rows use different banks.
template <class T> DEVICE constexpr u32 row_words() {
    return BLOCK * T::BYTES / static_cast<u32>(sizeof(typename T::Word));
}
/// Bytes of the shared memory for values, for a chunk that is written, or for a copied one: up to
/// 15 bytes before it, and the rest of its last 16 and 16 more behind it.
template <class T> DEVICE constexpr u32 stage_bytes() {
    const u32 values = BLOCKS * (row_words<T>() + 1) * static_cast<u32>(sizeof(typename T::Word));
    const u32 chunk = (15 + max_chunk_bytes<T>() + 15) / 16 * 16 + 16;
    return values > chunk ? values : chunk;
}

template <class T> struct Lattice {
    typename T::Wide step;
    typename T::Wide inverse;
    typename T::Wide limit;
    typename T::Wide bound;
    typename T::Wide weight;
};

template <class T>
DEVICE Lattice<T> lattice_of(double step, double inverse, double limit, double bound,
                             double weight) {
    typedef typename T::Wide Wide;
    return {static_cast<Wide>(step), static_cast<Wide>(inverse), static_cast<Wide>(limit),
            static_cast<Wide>(bound), static_cast<Wide>(weight)};
}

/// Finds the code of a value. Returns whether the value is on the lattice; if not, the code is
/// arbitrary.
template <class T>
DEVICE bool quantise(typename T::Bits bits, const Lattice<T> &lattice, typename T::Code &code) {
    typedef typename T::Wide Wide;
    const Wide x = T::widen(bits);
    // Near the rounder, the bits of floats count up by one per integer.
    const Wide rounded = add(multiply(x, lattice.inverse), T::ROUNDER);
    const Wide nearest = subtract(rounded, T::ROUNDER);
    const Wide error = magnitude(subtract(x, multiply(nearest, lattice.step)));
    code = bits_of(rounded) - bits_of(static_cast<Wide>(T::ROUNDER));
    return magnitude(nearest) <= lattice.limit && error < lattice.bound;
}

/// The value of a code, before it is rounded to the type.
template <class T>
DEVICE typename T::Wide wide_value_of(typename T::Code code, typename T::Wide step) {
    typedef typename T::Wide Wide;
    return multiply(static_cast<Wide>(static_cast<typename T::Signed>(code)), step);
}
template <class T>
DEVICE typename T::Bits value_of(typename T::Code code, typename T::Wide step) {
    return T::narrow(wide_value_of<T>(code, step));
}

template <class T> DEVICE typename T::Code zigzag(typename T::Code d) {
    const typename T::Signed sign = static_cast<typename T::Signed>(d) >> (T::CODE_BITS - 1);
    return d << 1 ^ static_cast<typename T::Code>(sign);
}

/// A thread's block.
template <class T> struct Block {
    /// Codes or residuals; the bits of the value in the places of exceptions.
    typename T::Code slots[BLOCK];
    /// Bit i: value i is an exception.
    u32 exceptions;
    /// Number of values, up to 32; 0 behind the chunk's end.
    u32 n_values;

    /// Mask of the places that have codes or residuals: all 32 in a block without exceptions,
    /// even if it has fewer values.
    DEVICE u32 coded() const {
        if (n_values == 0) {
            return 0;
        }
        return exceptions == 0 ? ~0u : ~exceptions & low_bits(n_values);
    }

    /// The slot with this number, which registers cannot be asked for.
    DEVICE typename T::Code slot(u32 n) const {
        typename T::Code found = 0;
        UNROLL
        for (u32 i = 0; i < BLOCK; i++) {
            found = i == n ? slots[i] : found;
        }
        return found;
    }
};

/// Number of values of a chunk, and of a thread's block.
DEVICE u32 chunk_values(u64 n_values, u64 chunk) {
    return static_cast<u32>(smaller<u64>(n_values - chunk * CHUNK, CHUNK));
}
DEVICE u32 block_values(u32 n_values) {
    const u32 before = thread_id() * BLOCK;
    return n_values <= before ? 0 : smaller(n_values - before, BLOCK);
}

/// Place of a value in the shared memory of values, as a number of values.
template <class T> DEVICE u32 place(u32 i) {
    return i + i / BLOCK * static_cast<u32>(sizeof(typename T::Word)) / T::BYTES;
}

/// Loads a chunk's values to shared memory. Repeats the last value to the end of its block.
template <class T>
DEVICE void load_values(const u8 *from, u32 n_values, const Shared<u8> &stage) {
    typedef typename T::Bits Bits;
    typedef typename T::Word Word;
    if (n_values == CHUNK && reinterpret_cast<u64>(from) % 16 == 0) {
        const u32 per_vector = static_cast<u32>(sizeof(Vector) / sizeof(Word));
        const Shared<Word> words = stage.as<Word>();
        UNROLL
        for (u32 k = 0; k < CHUNK * T::BYTES / 16 / BLOCKS; k++) {
            const u32 i = k * BLOCKS + thread_id();
            const Vector vector = load<Vector>(from + 16 * i);
            const u32 first = i * per_vector, at = first + first / row_words<T>();
            UNROLL
            for (u32 w = 0; w < per_vector; w++) {
                Word word = vector.words[w * (4 / per_vector)];
                if (sizeof(Word) == 8) {
                    word |= static_cast<Word>(static_cast<u64>(vector.words[2 * w % 4 + 1]) << 32);
                }
                words.put(at + w, word);
            }
        }
        return;
    }
    const u32 n = (n_values + BLOCK - 1) / BLOCK * BLOCK;
    for (u32 i = thread_id(); i < n; i += BLOCKS) {
        const u32 from_value = smaller(i, n_values - 1);
        stage.as<Bits>().put(place<T>(i), load<Bits>(from + from_value * T::BYTES));
    }
}

/// Stores a chunk's values from shared memory.
template <class T> DEVICE void store_values(u8 *to, u32 n_values, const Shared<u8> &stage) {
    typedef typename T::Bits Bits;
    typedef typename T::Word Word;
    if (n_values == CHUNK && reinterpret_cast<u64>(to) % 16 == 0) {
        const u32 per_vector = static_cast<u32>(sizeof(Vector) / sizeof(Word));
        const Shared<Word> words = stage.as<Word>();
        UNROLL
        for (u32 k = 0; k < CHUNK * T::BYTES / 16 / BLOCKS; k++) {
            const u32 i = k * BLOCKS + thread_id();
            const u32 first = i * per_vector, at = first + first / row_words<T>();
            Vector vector;
            UNROLL
            for (u32 w = 0; w < per_vector; w++) {
                const Word word = words.get(at + w);
                vector.words[w * (4 / per_vector)] = static_cast<u32>(word);
                if (sizeof(Word) == 8) {
                    vector.words[2 * w % 4 + 1] = static_cast<u32>(static_cast<u64>(word) >> 32);
                }
            }
            store<Vector>(to + 16 * i, vector);
        }
        return;
    }
    for (u32 i = thread_id(); i < n_values; i += BLOCKS) {
        store<Bits>(to + i * T::BYTES, stage.as<Bits>().get(place<T>(i)));
    }
}

/// Words of a thread's row of values, and the values in a word.
template <class T> struct Row {
    Shared<typename T::Word> words;
    static constexpr u32 PER_WORD = static_cast<u32>(sizeof(typename T::Word)) / T::BYTES;

    explicit DEVICE Row(const Shared<u8> &stage)
        : words(stage.as<typename T::Word>().from(thread_id() * (row_words<T>() + 1))) {}

    DEVICE typename T::Bits get(u32 i) const {
        const typename T::Word word = words.get(i / PER_WORD);
        return static_cast<typename T::Bits>(word >> i % PER_WORD * 8 * T::BYTES % 64);
    }
    DEVICE void put(u32 i, typename T::Bits x) const {
        words.template as<typename T::Bits>().put(i, x);
    }
};

/// Encodes the thread's values. Exceptions are multiplied by the weight.
template <class T>
DEVICE void encode_block(const Row<T> &values, const Lattice<T> &lattice, Block<T> &block) {
    typedef typename T::Bits Bits;
    typedef typename T::Code Code;
    block.exceptions = 0;
    UNROLL
    for (u32 i = 0; i < BLOCK; i++) {
        const Bits x = block.n_values > 0 ? values.get(i) : 0;
        Code code;
        const bool is_point = quantise<T>(x, lattice, code);
        block.slots[i] = is_point ? code : static_cast<Code>(x);
        block.exceptions |= static_cast<u32>(!is_point) << i;
    }
    block.exceptions &= low_bits(block.n_values);
    if (block.exceptions != 0 && lattice.weight != 1) {
        UNROLL
        for (u32 i = 0; i < BLOCK; i++) {
            if (block.exceptions >> i & 1) {
                block.slots[i] = weigh<T>(static_cast<Bits>(block.slots[i]), lattice.weight);
            }
        }
    }
}

/// Memory that the threads of a block exchange numbers in. Each collective function below uses an
/// entry of its own, so that one barrier in each suffices.
static const u32 EXCHANGES = 16;
template <class T> struct Exchange {
    /// Numbers of each warp for each function.
    Shared<u32> numbers;
    Shared<typename T::Code> codes;

    DEVICE Shared<u32> numbers_of(u32 n) const { return numbers.from(4 * n); }
    DEVICE Shared<typename T::Code> codes_of(u32 n) const { return codes.from(4 * n); }
};
#define EXCHANGE(T, name)                                                                         \
    SHARED(u32, name##_numbers, 4 * EXCHANGES);                                                   \
    SHARED(typename T::Code, name##_codes, 4 * EXCHANGES);                                        \
    const Exchange<T> name = {name##_numbers, name##_codes}
