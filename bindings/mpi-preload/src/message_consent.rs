//! Agreement of all ranks, in `MPI_Init`, whether the program's messages travel as envelopes.
//!
//! A receiver must open every envelope. So the ranks refuse if any of them has a function that
//! could receive one unopened: a probe, which would tell the size of the envelope, another function
//! that Foldwire does not export, or a function that is called past Foldwire. The program's files
//! have the names of the functions that they call.

use std::ffi::CStr;

use foldwire::op::OpCode;

use crate::envelope::Mark;
use crate::ffi::library::{MpiApi, MpiErrorCode};
use crate::ffi::message_calls::NAMES;
use crate::ffi::objects::each_name;
use crate::ffi::original;
use crate::messages::{MessagePlan, Messages};
use crate::settings::{Settings, TransferMode};

/// Messages of fewer bytes are passed on between nodes. Below that, MPI libraries send a message
/// over TCP without waiting for the receiver.
const MIN_BYTES: usize = 64 << 10;

/// Reason why all messages are passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Obstacle {
    None,
    Fortran,
    Probe,
    Function,
    Profiled,
    InFront,
    Library,
}

impl Obstacle {
    const ALL: [Self; 7] = [
        Self::None,
        Self::Fortran,
        Self::Probe,
        Self::Function,
        Self::Profiled,
        Self::InFront,
        Self::Library,
    ];

    const fn words(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Fortran => "the program uses Open MPI's Fortran functions",
            Self::Probe => "the program has probes (MPI_Probe or a variant)",
            Self::Function => {
                "the program has functions that receive messages and that Foldwire does not know \
                 (MPI_Isendrecv, MPI_Request_get_status_all, large counts, or a variant)"
            }
            Self::Profiled => "the program or a tool calls functions PMPI_ that receive messages",
            Self::InFront => "another library comes first and has functions for messages",
            Self::Library => "the MPI library lacks functions",
        }
    }
}

/// Agrees with all ranks. All of them call this in `MPI_Init` with equal settings. Returns `None`
/// if messages are passed on. `has_fortran` tells that a library of Fortran functions is loaded
/// whose calls Foldwire does not see.
pub(crate) fn agree(
    mpi: &'static dyn MpiApi,
    settings: &Settings,
    (rank, size): (usize, usize),
    has_fortran: bool,
) -> Result<Option<Messages>, MpiErrorCode> {
    if settings.messages == TransferMode::Off {
        return Ok(None);
    }
    let drawn = drawn_mark(rank);
    let own = match drawn {
        None => Obstacle::Library,
        Some(_) => obstacle(mpi, has_fortran),
    };
    let world = mpi.handles().comm_world;
    // Rank 0 has drawn the mark. The other ranks give the smallest numbers.
    let [high, low] = drawn.unwrap_or_default();
    let mut largest = [own as i64, high, low];
    mpi.all_reduce(world, &mut largest, OpCode::Max)?;
    let [code, high, low] = largest;
    let near = match settings.messages_min_bytes {
        Some(_) => Vec::new(),
        None => {
            let mut nodes = vec![i64::MAX; size];
            nodes[rank] = mpi.lowest_rank_on_node(world, rank)?;
            mpi.all_reduce(world, &mut nodes, OpCode::Min)?;
            nodes.iter().map(|&node| node == nodes[rank]).collect()
        }
    };
    let obstacle = Obstacle::ALL.into_iter().find(|it| *it as i64 == code);
    if obstacle != Some(Obstacle::None) {
        if rank == 0 {
            let words = obstacle.map_or("", Obstacle::words);
            eprintln!("foldwire: all messages go to the MPI library: {words}");
        }
        return Ok(None);
    }
    let mut mark = [0; 16];
    mark[..8].copy_from_slice(&high.to_le_bytes());
    mark[8..].copy_from_slice(&low.to_le_bytes());
    Ok(Some(Messages::new(
        mpi,
        MessagePlan {
            mode: settings.messages,
            spacing: settings.spacing,
            min_bytes: settings.messages_min_bytes.unwrap_or(MIN_BYTES),
            mark: Mark(mark),
            near,
            rank,
            debug: settings.debug,
        },
    )))
}

/// Random numbers on rank 0, the smallest ones on other ranks; `None` without a source of them.
fn drawn_mark(rank: usize) -> Option<[i64; 2]> {
    if rank > 0 {
        return Some([i64::MIN; 2]);
    }
    let mut source = std::fs::File::open("/dev/urandom").ok()?;
    let mut drawn = [[0; 8]; 2];
    for bytes in &mut drawn {
        std::io::Read::read_exact(&mut source, bytes).ok()?;
    }
    Some(drawn.map(i64::from_le_bytes))
}

/// Obstacle on this rank.
fn obstacle(mpi: &dyn MpiApi, has_fortran: bool) -> Obstacle {
    if !mpi.has_statuses() {
        return Obstacle::Library;
    }
    if has_fortran {
        return Obstacle::Fortran;
    }
    let is_in_front = |name: &&CStr| original::in_front(name).is_some();
    if NAMES.iter().any(is_in_front) {
        return Obstacle::InFront;
    }
    let mut worst = Obstacle::None;
    each_name(&mut |name| {
        let found = obstacle_in(name);
        if found as u8 > worst as u8 {
            worst = found;
        }
    });
    worst
}

/// Obstacle that a name of a function means, in C or in Fortran.
fn obstacle_in(name: &[u8]) -> Obstacle {
    let name = name.to_ascii_lowercase();
    let has = |part: &str| name.windows(part.len()).any(|it| it == part.as_bytes());
    if !has("mpi_") {
        Obstacle::None
    } else if has("pmpi_") && ["recv", "wait", "test", "get_status"].into_iter().any(has) {
        Obstacle::Profiled
    } else if ["mpi_probe", "mpi_iprobe", "mpi_mprobe", "mpi_improbe"].into_iter().any(has) {
        Obstacle::Probe
    } else if ["mpi_isendrecv", "mpi_mrecv", "mpi_imrecv", "mpi_request_get_status_a"]
        .into_iter()
        .any(has)
        || has("mpi_request_get_status_s")
        || has("recv") && (name.ends_with(b"_c") || has("_large"))
    {
        Obstacle::Function
    } else {
        Obstacle::None
    }
}
