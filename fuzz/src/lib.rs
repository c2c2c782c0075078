//! The functions behind the fuzz targets. Each checks claims that must hold for any input.
//!
//! A target is a function of bytes that panics if a claim does not hold. `fuzz_targets/` wraps each
//! function for libFuzzer. The workspace's tests call the same functions with every committed
//! input, on a stable toolchain and without a fuzzer. So an input that once failed becomes a
//! regression test when it is added to `corpus/<target>/`.
//!
//! | module | claim |
//! |---|---|
//! | [`decode`] | any bytes as an encoding: a typed error or values, the same at every kernel level |
//! | [`reduce`] | encoding ⊕ values → values: the same as decoding and then reducing |
//! | [`fold`] | encoding ⊕ values → encoding, with or without storing the result |
//! | [`combine`] | encoding ⊕ encoding → encoding, in either order |
//! | [`decompress`] | any bytes as a compressed array: a typed error, or as many values as it says |
//! | [`array`] | any values of any shape as a compressed array by codec interp: within the bound or the same bits |
//! | [`roundtrip`] | any values: within the bound or the same bits, and sums within the stated worst case |
//! | [`frame`] | any bytes as a message: a header is refused, or emitted again as the same bytes |
//! | [`bundle`] | any bytes as a bundle of segments: refused, or the same segments after it was split and joined |
//! | [`handshake`] | any bytes from a stranger, a rank or rank 0: no panic, memory within the limit, no admission without a proof |
//! | [`field`] | any bytes as a file of values: a usage error, or as many values as the dimensions say |
//! | [`place`] | any environment: a valid place, or an error |
//! | [`survivors`] | any messages of a rank while others shrink: no panic, an end in time, and ranks that count each other as members are in the same group |
//! | [`tcp`] | any bytes on a connection of the TCP backend: no panic, no trust without a proof, and the sent messages in order, or a typed loss |
//! | [`join`] | any input while ranks of the TCP backend connect: no panic, one encoding of each offer, the same decision on all ranks, only expected connections, no stranger trusted |
//! | [`seal`] | any records on an encrypted connection: no panic, the sealed bytes up to the first change, then a typed error, and memory only for received bytes |
//! | [`grow`] | any values in the store through which a group grows: no panic, an end in time, and only members that know the secret |
//! | [`store`] | any bytes at both ends of a store over TCP: no panic, nothing served without a proof, memory within the limit, one encoding of each message |
//! | [`pmi`] | any bytes from a launcher's PMI server: no panic, a rank that can be, and no message with a secret |
//! | [`plan`] | any text as a plan, a bound, speeds or rules: refused, or the same in any order of its words, and kept by an array |
//! | [`sequence`] | any calls, faults and delays on a simulated network: the right result or a typed error, in time |
//!
//! Codecs come from `CodecId::ALL`, so a new codec is fuzzed as soon as it is listed there. Codecs
//! of compressed arrays only are fuzzed by [`array`].

pub mod array;
pub mod bundle;
pub mod combine;
pub mod decode;
pub mod decompress;
pub mod field;
pub mod fold;
pub mod frame;
pub mod grow;
pub mod handshake;
pub mod join;
pub mod place;
pub mod plan;
pub mod pmi;
pub mod reduce;
pub mod roundtrip;
pub mod seal;
pub mod sequence;
pub mod setting;
pub mod store;
pub mod survivors;
pub mod tcp;
pub mod values;

/// A target: its name, and its function. Its binary and its folder in `corpus/` have the same name.
pub type FuzzTarget = (&'static str, fn(&[u8]));

/// Every target, as `[[bin]]` in `Cargo.toml` lists them.
pub const TARGETS: [FuzzTarget; 21] = [
    ("decode", decode::check),
    ("reduce", reduce::check),
    ("fold", fold::check),
    ("combine", combine::check),
    ("decompress", decompress::check),
    ("array", array::check),
    ("roundtrip", roundtrip::check),
    ("frame", frame::check),
    ("bundle", bundle::check),
    ("handshake", handshake::check),
    ("place", place::check),
    ("field", field::check),
    ("sequence", sequence::check),
    ("survivors", survivors::check),
    ("tcp", tcp::check),
    ("seal", seal::check),
    ("join", join::check),
    ("grow", grow::check),
    ("store", store::check),
    ("pmi", pmi::check),
    ("plan", plan::check),
];
