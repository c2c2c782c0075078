//! The command line of `foldwire p2p`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use foldwire::Bound;
use foldwire_fields::usage::{UsageError, usage};
use serde::Serialize;

use super::bench::below;
use super::network::NetworkArgs;
use crate::coding::CodecArg;
use crate::sizes::{Size, SizeList};
use crate::values::{self, LinkRate};

const EXAMPLES: &str = "\
Examples:
  foldwire p2p
      Between 2 threads of this process, at the speed of memory.
  mpirun -n 2 foldwire p2p --backend mpi
      Compared with MPI_Send and MPI_Recv, MPI_Sendrecv and MPI_Barrier.
  foldwire p2p pingpong --link 1gbit --sizes 64K:16M:4 --bound rel:1e-3,rel:1e-5
      Long messages over slow links, two bounds beside each other.
  foldwire p2p pingpong --link 1gbit --sizes 32K:32M:4 --codec mpc,zfp-rate:4,zfp-rate:8
      The codecs of MPC-OPT and ZFP-OPT.
  foldwire p2p pingpong sendrecv --exact-below 4K --csv > p2p.csv
      Messages of fewer than 4096 bytes are not compressed; the output is for a spreadsheet.
  foldwire launch -n 2 --no-prefix -- foldwire p2p --backend libfabric --json > p2p.json
      Two processes over libfabric; rank 0's stdout holds one JSON object.
  foldwire launch -n 2 --no-prefix -- foldwire p2p --backend tcp
      Two processes over TCP sockets.

pingpong, as osu_latency and the PingPong of IMB: ranks 0 and 1 send an array back and forth. The
time is half of the round trip. MB/s are the size / time, with one message at a time (osu_bw has
many in progress).
sendrecv, as osu_bibw and the Sendrecv of IMB: every rank sends to the next rank and receives from
the previous one. The time is the slowest rank's. MB/s count the sent and the received bytes of a
rank, as in IMB.
barrier, as osu_barrier: the slowest rank's time.

A measurement consists of many messages in a row, each from another offset in the data. Contestants
take turns, with one measurement each per round. The table has the median over rounds, the fastest
round, and the 99th percentile.

Received values are compared with sent ones before and after the rounds. The exit code is 1 if one
exceeds its bound, or if an uncompressed or MPI message changed a bit.";

/// Options of `foldwire p2p`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct P2pArgs {
    /// Tests to run
    #[arg(value_enum, value_delimiter = ',', default_values_t = P2pTest::ALL)]
    pub what: Vec<P2pTest>,

    /// The backend and its network.
    #[command(flatten)]
    pub network: NetworkArgs,

    /// Rate of each rank's link, each way: 10gbit, 250MB/s, … [default: the speed of memory for
    /// threads, unknown for others]
    #[arg(long, value_name = "RATE")]
    pub link: Option<LinkRate>,

    /// Sizes of a message in bytes: a list of sizes and of ranges FIRST:LAST (factor 2) or
    /// FIRST:LAST:FACTOR
    #[arg(long, value_name = "SIZES", default_value = "4:4M:4", value_parser = message_sizes)]
    pub sizes: SizeList,

    /// Error bounds, each a contestant of its own: rel:X times the message's value range, abs:X, or
    /// psnr:X in dB
    #[arg(long, value_name = "KIND:X", value_delimiter = ',', default_value = "rel:1e-3",
        value_parser = values::bound)]
    pub bound: Vec<Bound>,

    /// Codecs instead of fz-light, with a setting as in zfp-rate:8; each is a contestant of its
    /// own, and those that keep a bound have one for each --bound
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub codec: Vec<CodecArg>,

    /// Messages of fewer bytes are not compressed, even with a bound
    #[arg(long, value_name = "SIZE", value_parser = below)]
    pub exact_below: Option<usize>,

    /// Values to send: .f32, .f64, .f16, .bf16 (raw little-endian) or .npy, converted to f32, cut
    /// or repeated [default: built-in waves with a little noise]
    #[arg(long, value_name = "FILE")]
    pub field: Option<PathBuf>,

    /// Number of counted rounds
    #[arg(long, value_name = "N", default_value_t = 31, value_parser = values::repeat)]
    pub repeat: usize,

    /// Print one JSON object on stdout instead of the table
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,

    /// Print comma-separated values on stdout instead of the table: a line of column names, then a
    /// line for each row
    #[arg(long)]
    pub csv: bool,
}

impl P2pArgs {
    /// The tests to run, each once.
    pub fn whats(&self) -> Vec<P2pTest> {
        P2pTest::ALL.into_iter().filter(|what| self.what.contains(what)).collect()
    }
}

/// A test of point-to-point messages, or of the barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum P2pTest {
    /// ranks 0 and 1 send an array back and forth
    #[value(name = "pingpong")]
    PingPong,
    /// every rank sends to the next and receives from the previous one, all at once
    #[value(name = "sendrecv")]
    SendRecv,
    /// every rank waits for all
    Barrier,
}

impl P2pTest {
    /// All tests, in the order of the table.
    pub const ALL: [Self; 3] = [Self::PingPong, Self::SendRecv, Self::Barrier];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::PingPong => "pingpong",
            Self::SendRecv => "sendrecv",
            Self::Barrier => "barrier",
        }
    }
}

/// Parses sizes of messages whose values MPI can count.
fn message_sizes(text: &str) -> Result<SizeList, UsageError> {
    const MOST: usize = 4 << 30;
    let sizes: SizeList = text.parse()?;
    match sizes.n_bytes().iter().find(|&&n| n > MOST) {
        Some(&n) => Err(usage!("{} is too much; take 4G at most", Size(n))),
        None => Ok(sizes),
    }
}
