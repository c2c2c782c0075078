//! The bodies of the fuzz targets: what must hold for any input at all.
//!
//! A target is a function of bytes that panics if a claim does not hold. `fuzz_targets/` wraps each
//! for libFuzzer; the workspace's tests call the same functions with every committed input, without
//! a fuzzer and on a stable toolchain. So an input that once failed is a regression test by lying
//! in `corpus/<target>/`.
//!
//! | module | claim |
//! |---|---|
//! | [`decode`] | any bytes as an encoding: a typed error or values, the same at every kernel level |
//! | [`reduce`] | the same for encoding ⊕ floats → floats, which is decoding and operating |
//! | [`fold`] | the same for encoding ⊕ floats → encoding, and storing on the way |
//! | [`combine`] | the same for encoding ⊕ encoding → encoding, in either order |
//! | [`decompress`] | any bytes as a compressed array: a typed error, or as many values as it says |
//! | [`roundtrip`] | any values: within the bound or the same bits, and sums within the stated worst case |
//! | [`frame`] | any bytes as a message: a header is refused, or emitted again as the same bytes |
//! | [`bundle`] | any bytes as a bundle of segments: refused, or the same segments after it was split and joined |
//! | [`handshake`] | any bytes from a stranger, a rank or rank 0: no panic, no more memory than promised, nobody let in without a proof |
//! | [`field`] | any bytes as a file of values: an error of use, or as many values as the dimensions say |
//! | [`place`] | any environment: a place that exists, or an error |
//! | [`survivors`] | any messages of a rank while others shrink: no panic, an end in time, and ranks that count each other in are in the same group |
//! | [`tcp`] | any bytes on a connection of the TCP backend: no panic, nobody trusted without a proof, and messages that were sent, in order, or a typed loss |
//! | [`join`] | anything that ranks of the TCP backend hear while they come together: no panic, one spelling of each offer, one answer on all ranks, only connections that are waited for, no stranger trusted |
//! | [`seal`] | any records on an encrypted connection: no panic, what was sealed as far as nobody had a hand in it, then a typed error, and memory only for what is here |
//! | [`sequence`] | any calls, faults and delays on a simulated network: the right result or a typed error, in time |
//!
//! Codecs come from `CodecId::ALL`, so a new one is fuzzed by being listed there.

pub mod bundle;
pub mod combine;
pub mod decode;
pub mod decompress;
pub mod field;
pub mod fold;
pub mod frame;
pub mod handshake;
pub mod join;
pub mod place;
pub mod reduce;
pub mod roundtrip;
pub mod seal;
pub mod sequence;
pub mod setting;
pub mod survivors;
pub mod tcp;
pub mod values;

/// A target: its name, which is that of its binary and of its folder in `corpus/`, and its body.
pub type FuzzTarget = (&'static str, fn(&[u8]));

/// Every target, as `[[bin]]` in `Cargo.toml` lists them.
pub const TARGETS: [FuzzTarget; 16] = [
    ("decode", decode::check),
    ("reduce", reduce::check),
    ("fold", fold::check),
    ("combine", combine::check),
    ("decompress", decompress::check),
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
];
