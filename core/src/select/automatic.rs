//! What an automatic plan chooses: of some candidates the one that is done soonest by the model,
//! and what is said of that.

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

/// What an automatic plan may choose, the first of it exact.
///
/// Speeds are what `foldwire tune` measured, those of a core for each rank. What a message has
/// beside, and from where on a codec is for it, is what made the fewest of 480 choices of `foldwire
/// choose` wrong, between 2, 4 and 8 threads on machines of 2 and 16 cores.
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
/// Candidates whose messages the data make shorter.
pub(crate) const N_LOSSY: usize = N_CANDIDATES - 1;

/// Seconds that a look at the data takes beside its values; the part of an exact message's cost
/// that each of its messages has, waiting included; and their bytes on a link.
const LOOK: f64 = 1.5e-6;
const LOOK_MESSAGE: f64 = 0.6;
const LOOK_BYTES: f64 = 150.0;
/// Bytes per second that a rank looks at.
const LOOK_RATE: f64 = 10e9;
/// Seconds that estimating the bits of a sample takes (24 µs was measured, 65 on a slower machine),
/// and in what part of the call it must.
const ESTIMATE: f64 = 25e-6;
const WORTH: f64 = 0.06;
/// The same of a look for nothing but that.
const LOOK_WORTH: f64 = 0.03;
/// By what factor a call must be sooner for a codec that computes more; and for one that computes
/// more than fz-light where nobody has told how fast the machine is. (Half a core for each rank
/// made an all-reduce by dense take 1.5 times as long as by fz-nd.)
const MARGIN: f64 = 0.93;
const MARGIN_UNTOLD: f64 = 0.85;
/// Bytes per second of links that nobody has told or measured, and of a node's memory.
const UNKNOWN_RATE: f64 = 1.25e9;
const UNKNOWN_NEAR: f64 = 3e9;
/// The least part of what ranks of a node measure that are copies.
const LEAST_COPIED: f64 = 0.25;
/// Raw bytes per wire byte at best.
const BEST_RATIO: f64 = 60.0;
/// Between ranks that share a process calls that do not reduce are tried from so many bytes on.
const TRIED_NEAR_FROM: usize = 1 << 20;
/// The model is taken at its word where one way takes so many times as long as the other, and so
/// many seconds longer.
#[cfg(feature = "alloc")]
const FAR_APART: (f32, f32) = (3.0, 0.05);

/// A codec that an automatic plan may choose.
#[derive(Clone, Copy)]
pub(super) struct Candidate {
    pub(super) codec: CodecId,
    /// Its speed and ratio where nobody has measured.
    pub(super) pace: RankSpeed,
    /// How many times shorter it makes an array of known shape. (Within rel:1e-3 and 1e-4 fz-nd had
    /// 1.36 and 1.33 times fz-light's ratio of seven fields, dense 1.83 and 1.57: docs/codecs.md.)
    shaped: f64,
    /// What of an estimate is its.
    bits: fn(&Estimate) -> f64,
}

/// Bits a value that a sample says codecs make of operands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bits(pub(crate) [f64; N_LOSSY]);

impl Bits {
    pub(crate) fn of(estimate: &Estimate) -> Self {
        let mut bits = CANDIDATES.into_iter().skip(1).map(|candidate| (candidate.bits)(estimate));
        Self([(); N_LOSSY].map(|()| bits.next().unwrap_or(f64::INFINITY)))
    }
}

/// What all ranks know that choose.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallFacts<'a> {
    /// The caller's choice of schedules.
    pub(crate) rows: &'a [SelectionRule],
    pub(crate) network: Network,
    /// How far ranks are from each other at most.
    pub(crate) farthest: Distance,
    /// The rate of links was told, not measured.
    pub(crate) is_told: bool,
    pub(crate) speeds: Speeds,
    /// `None`: nobody has looked at the data.
    pub(crate) bits: Option<Bits>,
    /// What a trial has found, or needs; `None`: the model decides.
    pub(crate) mode: Option<Mode>,
}

/// The two ways to make a call by an automatic plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Exact,
    #[cfg_attr(not(feature = "alloc"), expect(dead_code, reason = "nothing is tried there"))]
    Compressed,
}

/// Why an [automatic plan](Plan::auto) has chosen what the report says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// What decided.
    pub reason: ChoiceReason,
    /// What was weighed, the exact call first.
    pub weighed: [CodecEstimate; N_CANDIDATES],
    /// Bytes per second that each rank's link was taken to have; infinite between ranks that share
    /// a process.
    pub link_rate: f32,
}

/// What decides an automatic plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChoiceReason {
    /// No bound can be kept of products and the user's operations.
    Unbounded,
    /// There is one rank.
    Alone,
    /// All ranks share a process, so that fewer bytes save little.
    Near,
    /// It is so short that a codec takes longer than its bytes on a link.
    Short,
    /// It was expected soonest, by usual ratios.
    Soonest,
    /// It was expected soonest, by the ratios of a sample of all ranks' data.
    Sampled,
    /// Calls like it were made both exactly and compressed, and this was sooner; or it is one of
    /// those calls.
    Tried,
}

/// What an automatic plan expects of a codec.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CodecEstimate {
    /// How values become bytes.
    pub codec: CodecId,
    /// Raw bytes per wire byte, headers apart.
    pub ratio: f32,
    /// How long the call takes, in seconds; infinite for a codec that is not for it, or of which a
    /// message alone takes longer than the exact call.
    pub seconds: f32,
}

impl CodecEstimate {
    /// Whether it takes less than this part of what another takes.
    fn is_sooner(&self, other: &Self, margin: f64) -> bool {
        f64::from(self.seconds) < margin * f64::from(other.seconds)
    }
}

impl Choice {
    /// With nothing weighed.
    fn without_weighing(reason: ChoiceReason, link_rate: f64) -> Self {
        let of = |Candidate { codec, pace, .. }| CodecEstimate {
            codec,
            ratio: pace.ratio as f32,
            seconds: f32::INFINITY,
        };
        Self { reason, weighed: CANDIDATES.map(of), link_rate: link_rate as f32 }
    }

    /// Another rate of links could change the choice.
    #[cfg(feature = "alloc")]
    pub(crate) const fn depends_on_links(&self) -> bool {
        match self.reason {
            ChoiceReason::Short | ChoiceReason::Soonest | ChoiceReason::Sampled => true,
            ChoiceReason::Tried => self.link_rate.is_finite(),
            ChoiceReason::Unbounded | ChoiceReason::Alone | ChoiceReason::Near => false,
        }
    }

    /// By the model an exact call and a compressed one take about as long, or neither takes long.
    #[cfg(feature = "alloc")]
    pub(crate) fn is_close(&self) -> bool {
        let [exact, others @ ..] = &self.weighed;
        let compressed = others.iter().fold(f32::INFINITY, |least, next| least.min(next.seconds));
        let (times, longer) = FAR_APART;
        let is_near = |a: f32, b: f32| a.is_finite() && a < (times * b).max(b + longer);
        // Nothing is weighed any more where calls are known to be sooner exactly.
        self.reason == ChoiceReason::Tried
            || is_near(exact.seconds, compressed) && is_near(compressed, exact.seconds)
    }

    /// On how many lanes of so many the call goes by this codec, and in segments of how many chunks
    /// at least ([`Cut::shortest`](crate::layout::Cut::shortest)).
    ///
    /// Between ranks that share a process reductions have little to overlap: two lanes, of full
    /// frames. (Between 2 threads 4 lanes took 0.68 and 0.72 ms for 8 MiB, 2 lanes 0.63.)
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

    /// Of codecs that compute more each, the one that is enough sooner; of those behind fz-light by
    /// this factor.
    fn soonest(&self, margin: f64) -> &CodecEstimate {
        let [exact, fz_light, others @ ..] = &self.weighed;
        let best = if fz_light.is_sooner(exact, MARGIN) { fz_light } else { exact };
        Self::sooner(best, others, margin)
    }

    /// The same of those that compress; the exact one if none is for the call.
    fn soonest_compressed(&self, margin: f64) -> &CodecEstimate {
        let [exact, fz_light, others @ ..] = &self.weighed;
        let best = Self::sooner(fz_light, others, margin);
        if best.seconds.is_finite() { best } else { exact }
    }

    fn sooner<'a>(
        first: &'a CodecEstimate,
        others: &'a [CodecEstimate],
        margin: f64,
    ) -> &'a CodecEstimate {
        others.iter().fold(first, |best, next| match next.is_sooner(best, margin) {
            true => next,
            false => best,
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
            ChoiceReason::Soonest => "expected by usual ratios: ",
            ChoiceReason::Sampled => "expected by a sample: ",
            ChoiceReason::Tried if self.weighed[0].seconds.is_infinite() => {
                return f.write_str("exact: sooner when both were tried");
            }
            ChoiceReason::Tried => "compressed: sooner when both were tried; expected: ",
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

/// What a call by an automatic plan comes to.
#[derive(Clone, Copy)]
pub(crate) struct ChosenCall {
    pub(crate) plan: Plan,
    /// `None`: the plan was not automatic.
    pub(crate) choice: Option<Choice>,
    /// Whether ranks should look at samples of their data and choose anew.
    pub(crate) asks: bool,
}

/// What a call by an [automatic plan](Plan::auto) takes; other plans as they are. Every rank must
/// ask with the same arguments. And why; `None` of plans that are not automatic.
///
/// Of exact, fZ-light, fz-nd and dense it is what is done soonest, each by the schedule that it
/// would take:
///
/// | | moves and reduces | ratio | bytes of a message beside its values | |
/// |---|---|---|---|---|
/// | exact | 6 GB/s | 1 | | |
/// | fZ-light | 5.5 GB/s | 5 | 92, and 3.5 µs | from 256 bytes on |
/// | fz-nd | 2.5 GB/s | 5.4; 6.9 of known shape | 110, and 15 µs | from 4 KiB on |
/// | dense | 1.3 GB/s | 6.5; 8.7 of known shape | 110, and 25 µs | from 4 KiB on |
///
/// Those µs are beside an exact message's 5, of a core that is as fast as the table says; a slower
/// one needs longer. Beside what [the model](super) says, a rank encodes its part of the array
/// once, a tree's root three quarters of the array before others decode. Where a part has several
/// rounds, ranks compute while others are on links: of the shorter of both one round's part counts,
/// half of it in an all-reduce, and a tenth at least; a quarter where speeds are the usual ones.
/// Within a node links are copies that ranks' own cores make: there nothing overlaps, and what was
/// measured counts without the work that was in it. In a broadcast or reduce each rank makes half
/// of those copies.
///
/// Of two that take about as long it is the one that computes less: a later one in the table must
/// be sooner by 7 %, fz-nd and dense by 15 % where speeds are the usual ones. A call within a bound
/// that refers to the range of the data must look at them first, which takes 1.5 µs, and for each
/// of ⌈log₂ n⌉ messages 0.6 of an exact one's cost and as long as 150 bytes do. Where no codec
/// can save enough of what links take, ⌈log₂ n⌉ times the array, for a look, a message and those 7
/// %, the call is exact ([`ChoiceReason::Short`]), and nothing is weighed. Between ranks of a process,
/// which hand frames over, little is gained by fewer bytes, so calls are exact. Links of which
/// nobody tells count as 10 Gbit/s, memory that ranks of a node share as 3 GB/s, until
/// [first calls](Plan::auto) measure them; where calls both ways are timed, the clock decides
/// between exact and compressed ([`ChoiceReason::Tried`]).
///
/// Speeds are [`Config::speeds`](crate::Config::speeds), and those of the table unless told. Told
/// costs of messages are those within a machine; over a network an exact one costs 5 µs at least,
/// and others as much more. A call
/// does better than the ratios of the table: where that costs no more than a few hundredths of
/// the call, each rank estimates what codecs would make of a sample of its own data, and the
/// largest of all ranks' numbers of bits counts; sums on their way have ½·log₂ n bits more.
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
    let (farthest, is_told) = (Distance::Network, network.link_rate.is_some());
    let known = CallFacts { rows: &[], network, farthest, is_told, speeds, bits: None, mode: None };
    let ChosenCall { plan, choice, .. } = choose(call, op, dtype, plan, n_bytes, &known);
    (plan, choice)
}

/// As [`plan`](fn@plan), from all that is known.
pub(crate) fn choose(
    call: ProgramSpec,
    op: OpCode,
    dtype: DType,
    plan: &Plan,
    n_bytes: usize,
    known: &CallFacts<'_>,
) -> ChosenCall {
    if !plan.is_auto {
        return ChosenCall { plan: *plan, choice: None, asks: false };
    }
    let plan = Plan { is_auto: false, ..*plan };
    let exact = plan.exactly();
    let link_rate = known.network.link_rate.unwrap_or(match known.farthest {
        Distance::Memory => f64::INFINITY,
        Distance::Node => UNKNOWN_NEAR,
        Distance::Loopback | Distance::Network => UNKNOWN_RATE,
    });
    // Over a network an exact message costs no less than usual, and others more by as much.
    let exact_s = known.speeds.message_at(0);
    let farther =
        if known.farthest < Distance::Loopback { 0.0 } else { (MESSAGE_COST - exact_s).max(0.0) };
    let pace_of = |at: usize| {
        let step_rate = known.speeds.at(at);
        let message = known.speeds.message_at(at) + farther;
        RankSpeed { step_rate, message, ..CANDIDATES[at].pace }
    };
    let look = LOOK_MESSAGE * (exact_s + farther) + LOOK_BYTES / link_rate;
    let look = LOOK + look * n_doublings(call.size) as f64;
    let progress_hook = if plan.needs_extent() { look } else { 0.0 };
    // What the codec saves of the time on links is less than a look and a message cost beside, or
    // than it must be sooner. (Weighing takes 0.3 µs, a tenth of what there is to gain.)
    let n_hops = n_doublings(call.size) as f64;
    let is_short = |at: usize| {
        let pace = pace_of(at);
        let beside = progress_hook + (known.speeds.message_at(at) - exact_s).max(0.0);
        let on_links = n_hops * n_bytes as f64 / link_rate;
        let (saved, exact) = (on_links * (1.0 - pace.ratio.recip()), n_hops * exact_s + on_links);
        n_bytes < pace.from || saved <= beside + (1.0 - MARGIN) * exact
    };
    let is_near = link_rate == f64::INFINITY;
    let may_try_near = n_bytes >= TRIED_NEAR_FROM && !call.collective.reduces();
    let reason = match op {
        OpCode::Prod | OpCode::User => Some(ChoiceReason::Unbounded),
        _ if call.size == 1 => Some(ChoiceReason::Alone),
        _ if is_near && !may_try_near => Some(ChoiceReason::Near),
        _ if known.mode == Some(Mode::Exact) => Some(ChoiceReason::Tried),
        _ if !is_near && (1..N_CANDIDATES).all(is_short) => Some(ChoiceReason::Short),
        _ => None,
    };
    if let Some(reason) = reason {
        let choice = Some(Choice::without_weighing(reason, link_rate));
        return ChosenCall { plan: exact, choice, asks: false };
    }
    let are_copies = !known.is_told && known.farthest < Distance::Network;
    let copied =
        if are_copies { without_work(link_rate, call.size, &known.speeds) } else { link_rate };
    let network = Network { link_rate: Some(copied), ..known.network };
    let is_told = known.speeds != Speeds::default();
    let plan_of = |codec: CodecId| if codec.is_exact() { exact } else { Plan { codec, ..plan } };
    let seconds = |at: usize, ratio: f64| {
        let codec = CANDIDATES[at].codec;
        let by = chosen(known.rows, call, op, &plan_of(codec), n_bytes, known.network);
        let pace = RankSpeed { ratio, ..pace_of(at) };
        let model = Model { call, n_bytes, codec, pace, network, is_told, are_copies };
        let progress_hook = if at > 0 { progress_hook } else { 0.0 };
        progress_hook + model.least_seconds(by)
    };
    let is_exact = is_near && known.mode.is_none();
    let reason = match known.bits {
        _ if known.mode.is_some() => ChoiceReason::Tried,
        _ if is_near => ChoiceReason::Near,
        Some(_) => ChoiceReason::Sampled,
        None => ChoiceReason::Soonest,
    };
    let mut choice = Choice::without_weighing(reason, link_rate);
    for (at, candidate) in CANDIDATES.iter().enumerate() {
        let Candidate { codec, ref pace, shaped, .. } = *candidate;
        // Of what looks and one message take, and what is to be beaten.
        let least = (progress_hook + pace_of(at).message) as f32;
        let is_late = at > 0 && least > choice.weighed[0].seconds;
        if !codec.is_for(dtype) || n_bytes < pace.from || is_late {
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
    }
    let margin = if is_told { MARGIN } else { MARGIN_UNTOLD };
    let best = *match known.mode {
        _ if is_exact => &choice.weighed[0],
        Some(_) => choice.soonest_compressed(margin),
        None => choice.soonest(margin),
    };
    let chosen = plan_of(best.codec);
    let asks = known.bits.is_none() && !is_exact && {
        let whole = if plan.needs_extent() { n_bytes as f64 / LOOK_RATE } else { 0.0 };
        let exact_s = f64::from(choice.weighed[0].seconds);
        let may_win =
            |at: usize| choice.weighed[at].seconds.is_finite() && seconds(at, BEST_RATIO) < exact_s;
        let is_worth = ESTIMATE + look + whole <= LOOK_WORTH * f64::from(best.seconds);
        match chosen.needs_extent() {
            true => ESTIMATE <= WORTH * f64::from(best.seconds),
            false => is_worth && (1..N_CANDIDATES).any(may_win),
        }
    };
    ChosenCall { plan: chosen, choice: Some(choice), asks }
}

/// Bytes per second that a node's ranks copy for a link, of what they have measured: each also
/// encoded and decoded the array, which the model counts apart.
fn without_work(measured: f64, size: usize, speeds: &Speeds) -> f64 {
    let sent = (size - 1) as f64 / size as f64;
    let worked = 1.0 / (2.0 * speeds.at(0) * sent);
    (measured.recip() - worked).max(LEAST_COPIED / measured).recip()
}

/// Bits a value that sums on their way have more than operands.
fn growth(call: ProgramSpec, op: OpCode) -> f64 {
    let doubled = 0.5 * n_doublings(call.size) as f64;
    match (call.collective, op) {
        (_, OpCode::Min | OpCode::Max) => 0.0,
        (Collective::AllReduce, _) => doubled,
        (collective, _) if collective.reduces() => 0.5 * doubled,
        _ => 0.0,
    }
}
