//! Agreement of all ranks, in `MPI_Init`, whether the program's messages are compressed.
//!
//! A receiver must open every compressed message. So the ranks refuse if a function of any of them
//! could receive one unopened. Such functions are probes, which would tell the size of the
//! compressed message, functions that Foldwire does not export, and functions that are called past
//! Foldwire. The program's files have the names of the functions that they call.

use std::ffi::CStr;

use foldwire::op::OpCode;

use crate::compressed_message::Mark;
use crate::ffi::library::{MpiApi, MpiErrorCode};
use crate::ffi::message_calls::NAMES;
use crate::ffi::objects::each_name;
use crate::ffi::original;
use crate::messages::{MessagePlan, Messages};
use crate::obstacle::Obstacle;
use crate::settings::{Settings, TransferMode};

/// Messages of fewer bytes are passed on between nodes. Below that, MPI libraries send a message
/// over TCP without waiting for the receiver.
const MIN_BYTES: usize = 64 << 10;

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
            fill: settings.fill,
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
        let found = Obstacle::of_name(name);
        if found as u8 > worst as u8 {
            worst = found;
        }
    });
    worst
}
