//! All-reduces between two endpoints on one thread, in static memory: no `std`, no allocator.
//!
//! This is the code that an embedded program needs: a static pool of frames ([`pool`]), a
//! [`Transport`] over queues of fixed capacity ([`loopback`]), and a loop that polls. The program
//! next to this library calls only [`run`]. Building it proves that core links without `std`.
//!
//! [`Transport`]: foldwire::Transport
#![no_std]

pub mod loopback;
pub mod pool;

use core::fmt::{self, Write};
use core::task::Poll;
use foldwire::{Bound, Communicator, Config, Error, Float, Op, Plan, Report};
use loopback::{LANES, Loopback, LoopbackNet};
use static_cell::ConstStaticCell;

/// Number of values in an array.
pub const N_VALUES: usize = 10_000;

/// A call has hung after this many polls: it needs a few hundred.
const MAX_POLLS: usize = 100_000;

static F32: ConstStaticCell<[[f32; N_VALUES]; 2]> = ConstStaticCell::new([[0.0; N_VALUES]; 2]);
static F64: ConstStaticCell<[[f64; N_VALUES]; 2]> = ConstStaticCell::new([[0.0; N_VALUES]; 2]);

/// Runs every check and reports each one to `out`. Returns the exit code of the program: 0 if all
/// passed. The checks take the static memory, so only the first call in a process can succeed.
pub fn run(out: &mut dyn Write) -> i32 {
    match checks(out) {
        Ok(()) => 0,
        Err(failure) => {
            // The exit code reports the failure too.
            let _ = writeln!(out, "failed: {failure}");
            1
        }
    }
}

/// Reason of a failed check.
#[derive(Clone, Copy, Debug, PartialEq)]
enum CheckFailure {
    StaticsTaken,
    Call(Error),
    Hung,
    RanksDiffer { index: usize },
    OutOfBound { index: usize, error: f64, allowed: f64 },
    NotCompressed { ratio: f64 },
    Output,
}

impl fmt::Display for CheckFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::StaticsTaken => f.write_str("the static memory is already taken"),
            Self::Call(error) => error.fmt(f),
            Self::Hung => write!(f, "not finished after {MAX_POLLS} polls"),
            Self::RanksDiffer { index } => write!(f, "the ranks' results differ at value {index}"),
            Self::OutOfBound { index, error, allowed } => {
                write!(f, "value {index} is {error:e} off, {allowed:e} allowed")
            }
            Self::NotCompressed { ratio } => write!(f, "a ratio of {ratio} on smooth data"),
            Self::Output => f.write_str("could not write"),
        }
    }
}

impl From<Error> for CheckFailure {
    fn from(error: Error) -> Self {
        Self::Call(error)
    }
}

impl From<fmt::Error> for CheckFailure {
    fn from(_: fmt::Error) -> Self {
        Self::Output
    }
}

fn checks(out: &mut dyn Write) -> Result<(), CheckFailure> {
    let f32s = F32.try_take().ok_or(CheckFailure::StaticsTaken)?;
    let f64s = F64.try_take().ok_or(CheckFailure::StaticsTaken)?;
    let net = LoopbackNet::new(pool::take().ok_or(CheckFailure::StaticsTaken)?);
    let config = Config::default().with_lanes(LANES);
    let mut ranks = [
        Communicator::with_config(Loopback::new(&net, 0), config)?,
        Communicator::with_config(Loopback::new(&net, 1), config)?,
    ];
    let compressed = Plan::foldwire(Bound::Absolute(1e-3));
    // A relative bound adds the exchange of value ranges.
    let relative = Plan::foldwire(Bound::Relative(1e-5));
    check("raw f32", &mut ranks, f32s, &Plan::raw(), out)?;
    check("fz-light f32", &mut ranks, f32s, &compressed, out)?;
    check("fz-light f64", &mut ranks, f64s, &relative, out)
}

/// Runs one all-reduce of fresh data, and compares the result with the exact sum.
fn check<T: Float>(
    name: &str,
    ranks: &mut [Communicator<Loopback<'_>>; 2],
    data: &mut [[T; N_VALUES]; 2],
    plan: &Plan,
    out: &mut dyn Write,
) -> Result<(), CheckFailure> {
    for (rank, data) in data.iter_mut().enumerate() {
        for (index, x) in data.iter_mut().enumerate() {
            *x = T::from_f64(value(rank, index));
        }
    }
    let reports = all_reduce(ranks, data, plan)?;

    let [left, right] = &*data;
    // The reported worst case does not include the rounding of the operands and their sum to the
    // element type.
    let bound = reports[0].worst_case.unwrap_or(0.0);
    for (index, (&x, &y)) in left.iter().zip(right).enumerate() {
        if x != y {
            return Err(CheckFailure::RanksDiffer { index });
        }
        let exact = value(0, index) + value(1, index);
        let allowed = bound + 4.0 * T::UNIT_ROUNDOFF * exact.abs();
        let error = (x.to_f64() - exact).abs();
        if error > allowed || error.is_nan() {
            return Err(CheckFailure::OutOfBound { index, error, allowed });
        }
    }
    let ratio = reports[0].ratio();
    if plan.bound.is_some() && ratio < 2.0 {
        return Err(CheckFailure::NotCompressed { ratio });
    }
    writeln!(out, "{name}: {N_VALUES} values within {bound:e} of the sum, ratio {ratio:.2}")?;
    Ok(())
}

/// Starts the call of both ranks, and polls both in turn on this thread.
fn all_reduce<T: Float>(
    [left, right]: &mut [Communicator<Loopback<'_>>; 2],
    [left_data, right_data]: &mut [[T; N_VALUES]; 2],
    plan: &Plan,
) -> Result<[Report; 2], CheckFailure> {
    let mut left = left.start(foldwire::Call::all_reduce(left_data, Op::Sum), plan)?;
    let mut right = right.start(foldwire::Call::all_reduce(right_data, Op::Sum), plan)?;
    let mut reports = [None; 2];
    for _ in 0..MAX_POLLS {
        // A finished operation must not be polled again.
        if reports[0].is_none()
            && let Poll::Ready(report) = left.poll()
        {
            reports[0] = Some(report?);
        }
        if reports[1].is_none()
            && let Poll::Ready(report) = right.poll()
        {
            reports[1] = Some(report?);
        }
        if let [Some(left), Some(right)] = reports {
            return Ok([left, right]);
        }
    }
    Err(CheckFailure::Hung)
}

/// Returns a value of a smooth field that differs on each rank. The values and the sum of any two
/// are exact in `f32`.
fn value(rank: usize, index: usize) -> f64 {
    let t = index as f64 / 2048.0 - 2.0;
    // A parabola, rounded to multiples of 2⁻¹².
    let parabola = t * t * (1.0 + rank as f64);
    (parabola * 4096.0) as i32 as f64 / 4096.0
}
