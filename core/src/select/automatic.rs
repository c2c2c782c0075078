//! What an automatic plan chooses: of some candidates the one that is done soonest by the model.

use super::Network;
use super::model::{Model, Pace, n_doublings};
use crate::codec::CodecId;
use crate::element::DType;
use crate::op::OpCode;
use crate::plan::Plan;
use crate::schedule::Call;

/// Codecs as they are compared with each other. (Measured between 4 threads on 2 cores, all-reduces
/// of 16 MiB without links; a core for each rank is up to twice as fast by all of them.)
const EXACT: Pace = Pace { step_rate: 4e9, ..Pace::of(CodecId::Raw) };
const FAST: Pace = Pace { step_rate: 3e9, overhead: 92.0, ..Pace::of(CodecId::FzLight) };
const DENSE: Pace =
    Pace { step_rate: 0.46e9, ratio: 6.5, message: 4e-6, overhead: 110.0, from: 64 << 10 };
/// How many times shorter dense makes an array of known shape.
const SHAPED: f64 = 1.5;
/// Seconds for each message of a look at the data.
const LOOK: f64 = 2e-6;
/// Bytes per second of links of which nothing is known.
const UNKNOWN_RATE: f64 = 1.25e9;

/// What a call by an [automatic plan](Plan::auto) takes; other plans as they are. Every rank must
/// ask with the same arguments.
///
/// Of exact, fZ-light and dense it is what is done soonest by the model's best schedule for each:
///
/// | | moves and reduces | ratio | bytes of a message beside its values | |
/// |---|---|---|---|---|
/// | exact | 4 GB/s | 1 | | |
/// | fZ-light | 3 GB/s | 5 | 92 | |
/// | dense | 0.46 GB/s | 6.5; 10 of known shape | 110, and 4 µs | from 64 KiB on |
///
/// A call within a bound that refers to the range of the data must look at them first, which takes
/// 2 µs for each of ⌈log₂ n⌉ messages. Between ranks whose links are as fast as memory nothing is
/// gained by fewer bytes, so calls are exact. Where no rate is told links are taken to be of
/// 10 Gbit/s.
#[must_use]
pub fn plan(
    call: Call,
    op: OpCode,
    dtype: DType,
    plan: &Plan,
    n_bytes: usize,
    network: Network,
) -> Plan {
    if !plan.is_auto {
        return *plan;
    }
    let plan = Plan { is_auto: false, ..*plan };
    let exact = plan.exactly();
    let is_unbounded = matches!(op, OpCode::Prod | OpCode::User);
    if is_unbounded || call.size == 1 || network.link_rate == Some(f64::INFINITY) {
        return exact;
    }
    let network = Network { link_rate: network.link_rate.or(Some(UNKNOWN_RATE)), ..network };
    let look = if plan.needs_extent() { LOOK * n_doublings(call.size) as f64 } else { 0.0 };
    let seconds = |codec: CodecId, pace: Pace| {
        let model = Model { call, n_bytes, codec, pace, network };
        model.least_seconds(plan.schedule)
    };
    let ratio = DENSE.ratio * if plan.strides[0] > 0 { SHAPED } else { 1.0 };
    let mut best = (exact, seconds(CodecId::Raw, EXACT));
    for (codec, pace) in [(CodecId::FzLight, FAST), (CodecId::Dense, Pace { ratio, ..DENSE })] {
        if !codec.is_for(dtype) || n_bytes < pace.from {
            continue;
        }
        let seconds = look + seconds(codec, pace);
        if seconds < best.1 {
            best = (Plan { codec, ..plan }, seconds);
        }
    }
    best.0
}
