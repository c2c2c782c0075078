//! All tests that need nothing but Rust, as one program: what they share (engine, codecs and suite
//! for every type and transport) is compiled once, which is most of the time that testing takes. A
//! file of its own for each claim; `cargo test -p foldwire-tests --test all shrink::` runs one.

mod at_once;
mod automatic;
mod bounds;
mod compressed;
mod conformance;
mod corpus;
mod cost;
mod counts;
mod damage;
mod exact;
mod exceptions;
mod extremes;
mod failures;
mod fences;
mod frames;
mod gaps;
mod golden;
mod inattention;
mod integers;
mod inter_step;
mod lies;
mod limits;
mod looks;
mod messages;
mod mistaken;
mod misuse;
mod notices;
mod one_thread;
mod patterns;
mod published_faults;
mod queue;
mod real_fields;
mod reports;
mod runs;
mod same_bits;
mod shrink;
mod simulated;
mod soak;
mod stack;
mod stress;
mod suite;
mod training;
mod two_levels;
mod under_way;
