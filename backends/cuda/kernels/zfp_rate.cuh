//! Codec `zfp-rate` (docs/format.md, section 7.7). A thread has 32 values, that is eight blocks of
//! four, which take a whole number of bytes.

static const u32 ZFP_BLOCK = 4;

/// Bits of the fraction and of the exponent of a type.
template <class T> DEVICE constexpr u32 fraction_bits() { return T::BYTES == 4 ? 23 : 52; }
template <class T> DEVICE constexpr u32 exponent_bits() {
    return T::CODE_BITS - 1 - fraction_bits<T>();
}
template <class T> DEVICE constexpr u32 zfp_block_bits(u32 rate) {
    const u32 bits = ZFP_BLOCK * rate;
    return bits < 1 + exponent_bits<T>() ? 1 + exponent_bits<T>() : bits;
}
DEVICE u32 zfp_bytes(u32 n_values, u32 block_bits) {
    return ((n_values + ZFP_BLOCK - 1) / ZFP_BLOCK * block_bits + 7) / 8;
}
/// Planes that are coded: for `f64` none below 2^-1074.
template <class T> DEVICE u32 zfp_planes(u32 exponent) {
    return T::BYTES == 4 ? 32 : smaller(exponent + 55, 64u);
}

/// Half of a signed number, rounded down.
template <class T> DEVICE typename T::Code halved(typename T::Code x) {
    return static_cast<typename T::Code>(static_cast<typename T::Signed>(x) >> 1);
}

/// Writes bits to shared memory, by bytes.
struct BitWriter {
    Shared<u8> stage;
    u32 at;
    u64 held;
    u32 n_held;

    /// Writes up to 32 bits.
    DEVICE void put(u32 bits, u32 n) {
        held |= static_cast<u64>(bits) << n_held;
        n_held += n;
        while (n_held >= 8) {
            stage.put(at++, static_cast<u8>(held));
            held >>= 8;
            n_held -= 8;
        }
    }
    DEVICE void zeros(u32 n) {
        for (; n > 32; n -= 32) {
            put(0, 32);
        }
        put(0, n);
    }
    DEVICE void finish() {
        if (n_held > 0) {
            stage.put(at, static_cast<u8>(held));
        }
    }
};

/// Bits of a block in device memory, up to an end.
struct BitSource {
    const u8 *bytes;
    u32 at;
    u32 end;

    /// The next bits, at most 25, of which those past the end belong to others.
    DEVICE u32 peek() const {
        return load_unaligned(bytes + at / 8, 0u) >> at % 8;
    }
    DEVICE u32 left() const { return end - at; }
};

/// Code of a plane, of which the first `n` coefficients had a 1 before. Updates `n`.
DEVICE u32 zfp_encode_plane(u32 plane, u32 &n, u32 &n_bits) {
    u32 bits = plane & low_bits(n);
    n_bits = n;
    while (n < 4) {
        const u32 has_one = plane >> n != 0;
        bits |= has_one << n_bits++;
        if (!has_one) {
            break;
        }
        while (n < 3) {
            const u32 is_one = plane >> n & 1;
            bits |= is_one << n_bits++;
            if (is_one) {
                break;
            }
            n++;
        }
        n++;
    }
    return bits;
}

/// Inverse; bits past the end are not read.
DEVICE u32 zfp_decode_plane(BitSource &from, u32 &n) {
    const u32 bits = from.peek(), n_left = from.left();
    u32 len = smaller(n, n_left);
    u32 plane = bits & low_bits(len);
    while (len < n_left && n < 4) {
        len++;
        if (!(bits >> (len - 1) & 1)) {
            break;
        }
        while (len < n_left && n < 3) {
            len++;
            if (bits >> (len - 1) & 1) {
                break;
            }
            n++;
        }
        plane |= 1u << n;
        n++;
    }
    from.at += len;
    return plane;
}

/// Exponent e of four values, which are below 2^(e - bias); 0 if they are all 0.
template <class T> DEVICE u32 zfp_exponent(const typename T::Bits *values) {
    typedef typename T::Bits Bits;
    Bits largest = 0;
    UNROLL
    for (u32 i = 0; i < ZFP_BLOCK; i++) {
        largest = larger(largest, static_cast<Bits>(values[i] << 1));
    }
    return largest == 0 ? 0 : static_cast<u32>(largest >> (fraction_bits<T>() + 1)) + 1;
}

/// A value as an integer, rounded towards 0.
template <class T> DEVICE typename T::Code zfp_integer(typename T::Bits bits, u32 exponent) {
    typedef typename T::Code Code;
    const u32 fraction = fraction_bits<T>();
    const Code size = bits & ~T::SIGN, own = size >> fraction;
    const Code significand = (size - (own << fraction)) | static_cast<Code>(own != 0) << fraction;
    const Code highest = significand << (T::CODE_BITS - 2 - fraction);
    const u32 shift = exponent - static_cast<u32>(larger<Code>(own, 1));
    const Code sign = 0 - (bits >> (T::CODE_BITS - 1));
    return ((shift < T::CODE_BITS ? highest >> shift : 0) ^ sign) - sign;
}

template <class T>
DEVICE void zfp_encode_block(const typename T::Bits *values, u32 block_bits, BitWriter &writer) {
    typedef typename T::Code Code;
    const u32 exponent = zfp_exponent<T>(values);
    u32 left = block_bits;
    if (exponent != 0) {
        Code x = zfp_integer<T>(values[0], exponent), y = zfp_integer<T>(values[1], exponent);
        Code z = zfp_integer<T>(values[2], exponent), w = zfp_integer<T>(values[3], exponent);
        x = halved<T>(x + w);
        w -= x;
        z = halved<T>(z + y);
        y -= z;
        x = halved<T>(x + z);
        z -= x;
        w = halved<T>(w + y);
        y -= w;
        w += halved<T>(y);
        y -= halved<T>(w);
        const Code odd = static_cast<Code>(0xaaaaaaaaaaaaaaaa);
        x = (x + odd) ^ odd;
        y = (y + odd) ^ odd;
        z = (z + odd) ^ odd;
        w = (w + odd) ^ odd;
        writer.put(exponent << 1 | 1, 1 + exponent_bits<T>());
        left -= 1 + exponent_bits<T>();
        const u32 last = T::CODE_BITS - zfp_planes<T>(exponent);
        u32 n = 0;
        for (u32 k = T::CODE_BITS; k > last && left > 0; k--) {
            const auto bit = [k](Code digits) { return static_cast<u32>(digits >> (k - 1)) & 1; };
            const u32 plane = bit(x) | bit(y) << 1 | bit(z) << 2 | bit(w) << 3;
            u32 n_bits;
            const u32 bits = zfp_encode_plane(plane, n, n_bits);
            const u32 n_put = smaller(n_bits, left);
            writer.put(bits & low_bits(n_put), n_put);
            left -= n_put;
        }
    }
    writer.zeros(left);
}

/// Reads a block; returns false if no writer writes it.
template <class T>
DEVICE bool zfp_decode_block(BitSource from, typename T::Wide of_sums, typename T::Bits *values) {
    typedef typename T::Code Code;
    typedef typename T::Bits Bits;
    typedef typename T::Wide Wide;
    Code x = 0, y = 0, z = 0, w = 0;
    const u32 header = from.peek() & low_bits(1 + exponent_bits<T>());
    const bool is_zero = (header & 1) == 0;
    const u32 exponent = is_zero ? 0 : header >> 1;
    if (!is_zero) {
        from.at += 1 + exponent_bits<T>();
        u32 n = 0;
        for (u32 k = T::CODE_BITS; k > 0 && from.left() > 0; k--) {
            const Code plane = zfp_decode_plane(from, n);
            x |= (plane & 1) << (k - 1);
            y |= (plane >> 1 & 1) << (k - 1);
            z |= (plane >> 2 & 1) << (k - 1);
            w |= (plane >> 3 & 1) << (k - 1);
        }
    }
    const Code odd = static_cast<Code>(0xaaaaaaaaaaaaaaaa);
    x = (x ^ odd) - odd;
    y = (y ^ odd) - odd;
    z = (z ^ odd) - odd;
    w = (w ^ odd) - odd;
    y += halved<T>(w);
    w -= halved<T>(y);
    y += w;
    w = (w << 1) - y;
    z += x;
    x = (x << 1) - z;
    y += z;
    z = (z << 1) - y;
    w += x;
    x = (x << 1) - w;
    // 2^(e - bias - W + 2), which may exceed the type, in two factors.
    const u32 bias = low_bits(exponent_bits<T>() - 1);
    const Bits power = exponent + bias - (T::CODE_BITS - 2), half = power >> 1;
    const Wide factors[2] = {T::widen(half << fraction_bits<T>()),
                             T::widen((power - half) << fraction_bits<T>())};
    const Code integers[ZFP_BLOCK] = {x, y, z, w};
    UNROLL
    for (u32 i = 0; i < ZFP_BLOCK; i++) {
        const typename T::Signed integer = static_cast<typename T::Signed>(integers[i]);
        const Wide value = multiply(multiply(static_cast<Wide>(integer), factors[0]), factors[1]);
        Bits bits = T::narrow(value);
        if ((bits & ~T::SIGN) == T::INFINITE) {
            bits = (bits & T::SIGN) | T::MAX;
        }
        values[i] = divided<T>(bits, of_sums);
    }
    return is_zero || exponent != 0;
}

template <class T>
DEVICE void encode_zfp_rate(const u8 *own, u64 n_values, const Slots &slots, double weight_of_own,
                            u64 rate) {
    typedef typename T::Bits Bits;
    const u64 chunk = block_id();
    if (chunk * CHUNK >= n_values) {
        return;
    }
    SHARED(u8, stage, stage_bytes<T>());
    const typename T::Wide weight = static_cast<typename T::Wide>(weight_of_own);
    const u32 n = chunk_values(n_values, chunk), n_own = block_values(n);
    const u8 *const from = own + chunk * CHUNK * T::BYTES;
    load_values<T>(from, n, stage);
    barrier();
    const Row<T> row(stage);
    weigh_row(row, n_own, weight);
    Bits values[BLOCK];
    bool is_infinite = false;
    UNROLL
    for (u32 i = 0; i < BLOCK; i++) {
        Bits x = n_own > 0 ? row.get(i) : 0;
        // The fourth value of a short block is its first.
        if (i % ZFP_BLOCK == ZFP_BLOCK - 1 && i >= n_own) {
            x = values[i - i % ZFP_BLOCK];
        }
        values[i] = x;
        is_infinite |= static_cast<Bits>(x & ~T::SIGN) >= T::INFINITE;
    }
    const u32 block_bits = zfp_block_bits<T>(static_cast<u32>(rate));
    const u32 n_bytes = zfp_bytes(n, block_bits);
    // All have read their values when this barrier is over.
    if (barrier_any(is_infinite && n_own > 0) || n_bytes >= n * T::BYTES) {
        store_unchanged<T>(from, n, weight, chunk, slots, FORM_AT);
        return;
    }
    BitWriter writer = {stage, CODED_AT + thread_id() * block_bits, 0, 0};
    UNROLL
    for (u32 i = 0; i < BLOCK; i += ZFP_BLOCK) {
        if (i < n_own) {
            zfp_encode_block<T>(values + i, block_bits, writer);
        }
    }
    writer.finish();
    const u32 end = CODED_AT + n_bytes;
    if (thread_id() == 0) {
        for (u32 i = 0; i < CODED_AT; i++) {
            stage.put(i, i == FORM_AT ? CODED : 0);
        }
        for (u32 i = end; i % 16 != 0; i++) {
            stage.put(i, 0);
        }
    }
    store_chunk(stage, end, slots.slot(chunk));
    report_coded(n_bytes, chunk, slots);
}

template <class T>
DEVICE void decode_zfp_rate(const u8 *src, u64 src_bytes, u8 *dst, u64 n_values, u8 *outcome,
                            double weight, u64 divisor) {
    typedef typename T::Bits Bits;
    typedef typename T::Wide Wide;
    const u64 chunk = block_id();
    Payload payload = {};
    if (!open_coded_payload<T>(src, src_bytes, n_values, outcome, payload)) {
        return;
    }
    const double parameter = float_of(payload.step);
    const u32 rate = parameter <= T::CODE_BITS ? static_cast<u32>(parameter) : 0;
    if (rate == 0 || static_cast<double>(rate) != parameter) {
        return report_undecodable(outcome);
    }
    if (chunk * CHUNK >= n_values) {
        return;
    }
    const u32 n = chunk_values(n_values, chunk), n_own = block_values(n);
    const Wide of_sums = divisor_of_sums<T>(divisor, static_cast<Wide>(weight));
    u8 *const to = dst + chunk * CHUNK * T::BYTES;
    CodedChunk opened = {};
    if (!open_coded_chunk<T>(payload, chunk, n, opened)) {
        return report_undecodable(outcome);
    }
    if (opened.form == STORED) {
        return load_unchanged<T>(opened, n, to, of_sums);
    }
    const u32 block_bits = zfp_block_bits<T>(rate);
    const u32 n_last = (n + ZFP_BLOCK - 1) / ZFP_BLOCK * block_bits % 8;
    if (opened.n_bytes != zfp_bytes(n, block_bits) ||
        (n_last != 0 && load<u8>(opened.bytes + opened.n_bytes - 1) >> n_last != 0)) {
        return report_undecodable(outcome);
    }
    SHARED(u8, stage, stage_bytes<T>());
    const Row<T> row(stage);
    const u8 *const bytes = opened.bytes + thread_id() * block_bits;
    bool is_bad = false;
    UNROLL
    for (u32 i = 0; i < BLOCK; i += ZFP_BLOCK) {
        if (i < n_own) {
            Bits values[ZFP_BLOCK];
            const u32 at = i / ZFP_BLOCK * block_bits;
            is_bad |= !zfp_decode_block<T>({bytes, at, at + block_bits}, of_sums, values);
            UNROLL
            for (u32 k = 0; k < ZFP_BLOCK; k++) {
                row.words.put(i + k, values[k]);
            }
        }
    }
    if (barrier_any(is_bad)) {
        return report_undecodable(outcome);
    }
    store_values<T>(to, n, stage);
}

#define ZFP_RATE_KERNELS(T, name)                                                                 \
    KERNEL(zfp_rate_encode_##name, BLOCKS, 2,                                                     \
           (const u8 *own, u64 n_values, u8 *reports, u8 *slots, u64 slot_bytes,                  \
            double weight_of_own, u64 rate),                                                      \
           {                                                                                      \
               encode_zfp_rate<T>(own, n_values, {reports, slots, slot_bytes}, weight_of_own,     \
                                  rate);                                                          \
           })                                                                                     \
    KERNEL(zfp_rate_decode_##name, BLOCKS, 2,                                                     \
           (const u8 *src, u64 src_bytes, u8 *dst, u64 n_values, u8 *outcome, double weight,      \
            u64 divisor),                                                                         \
           { decode_zfp_rate<T>(src, src_bytes, dst, n_values, outcome, weight, divisor); })
