//! Carrying a call out that was taken: which of core's collectives it is, on which buffers.

use std::borrow::Cow;
use std::ffi::c_int;

use foldwire::op::OpCode;
use foldwire::schedule::Collective;
use foldwire::transport::Rank;
use foldwire::{Communicator, Op, Plan, Report};
use foldwire_messaging::Endpoint;

use crate::call::{Call, Checked, Passed, Seat};
use crate::ffi::library::{Code, Mpi};
use crate::ffi::memory::{Areas, Plain};
use crate::net::Wire;
use crate::signature::Base;

/// Why a call that was taken failed.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{0}")]
    Foldwire(#[from] foldwire::Error),
    #[error("MPI's error {0} while it copied the program's array")]
    Mpi(Code),
    #[error("this rank sends another number of values than it is to receive of itself")]
    Count,
}

impl From<Code> for Failure {
    fn from(code: Code) -> Self {
        Self::Mpi(code)
    }
}

/// Carries a call out on values of this base.
pub(crate) fn run(
    comm: &mut Communicator<Endpoint<Wire>>,
    mpi: &dyn Mpi,
    key: c_int,
    call: &Call,
    checked: &Checked,
    base: Base,
    plan: &Plan,
) -> Result<Report, Failure> {
    let inside = Inside { mpi, key, call, checked, plan };
    match base {
        Base::F32 => inside.run::<f32>(comm),
        Base::F64 => inside.run::<f64>(comm),
        Base::I32 => inside.run::<i32>(comm),
        Base::I64 => inside.run::<i64>(comm),
        Base::Other => unreachable!("other types are passed on"),
    }
}

struct Inside<'c> {
    mpi: &'c dyn Mpi,
    key: c_int,
    call: &'c Call,
    checked: &'c Checked,
    plan: &'c Plan,
}

fn operation<T>(op: Option<OpCode>) -> Op<'static, T> {
    match op {
        Some(OpCode::Min) => Op::Min,
        Some(OpCode::Max) => Op::Max,
        Some(OpCode::Prod) => Op::Prod,
        _ => Op::Sum,
    }
}

/// Makes what a rank sends as long as all ranks expect, or they would wait; whether it was.
fn fit<T: Plain>(send: &mut Cow<'_, [T]>, n_values: usize) -> bool {
    let fits = send.len() == n_values;
    if !fits {
        send.to_mut().resize(n_values, T::default());
    }
    fits
}

impl Inside<'_> {
    fn run<T: Plain>(&self, comm: &mut Communicator<Endpoint<Wire>>) -> Result<Report, Failure> {
        let Self { mpi, key, call, checked, plan } = *self;
        let seat = checked.seat;
        let op = operation::<T>(checked.op);
        let (is_root, in_place) = (seat.is_root(), checked.is_in_place);
        let root = Rank::new(seat.root.unwrap_or(0));
        let (n_send, n_recv) = (call.send.count as usize, call.recv.count as usize);
        let mut fits = true;
        let report = match call.collective {
            Collective::Broadcast => {
                let data = call.received(mpi, key, n_recv)?;
                data.write::<T, _>(mpi, is_root, |data| comm.broadcast(data, root, plan))?
            }
            Collective::AllReduce => {
                let recv = call.received(mpi, key, n_recv)?;
                if in_place {
                    recv.write::<T, _>(mpi, true, |data| comm.all_reduce(data, op, plan))?
                } else {
                    let send = call.sent(mpi, key, n_send)?;
                    let send = send.read::<T>(mpi, send.overlaps(mpi, &recv)?)?;
                    recv.write::<T, _>(mpi, false, |recv| {
                        comm.all_reduce_into(&send, recv, op, plan)
                    })?
                }
            }
            Collective::Reduce if is_root => {
                let recv = call.received(mpi, key, n_recv)?;
                if in_place {
                    recv.write::<T, _>(mpi, true, |data| {
                        comm.reduce_in_place(data, op, root, plan)
                    })?
                } else {
                    let send = call.sent(mpi, key, n_send)?;
                    let send = send.read::<T>(mpi, send.overlaps(mpi, &recv)?)?;
                    recv.write::<T, _>(mpi, false, |recv| comm.reduce(&send, recv, op, root, plan))?
                }
            }
            Collective::Reduce => {
                let send = call.sent(mpi, key, n_send)?;
                comm.reduce(&send.read::<T>(mpi, false)?, &mut [], op, root, plan)
            }
            Collective::ReduceScatter => return self.reduce_scatter::<T>(comm, op),
            _ if call.recv.places.is_some() || call.send.places.is_some() => {
                return self.in_shares::<T>(comm, root);
            }
            Collective::AllGather => {
                let recv = call.received(mpi, key, n_recv * seat.size)?;
                if in_place {
                    recv.write::<T, _>(mpi, true, |data| comm.all_gather_in_place(data, plan))?
                } else {
                    let send = call.sent(mpi, key, n_send)?;
                    let mut send = send.read::<T>(mpi, send.overlaps(mpi, &recv)?)?;
                    fits = fit(&mut send, recv.n_values::<T>() / seat.size);
                    recv.write::<T, _>(mpi, false, |recv| comm.all_gather(&send, recv, plan))?
                }
            }
            Collective::AllToAll => {
                let recv = call.received(mpi, key, n_recv * seat.size)?;
                if in_place {
                    recv.write::<T, _>(mpi, true, |data| comm.all_to_all_in_place(data, plan))?
                } else {
                    let send = call.sent(mpi, key, n_send * seat.size)?;
                    let mut send = send.read::<T>(mpi, send.overlaps(mpi, &recv)?)?;
                    fits = fit(&mut send, recv.n_values::<T>());
                    recv.write::<T, _>(mpi, false, |recv| comm.all_to_all(&send, recv, plan))?
                }
            }
            Collective::Gather if is_root => {
                let recv = call.received(mpi, key, n_recv * seat.size)?;
                // In place, the root's share lies where it is to be.
                let send = match in_place {
                    true => call.received_at(mpi, key, n_recv * seat.rank, n_recv)?,
                    false => call.sent(mpi, key, n_send)?,
                };
                let copy = send.overlaps(mpi, &recv)?;
                let (mut send, count) = (send.read::<T>(mpi, copy)?, recv.n_values::<T>());
                fits = fit(&mut send, count / seat.size);
                recv.write::<T, _>(mpi, true, |recv| comm.gather(count, &send, recv, root, plan))?
            }
            Collective::Gather => {
                let send = call.sent(mpi, key, n_send)?;
                let count = send.n_values::<T>() * seat.size;
                comm.gather(count, &send.read::<T>(mpi, false)?, &mut [], root, plan)
            }
            Collective::Scatter if is_root => {
                let send = call.sent(mpi, key, n_send * seat.size)?;
                let (count, n_own) = (send.n_values::<T>(), send.n_values::<T>() / seat.size);
                let recv = if in_place { None } else { Some(call.received(mpi, key, n_recv)?) };
                fits = recv.as_ref().is_none_or(|recv| recv.n_values::<T>() == n_own);
                if let Some(recv) = recv.filter(|_| fits) {
                    let send = send.read::<T>(mpi, send.overlaps(mpi, &recv)?)?;
                    recv.write::<T, _>(mpi, false, |recv| {
                        comm.scatter(count, &send, recv, root, plan)
                    })?
                } else {
                    // The root keeps its share where it lies.
                    let mut own = vec![T::default(); n_own];
                    comm.scatter(count, &send.read::<T>(mpi, false)?, &mut own, root, plan)
                }
            }
            Collective::Scatter => {
                let recv = call.received(mpi, key, n_recv)?;
                let count = recv.n_values::<T>() * seat.size;
                recv.write::<T, _>(mpi, false, |recv| comm.scatter(count, &[], recv, root, plan))?
            }
            _ => unreachable!("only collectives of the table are taken"),
        };
        if fits { Ok(report?) } else { Err(Failure::Count) }
    }

    fn reduce_scatter<T: Plain>(
        &self,
        comm: &mut Communicator<Endpoint<Wire>>,
        op: Op<'_, T>,
    ) -> Result<Report, Failure> {
        let Self { mpi, key, call, checked, plan } = *self;
        let seat = checked.seat;
        let (whole, own) = match call.recv.counts(seat.size).ok().flatten() {
            Some(counts) => (counts.iter().sum(), counts[seat.rank]),
            None => (call.recv.count as usize * seat.size, call.recv.count as usize),
        };
        // In place the whole array lies where the result is to begin, and the rest of it stays as
        // it is: MPI libraries leave it so.
        let recv = call.received(mpi, key, own)?;
        let send = match checked.is_in_place {
            true => call.received(mpi, key, whole)?,
            false => call.sent(mpi, key, whole)?,
        };
        let send = send.read::<T>(mpi, checked.is_in_place || send.overlaps(mpi, &recv)?)?;
        let counts = checked.shares::<T>();
        let report = recv.write::<T, _>(mpi, false, |recv| match &counts {
            None => comm.reduce_scatter(&send, recv, op, plan),
            Some(counts) => comm.reduce_scatter_v(&send, recv, counts, op, plan),
        })?;
        Ok(report?)
    }

    /// All-gathers, gathers, scatters and all-to-alls whose shares differ.
    fn in_shares<T: Plain>(
        &self,
        comm: &mut Communicator<Endpoint<Wire>>,
        root: Rank,
    ) -> Result<Report, Failure> {
        let Self { mpi, key, call, checked, plan } = *self;
        let Seat { rank, size, .. } = checked.seat;
        let (is_root, in_place) = (checked.seat.is_root(), checked.is_in_place);
        let shares = checked.shares::<T>().unwrap_or_default();
        let all = |side: &Passed| side.areas(mpi, key, 0..size);
        let report = match call.collective {
            Collective::AllGather if in_place => {
                all(&call.recv)?.write::<T, _>(mpi, true, |data| {
                    comm.all_gather_v_in_place(data, &shares, plan)
                })?
            }
            Collective::AllGather => {
                let (send, recv) = (all(&call.send)?, all(&call.recv)?);
                let mut send = send.read::<T>(mpi, send.overlaps(mpi, &recv)?)?;
                let fits = fit(&mut send, shares[rank]);
                let report = recv.write::<T, _>(mpi, false, |recv| {
                    comm.all_gather_v(&send, recv, &shares, plan)
                })?;
                if !fits {
                    return Err(Failure::Count);
                }
                report
            }
            Collective::Gather if is_root => {
                let recv = all(&call.recv)?;
                // In place, the root's share lies where it is to be.
                let send = match in_place {
                    true => call.recv.areas(mpi, key, rank..rank + 1)?,
                    false => all(&call.send)?,
                };
                let send = send.read::<T>(mpi, send.overlaps(mpi, &recv)?)?;
                recv.write::<T, _>(mpi, true, |recv| {
                    comm.gather_v(&shares, &send, recv, root, plan)
                })?
            }
            Collective::Gather => {
                let send = all(&call.send)?;
                comm.gather_v(&shares, &send.read::<T>(mpi, false)?, &mut [], root, plan)
            }
            // In place, the root keeps its share where it lies.
            Collective::Scatter if in_place => {
                let (send, mut own) = (all(&call.send)?, vec![T::default(); shares[rank]]);
                comm.scatter_v(&shares, &send.read::<T>(mpi, false)?, &mut own, root, plan)
            }
            Collective::Scatter => {
                let recv = all(&call.recv)?;
                let send = if is_root { all(&call.send)? } else { Areas::default() };
                let send = send.read::<T>(mpi, send.overlaps(mpi, &recv)?)?;
                recv.write::<T, _>(mpi, false, |recv| {
                    comm.scatter_v(&shares, &send, recv, root, plan)
                })?
            }
            _ => {
                let from = if in_place { &call.recv } else { &call.send };
                let counts = |side: &Passed| -> Vec<usize> {
                    let (bytes, _) = side.bytes(mpi, key, size).unwrap_or_default();
                    bytes.into_iter().map(|n_bytes| n_bytes / size_of::<T>()).collect()
                };
                let (sent, received) = (counts(from), counts(&call.recv));
                let (send, recv) = (all(from)?, all(&call.recv)?);
                let send = send.read::<T>(mpi, send.overlaps(mpi, &recv)?)?;
                recv.write::<T, _>(mpi, false, |recv| {
                    comm.all_to_all_v(&send, &sent, recv, &received, plan)
                })?
            }
        };
        Ok(report?)
    }
}
