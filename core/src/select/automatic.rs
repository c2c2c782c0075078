//! The choice of an automatic plan: the candidate that is fastest by the model, and the report on
//! it.

use super::Speeds;
use super::model::{MESSAGE_COST, Model, RankSpeed, n_doublings};
use super::{Network, SelectionRule, chosen};
use crate::codec::CodecId;
use crate::codec::estimate::Estimate;
use crate::element::DType;
use crate::op::OpCode;
use crate::plan::Plan;
use crate::schedule::{Collective, ProgramSpec};
use crate::transport::Distance;
use core::fmt;

/// Candidates of an automatic plan. The first one is exact.
///
/// Speeds were measured by `foldwire tune` with one core for each rank. The costs of a message and
/// the minimum lengths were fitted to `foldwire choose`, between 2, 4 and 8 threads on machines of
/// 2 and 16 cores: with these values, the fewest of its 480 choices were wrong.
pub(super) const CANDIDATES: [Candidate; N_CANDIDATES] = [
    Candidate {
        pace: RankSpeed { step_rate: 6e9, ..RankSpeed::of(CodecId::Raw) },
        codec: CodecId::Raw,
        shaped: 1.0,
        bits: |_| 0.0,
    },
    Candidate {
        pace: RankSpeed {
            step_rate: 5.5e9,
            message: MESSAGE_COST + 3.5e-6,
            overhead: 92.0,
            from: 256,
            ..RankSpeed::of(CodecId::FzLight)
        },
        codec: CodecId::FzLight,
        shaped: 1.0,
        bits: |estimate| estimate.fz_light,
    },
    Candidate {
        pace: RankSpeed {
            step_rate: 2.5e9,
            ratio: 5.4,
            message: MESSAGE_COST + 15e-6,
            overhead: 110.0,
            from: 4 << 10,
        },
        codec: CodecId::FzNd,
        shaped: 1.28,
        bits: |estimate| estimate.fz_nd,
    },
    Candidate {
        pace: RankSpeed {
            step_rate: 1.3e9,
            ratio: 6.5,
            message: MESSAGE_COST + 25e-6,
            overhead: 110.0,
            from: 4 << 10,
        },
        codec: CodecId::Dense,
        shaped: 1.34,
        bits: |estimate| estimate.dense,
    },
];
pub(super) const N_CANDIDATES: usize = 4;
/// Number of lossy candidates: all but the exact one.
pub(crate) const N_LOSSY: usize = N_CANDIDATES - 1;
const N_AFTER_FZ_LIGHT: usize = N_LOSSY - 1;

/// Seconds of a scan for the value range, in addition to its messages and to reading the values.
const SCAN: f64 = 1.5e-6;
/// Cost of each message of a scan, as a share of the cost of an exact call's message. Waiting for
/// the message is included.
const SCAN_MESSAGE: f64 = 0.6;
/// Bytes of each message of a scan on a link.
const SCAN_BYTES: f64 = 150.0;
/// Bytes per second that a rank scans.
const SCAN_RATE: f64 = 10e9;
/// Seconds to estimate how many bits codecs need for a sample. Measured: 24 µs on one machine,
/// 65 µs on a slower one.
const ESTIMATE: f64 = 25e-6;
/// Maximum share of a call's time that the estimate may take.
const MAX_ESTIMATE_SHARE: f64 = 0.06;
/// Maximum share of a call's time that scan and estimate together may take, if only the estimate
/// needs the scan.
const MAX_SCAN_SHARE: f64 = 0.03;
/// A codec that computes more than another candidate is chosen only if it takes less than this
/// share of the other candidate's time.
const MARGIN: f64 = 0.93;
/// The same share ([`MARGIN`]) for codecs that compute more than fz-light, if the machine's speeds
/// are not configured. With half a core for each rank, an all-reduce with dense took 1.5 times as
/// long as with fz-nd.
const MARGIN_DEFAULT_SPEEDS: f64 = 0.85;
/// Margins guard against a core that is slower than assumed. So a codec is also chosen if it takes
/// less than this share of another codec's time even at a quarter of its speed, as on slow links.
const MARGIN_IF_SLOW: f64 = 0.985;
/// Share of its speed that a slow core has.
const SLOW: f64 = 0.25;
/// Bytes per second of links that were neither configured nor measured.
const UNKNOWN_RATE: f64 = 1.25e9;
/// Bytes per second between ranks of a node, which share memory, if the rate was not measured.
const UNKNOWN_NEAR: f64 = 3e9;
/// Minimum share of a measured time between ranks of a node that counts as copying. The rest may be
/// the ranks' work ([`without_work`]).
const LEAST_COPIED: f64 = 0.25;
/// Highest ratio of raw to wire bytes that is assumed.
const BEST_RATIO: f64 = 60.0;
/// Minimum bytes of an array for trials between ranks of one process. Reductions are not tried
/// there.
const MIN_TRIAL_BYTES_IN_PROCESS: usize = 1 << 20;
/// A trial is skipped if the model expects one [`Mode`] to take this many times as long as the
/// other, and also this many seconds longer.
#[cfg(feature = "alloc")]
const TRIAL_LIMITS: (f32, f32) = (3.0, 0.05);

/// A codec that an automatic plan may choose.
#[derive(Clone, Copy)]
pub(super) struct Candidate {
    pub(super) codec: CodecId,
    /// Speed and ratio if nothing was measured.
    pub(super) pace: RankSpeed,
    /// Factor by which the codec's ratio is higher if the shape of the array is known. On seven
    /// fields with known shapes, at relative bounds of 1e-3 and 1e-4, fz-nd had 1.36 and 1.33 times
    /// fz-light's ratio, and dense 1.83 and 1.57 times (docs/codecs.md).
    shaped: f64,
    /// Returns this codec's bits per value from an estimate.
    bits: fn(&Estimate) -> f64,
}

/// Bits per operand value that codecs need, as estimated from a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bits(pub(crate) [f64; N_LOSSY]);

impl Bits {
    pub(crate) fn of(estimate: &Estimate) -> Self {
        let mut bits = CANDIDATES.into_iter().skip(1).map(|candidate| (candidate.bits)(estimate));
        Self([(); N_LOSSY].map(|()| bits.next().unwrap_or(f64::INFINITY)))
    }
}

/// Facts about a call on which the choice depends. All ranks have the same facts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallFacts<'a> {
    /// The caller's selection rules.
    pub(crate) rules: &'a [SelectionRule],
    pub(crate) network: Network,
    /// The largest distance between ranks.
    pub(crate) farthest: Distance,
    /// True if the rate of links was configured, not measured.
    pub(crate) has_configured_rate: bool,
    pub(crate) speeds: Speeds,
    /// `None` if the data were not scanned.
    pub(crate) bits: Option<Bits>,
    /// Mode that a trial prescribes: the faster one, or the one to time in this call. `None` if the
    /// model decides.
    pub(crate) mode: Option<Mode>,
}

/// The two ways to make a call of an automatic plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Exact,
    #[cfg_attr(not(feature = "alloc"), expect(dead_code, reason = "only trials prescribe it"))]
    Compressed,
}

/// The choice of an [automatic plan](Plan::auto) for a call, and its reason.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The reason for the choice.
    pub reason: ChoiceReason,
    /// Estimates of the candidates, the exact call first.
    pub weighed: [CodecEstimate; N_CANDIDATES],
    /// Bytes per second that each rank's link was assumed to have; infinite between ranks that
    /// share a process.
    pub link_rate: f32,
}

/// The reason for an automatic plan's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChoiceReason {
    /// Products and user-defined operations: no bound can be kept.
    Unbounded,
    /// There is only one rank.
    Alone,
    /// All ranks share a process, so fewer bytes save little.
    Near,
    /// The array is so short that any codec would add more time than it saves on links.
    Short,
    /// Expected to be fastest, with default compression ratios.
    Fastest,
    /// Expected to be fastest, with compression ratios from a sample of all ranks' data.
    Sampled,
    /// Similar calls were made both exactly and compressed, and the chosen way was faster. Or this
    /// call is one of them.
    Tried,
}

/// The time that an automatic plan expects of a call with one of its codecs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CodecEstimate {
    /// The codec.
    pub codec: CodecId,
    /// Raw bytes per wire byte, without headers.
    pub ratio: f32,
    /// Expected seconds of the call. Infinite if no time was estimated. That is so if the codec
    /// does not support the element type, if the array is too short, if a scan and one message
    /// alone would take longer than the exact call, or if the choice needed no estimates.
    pub seconds: f32,
}

impl CodecEstimate {
    /// Returns whether this takes less than `margin` times as long as `other`.
    fn is_faster(&self, other: &Self, margin: f64) -> bool {
        f64::from(self.seconds) < margin * f64::from(other.seconds)
    }
}

impl Choice {
    /// A choice without estimates: all times are infinite.
    fn without_weighing(reason: ChoiceReason, link_rate: f64) -> Self {
        let of = |Candidate { codec, pace, .. }| CodecEstimate {
            codec,
            ratio: pace.ratio as f32,
            seconds: f32::INFINITY,
        };
        Self { reason, weighed: CANDIDATES.map(of), link_rate: link_rate as f32 }
    }

    /// Returns whether nothing that ranks learn later can change this choice of an exact call.
    pub(crate) const fn is_settled(&self) -> bool {
        match self.reason {
            ChoiceReason::Unbounded | ChoiceReason::Alone => true,
            // Calls that are not tried have no estimates.
            ChoiceReason::Near => self.weighed[0].seconds.is_infinite(),
            _ => false,
        }
    }

    /// Returns whether another rate of links could change the choice.
    #[cfg(feature = "alloc")]
    pub(crate) const fn depends_on_links(&self) -> bool {
        match self.reason {
            ChoiceReason::Short | ChoiceReason::Fastest | ChoiceReason::Sampled => true,
            ChoiceReason::Tried => self.link_rate.is_finite(),
            ChoiceReason::Unbounded | ChoiceReason::Alone | ChoiceReason::Near => false,
        }
    }

    /// Returns whether the model expects an exact call and a compressed one to take similar times:
    /// their ratio or their difference is within `TRIAL_LIMITS`.
    #[cfg(feature = "alloc")]
    pub(crate) fn is_close(&self) -> bool {
        let [exact, others @ ..] = &self.weighed;
        let compressed = others.iter().fold(f32::INFINITY, |least, next| least.min(next.seconds));
        let (times, longer) = TRIAL_LIMITS;
        let is_near = |a: f32, b: f32| a.is_finite() && a < (times * b).max(b + longer);
        // A trial that found exact calls to be faster leaves no estimates to compare.
        self.reason == ChoiceReason::Tried
            || is_near(exact.seconds, compressed) && is_near(compressed, exact.seconds)
    }

    /// Returns the number of lanes, at most `lanes`, and the minimum number of chunks in a segment
    /// ([`Cut::shortest`](crate::layout::Cut::shortest)) for the call with this codec.
    ///
    /// Reductions between ranks that share a process have little to overlap, so they use two lanes
    /// with full frames. For 8 MiB between 2 threads, 4 lanes took 0.68 and 0.72 ms, and 2 lanes
    /// 0.63 ms.
    pub(crate) fn cut(
        &self,
        collective: Collective,
        codec: CodecId,
        lanes: usize,
    ) -> (usize, usize) {
        match self.reason {
            ChoiceReason::Near if collective.reduces() => (lanes.min(2), u16::MAX.into()),
            _ => (lanes, super::shortest(codec)),
        }
    }

    /// Fastest candidate. Each candidate computes more than those before it, so it must take less
    /// than a share of their time: [`MARGIN`] for fz-light, `margin` for the codecs after it.
    /// `if_slow` has the seconds of these codecs at a quarter of their speeds.
    fn fastest(&self, margin: f64, if_slow: &[f32; N_AFTER_FZ_LIGHT]) -> &CodecEstimate {
        let [exact, fz_light, ..] = &self.weighed;
        let best = if fz_light.is_faster(exact, MARGIN) { fz_light } else { exact };
        self.fastest_from(best, margin, if_slow)
    }

    /// Fastest candidate that compresses; the exact candidate if no other has a finite time.
    fn fastest_compressed(&self, margin: f64, if_slow: &[f32; N_AFTER_FZ_LIGHT]) -> &CodecEstimate {
        let [exact, fz_light, ..] = &self.weighed;
        let best = self.fastest_from(fz_light, margin, if_slow);
        if best.seconds.is_finite() { best } else { exact }
    }

    /// Fastest of `first` and the codecs after fz-light, where each must take less than `margin`
    /// times as long as the best before it, or if that compresses, [`MARGIN_IF_SLOW`] at a
    /// quarter of its speed.
    fn fastest_from<'a>(
        &'a self,
        first: &'a CodecEstimate,
        margin: f64,
        if_slow: &[f32; N_AFTER_FZ_LIGHT],
    ) -> &'a CodecEstimate {
        let [_, _, others @ ..] = &self.weighed;
        others.iter().zip(if_slow).fold(first, |best, (next, &seconds)| {
            let slow = CodecEstimate { seconds, ..*next };
            let is_sure = !best.codec.is_exact() && slow.is_faster(best, MARGIN_IF_SLOW);
            if is_sure || next.is_faster(best, margin) { next } else { best }
        })
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.reason {
            ChoiceReason::Unbounded => return f.write_str("exact: no bound can be kept"),
            ChoiceReason::Alone => return f.write_str("exact: one rank"),
            ChoiceReason::Near if self.weighed[0].seconds.is_infinite() => {
                return f.write_str("exact: ranks share a process");
            }
            ChoiceReason::Near => "exact, as ranks share a process; expected: ",
            ChoiceReason::Short => return f.write_str("exact: a short array"),
            ChoiceReason::Fastest => "expected by usual ratios: ",
            ChoiceReason::Sampled => "expected by a sample: ",
            ChoiceReason::Tried if self.weighed[0].seconds.is_infinite() => {
                return f.write_str("exact: faster when both were tried");
            }
            ChoiceReason::Tried => "compressed: faster when both were tried; expected: ",
        })?;
        let weighed = self.weighed.iter().filter(|weighed| weighed.seconds.is_finite());
        for (nth, &CodecEstimate { codec, ratio, seconds }) in weighed.enumerate() {
            let comma = if nth > 0 { ", " } else { "" };
            let name = if codec.is_exact() { "exact" } else { codec.name() };
            write!(f, "{comma}{name} {:.3} ms", seconds * 1e3)?;
            if !codec.is_exact() {
                write!(f, " (ratio {ratio:.1})")?;
            }
        }
        Ok(())
    }
}

/// The plan of a call after an automatic plan has been resolved.
#[derive(Clone, Copy)]
pub(crate) struct ChosenCall {
    pub(crate) plan: Plan,
    /// `None` if the plan was not automatic.
    pub(crate) choice: Option<Choice>,
    /// True if ranks should scan samples of their data and choose again.
    pub(crate) needs_samples: bool,
}

/// Resolves an [automatic plan](Plan::auto) for a call, and returns the reason for the choice.
/// Other plans are returned as they are, with `None`. Every rank must pass the same arguments.
///
/// The plan becomes the fastest of exact, fZ-light, fz-nd and dense, each with the schedule that it
/// would use:
///
/// | | speed of moving and reducing | ratio | added to each message | shortest array |
/// |---|---|---|---|---|
/// | exact | 6 GB/s | 1 | | |
/// | fZ-light | 5.5 GB/s | 5 | 92 bytes, 3.5 µs | 256 bytes |
/// | fz-nd | 2.5 GB/s | 5.4; 6.9 if the shape is known | 110 bytes, 15 µs | 4 KiB |
/// | dense | 1.3 GB/s | 6.5; 8.7 if the shape is known | 110 bytes, 25 µs | 4 KiB |
///
/// *Cost.* An exact message costs 5 µs, to which other candidates add the microseconds of the
/// table. These hold for a core with the speeds of the table; a slower core needs longer. In
/// addition to the work in [the model](super), a rank encodes its part of the array once. The root
/// of a tree encodes three quarters of the array before other ranks can decode. If a part has
/// several rounds, ranks compute while other rounds are on links. Then the call takes the longer of
/// the two times, work or links, and a share of the shorter one: one round's share (half of it in
/// an all-reduce), but at least a tenth, or a quarter with default speeds. Within a node, links are
/// copies that the ranks' own cores make, so work and links do not overlap. The rate of the copies
/// is the measured rate, corrected for the work that the measured calls contain. In a broadcast or
/// reduce each rank makes half of the copies.
///
/// *Margins.* Of two candidates that take about as long, the choice is the one that computes less.
/// A later one in the table must be faster by 7 %, and fz-nd and dense by 15 % with default speeds,
/// unless they are faster than another codec by 1.5 % even at a quarter of their speed, as on slow
/// links.
///
/// *Scans.* A bound that refers to the value range needs a scan first. A scan takes 1.5 µs and
/// ⌈log₂ n⌉ messages. Each of these costs 0.6 of an exact message, and the time of 150 bytes on a
/// link.
///
/// *Short arrays.* A first test estimates the time in which links carry ⌈log₂ n⌉ times the array.
/// If no codec can save enough of that time to pay for the scan, for what the codec adds to one
/// message, and for the margin of 7 %, the call is exact ([`ChoiceReason::Short`]). No candidate is
/// estimated then.
///
/// *Links.* Calls between ranks of one process are exact, because these ranks hand frames over and
/// gain little from fewer bytes. Links of unknown rate count as 10 Gbit/s, and memory that ranks of
/// a node share as 3 GB/s, until [first calls](Plan::auto) measure them. If calls are timed both
/// ways, the times decide between exact and compressed ([`ChoiceReason::Tried`]).
///
/// *Speeds.* Speeds and costs of messages come from [`Config::speeds`](crate::Config::speeds); the
/// default is the table. Configured costs of messages apply within a machine. Over a network an
/// exact message costs at least 5 µs. If the configured cost is lower, all messages cost more by
/// the difference.
///
/// *Ratios.* This function uses the ratios of the table. A communicator replaces them by estimates
/// if that takes at most a few hundredths of the call's time: each rank estimates how many bits
/// codecs need for a sample of its input, and the largest number of all ranks counts. Partial sums
/// of an all-reduce need ½·⌈log₂ n⌉ bits more, and half of that in other reductions.
#[must_use]
pub fn plan(
    call: ProgramSpec,
    op: OpCode,
    dtype: DType,
    plan: &Plan,
    n_bytes: usize,
    network: Network,
) -> (Plan, Option<Choice>) {
    let speeds = Speeds::default();
    let (farthest, has_configured_rate) = (Distance::Network, network.link_rate.is_some());
    let known = CallFacts {
        rules: &[],
        network,
        farthest,
        has_configured_rate,
        speeds,
        bits: None,
        mode: None,
    };
    let ChosenCall { plan, choice, .. } = choose(call, op, dtype, plan, n_bytes, &known);
    (plan, choice)
}

/// Like [`plan`](fn@plan), but with everything that a communicator knows.
pub(crate) fn choose(
    call: ProgramSpec,
    op: OpCode,
    dtype: DType,
    plan: &Plan,
    n_bytes: usize,
    known: &CallFacts<'_>,
) -> ChosenCall {
    if !plan.is_auto {
        return ChosenCall { plan: *plan, choice: None, needs_samples: false };
    }
    let plan = Plan { is_auto: false, ..*plan };
    let exact = plan.exactly();
    let link_rate = known.network.link_rate.unwrap_or(match known.farthest {
        Distance::Memory => f64::INFINITY,
        Distance::Node => UNKNOWN_NEAR,
        Distance::Loopback | Distance::Network => UNKNOWN_RATE,
    });
    // Over a network an exact message costs at least the default. If the configured cost is lower,
    // the difference is added to the messages of all candidates.
    let exact_s = known.speeds.message_at(0);
    let surcharge =
        if known.farthest < Distance::Loopback { 0.0 } else { (MESSAGE_COST - exact_s).max(0.0) };
    let pace_of = |at: usize| {
        let step_rate = known.speeds.at(at);
        let message = known.speeds.message_at(at) + surcharge;
        RankSpeed { step_rate, message, ..CANDIDATES[at].pace }
    };
    let scan = SCAN_MESSAGE * (exact_s + surcharge) + SCAN_BYTES / link_rate;
    let scan = SCAN + scan * n_doublings(call.size) as f64;
    let needed_scan = if plan.needs_value_range() { scan } else { 0.0 };
    // True if the array is shorter than the codec's minimum, or if the time that the codec saves on
    // links does not exceed the time that it adds (a scan and the higher cost of a message) plus
    // the margin. Estimating candidates takes 0.3 µs, which for short arrays is a tenth of the
    // possible gain. So this test comes first.
    let n_hops = n_doublings(call.size) as f64;
    let is_short = |at: usize| {
        let pace = pace_of(at);
        let added = needed_scan + (known.speeds.message_at(at) - exact_s).max(0.0);
        let on_links = n_hops * n_bytes as f64 / link_rate;
        let (saved, exact) = (on_links * (1.0 - pace.ratio.recip()), n_hops * exact_s + on_links);
        n_bytes < pace.from || saved <= added + (1.0 - MARGIN) * exact
    };
    let is_near = link_rate == f64::INFINITY;
    let may_try_near = n_bytes >= MIN_TRIAL_BYTES_IN_PROCESS && !call.collective.reduces();
    let reason = match op {
        op if op.needs_values() => Some(ChoiceReason::Unbounded),
        _ if call.size == 1 => Some(ChoiceReason::Alone),
        _ if is_near && !may_try_near => Some(ChoiceReason::Near),
        _ if known.mode == Some(Mode::Exact) => Some(ChoiceReason::Tried),
        _ if !is_near && (1..N_CANDIDATES).all(is_short) => Some(ChoiceReason::Short),
        _ => None,
    };
    if let Some(reason) = reason {
        let choice = Some(Choice::without_weighing(reason, link_rate));
        return ChosenCall { plan: exact, choice, needs_samples: false };
    }
    let are_copies = !known.has_configured_rate && known.farthest < Distance::Network;
    let copy_rate =
        if are_copies { without_work(link_rate, call.size, &known.speeds) } else { link_rate };
    let network = Network { link_rate: Some(copy_rate), ..known.network };
    let is_configured = known.speeds != Speeds::default();
    let plan_of = |codec: CodecId| if codec.is_exact() { exact } else { Plan { codec, ..plan } };
    let seconds_at = |at: usize, ratio: f64, speed: f64| {
        let codec = CANDIDATES[at].codec;
        let schedule = chosen(known.rules, call, op, &plan_of(codec), n_bytes, known.network);
        let pace = pace_of(at);
        let pace = RankSpeed { ratio, step_rate: speed * pace.step_rate, ..pace };
        let model = Model { call, n_bytes, codec, pace, network, is_configured, are_copies };
        let needed_scan = if at > 0 { needed_scan } else { 0.0 };
        needed_scan + model.least_seconds(schedule)
    };
    let seconds = |at: usize, ratio: f64| seconds_at(at, ratio, 1.0);
    let is_exact = is_near && known.mode.is_none();
    let reason = match known.bits {
        _ if known.mode.is_some() => ChoiceReason::Tried,
        _ if is_near => ChoiceReason::Near,
        Some(_) => ChoiceReason::Sampled,
        None => ChoiceReason::Fastest,
    };
    let mut choice = Choice::without_weighing(reason, link_rate);
    let mut if_slow = [f32::INFINITY; N_AFTER_FZ_LIGHT];
    for (at, candidate) in CANDIDATES.iter().enumerate() {
        let Candidate { codec, ref pace, shaped, .. } = *candidate;
        // A call with this codec takes at least as long as the scan and one message.
        let least = (needed_scan + pace_of(at).message) as f32;
        let cannot_win = at > 0 && least > choice.weighed[0].seconds;
        if !codec.is_for(dtype) || n_bytes < pace.from || cannot_win {
            continue;
        }
        let usual = pace.ratio * if plan.strides[0] > 0 { shaped } else { 1.0 };
        let of_bits = |bits: Bits| {
            let bits = bits.0[at - 1] + growth(call, op);
            (dtype.n_bytes() as f64 * 8.0 / bits).min(BEST_RATIO)
        };
        let ratio = match known.bits {
            Some(bits) if at > 0 => of_bits(bits),
            _ => usual,
        };
        let expected = seconds(at, ratio) as f32;
        choice.weighed[at] = CodecEstimate { codec, ratio: ratio as f32, seconds: expected };
        if let Some(slow) = at.checked_sub(2).and_then(|at| if_slow.get_mut(at)) {
            *slow = seconds_at(at, ratio, SLOW) as f32;
        }
    }
    let margin = if is_configured { MARGIN } else { MARGIN_DEFAULT_SPEEDS };
    let best = *match known.mode {
        _ if is_exact => &choice.weighed[0],
        Some(_) => choice.fastest_compressed(margin, &if_slow),
        None => choice.fastest(margin, &if_slow),
    };
    let chosen = plan_of(best.codec);
    let needs_samples = known.bits.is_none() && !is_exact && {
        let reading = if plan.needs_value_range() { n_bytes as f64 / SCAN_RATE } else { 0.0 };
        let exact_s = f64::from(choice.weighed[0].seconds);
        let may_win =
            |at: usize| choice.weighed[at].seconds.is_finite() && seconds(at, BEST_RATIO) < exact_s;
        let is_cheap = ESTIMATE + scan + reading <= MAX_SCAN_SHARE * f64::from(best.seconds);
        // A call that scans its data anyway pays only for the estimate.
        match chosen.needs_value_range() {
            true => ESTIMATE <= MAX_ESTIMATE_SHARE * f64::from(best.seconds),
            false => is_cheap && (1..N_CANDIDATES).any(may_win),
        }
    };
    ChosenCall { plan: chosen, choice: Some(choice), needs_samples }
}

/// Bytes per second that ranks of a node copy, computed from the rate that they measured. In the
/// measured calls each rank also encoded and decoded the array. The model counts that work
/// separately, so it is subtracted here.
fn without_work(measured: f64, size: usize, speeds: &Speeds) -> f64 {
    let sent = (size - 1) as f64 / size as f64;
    let worked = 1.0 / (2.0 * speeds.at(0) * sent);
    (measured.recip() - worked).max(LEAST_COPIED / measured).recip()
}

/// Bits per value that partial sums need in addition to the bits of an operand.
fn growth(call: ProgramSpec, op: OpCode) -> f64 {
    let doubled = 0.5 * n_doublings(call.size) as f64;
    match (call.collective, op) {
        (_, OpCode::Min | OpCode::Max) => 0.0,
        (Collective::AllReduce, _) => doubled,
        (collective, _) if collective.reduces() => 0.5 * doubled,
        _ => 0.0,
    }
}
