//! Grow: survivors of a group and newcomers form a new group, and meet in a [`Store`].
//!
//! [`admit`] is the survivors' side, at a call that they agree on; [`rejoin`] is a newcomer's.
//!
//! 1. *Survivors* [shrink](crate::shrink), so that all of them know each other, and exchange where
//!    they can be reached. Their rank 0, the leader, looks for newcomers in the store (`waiting`).
//!    Meanwhile the survivors make a small call at each beat, so that a loss ends it.
//! 2. *Plan.* The leader writes the members of the new group to the store (`roster`), names that
//!    plan to the newcomers, and then to the survivors. **The plan in the store decides**: a
//!    survivor that misses it because a call fails looks there, before it shrinks and after it. If
//!    there is none, the survivors shrink again, and their new leader plans.
//! 3. *Connect.* Members connect to each other on a new transport ([`Connector`]). One that does
//!    not come within three times the patience counts as lost.
//! 4. *Vote.* All members shrink the new transport. So who is in the group, its ranks and channels
//!    are agreed by the same ballots and fences as after a loss, and the same holds: two groups
//!    with a rank in common have the same members or different epochs, and never mix.
//!
//! Nothing of the failed group reaches the new one, because its connections are new. A newcomer
//! must know the group's secret to offer itself and to connect, and a leader to plan. Members
//! connect only to those that hold the same plan. The store is not trusted.
//!
//! Cost: a shrink, an all-gather of 512 bytes, a small call at each beat of 50 ms while the leader
//! waits, n² connections, and another shrink.
//!
//! Source: rejoining after `MPIX_Comm_shrink` (Bland et al., 2013) by spawning; torchelastic's
//! rendezvous, whose store this needs no compare-and-set of.

mod roster;
mod tuning;
mod waiting;

pub use roster::{Member, Roster};
pub use tuning::Tuning;

use crate::collective::{Call, Communicator};
use crate::error::Error;
use crate::handle::{Advance, Handle, Progress};
use crate::op::Op;
use crate::plan::Plan;
use crate::store::{Store, StoreError};
use crate::transport::{Rank, Transport};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::future::poll_fn;
use core::task::Poll;
use core::time::Duration;
use roster::{BLOCK_BYTES, SurvivorBlock};
use waiting::{Registration, Watch};

/// Interval at which newcomers show that they live, and survivors that nobody is lost.
pub const BEAT: Duration = Duration::from_millis(50);
/// Shortest time limit of the survivors' calls. The leader pauses for a beat between two of them,
/// and looks into the store.
const LEAST_TIMEOUT: Duration = Duration::from_millis(200);
/// Most bytes of an offer.
pub const MAX_OFFER_BYTES: usize = 448;
/// Most bytes of the facts that survivors give to newcomers.
pub const MAX_FACT_BYTES: usize = 64 << 10;
/// Longest patience. Newcomers read it in the store, and wait three times as long at most.
pub const MAX_PATIENCE: Duration = Duration::from_secs(60 * 60);
/// Rest in loops that wait for something other than the network.
const REST: Duration = Duration::from_millis(1);
/// Members may take this many times the patience to connect: one that missed the plan may first
/// wait the patience for others.
const CONNECT_PATIENCES: u32 = 3;
/// In the vote, members wait this many times the patience for one that has connected. If a planned
/// member is dead, it may still wait for that one, for as long as it began to connect later.
const VOTE_PATIENCES: u32 = CONNECT_PATIENCES + 1;
/// Calls of survivors that may fail before `admit` does, beyond one for each survivor.
const SPARE_ATTEMPTS: usize = 4;

/// Makes transports between processes that have told each other where they can be reached.
pub trait Connector {
    /// The transport.
    type Transport: Transport;
    /// Reason why this process cannot connect.
    type Error;

    /// Returns monotonic time since an arbitrary start.
    fn now(&self) -> Duration;

    /// Rests for at most `budget`.
    fn idle(&mut self, budget: Duration);

    /// Returns 128 random bits, different in each call and process.
    ///
    /// # Errors
    /// If the system provides no random numbers.
    fn unique(&mut self) -> Result<u128, Self::Error>;

    /// Prepares this process for a new group, and returns its offer: where it can be reached, and a
    /// proof by the group's secret of that and of `unique`, the process's number in the group's
    /// plan. At most [`MAX_OFFER_BYTES`].
    ///
    /// # Errors
    /// If this process cannot be reached.
    fn offer(&mut self, unique: u128) -> Result<Vec<u8>, Self::Error>;

    /// Returns whether a process that knows the secret has made this offer for this number, and it
    /// fits this process's settings. Both come from a store that anyone may write to.
    fn accepts(&self, unique: u128, offer: &[u8]) -> bool;

    /// Returns a proof by the group's secret that this process has made the plan of a new group. At
    /// most 65535 bytes.
    fn prove(&self, plan: &[u8]) -> Vec<u8>;

    /// Returns whether a process that knows the secret has [proven](Self::prove) this plan. Both
    /// come from a store that anyone may write to.
    fn is_proven(&self, plan: &[u8], proof: &[u8]) -> bool;

    /// Connects as member `rank` to the processes with these offers; `offers[rank]` is the last
    /// offer of this process. Called repeatedly, with the same arguments, until it is ready.
    ///
    /// `plan` is all that this process knows of the group. Two processes may connect only if they
    /// have the same plan and know the secret.
    ///
    /// Members that do not come within `limit` count as lost in the transport.
    ///
    /// # Errors
    /// If this process cannot take part.
    fn poll_connect(
        &mut self,
        rank: usize,
        offers: &[&[u8]],
        plan: &[u8],
        limit: Duration,
    ) -> Poll<Result<Self::Transport, Self::Error>>;
}

/// Wishes of survivors that admit newcomers. The same on all survivors, except the facts.
#[derive(Clone, Copy, Debug)]
pub struct Admission<'a> {
    /// Number of ranks that the group should have. The survivors wait for newcomers until it has,
    /// and admit no more. 0: they admit those that wait already.
    pub size: usize,
    /// Longest wait for newcomers.
    pub limit: Duration,
    /// Longest wait for a rank that does not answer; see [`Communicator::shrink`]. More than
    /// [`MAX_PATIENCE`] counts as that.
    pub patience: Duration,
    /// Number of times that the group has grown. The new group has one more than the survivors'
    /// highest. It rises from admission to admission; a process that [rejoins](rejoin) takes over
    /// the group's. Two halves of a network that splits count on their own.
    pub generation: u64,
    /// Bytes for the newcomers; those of the lowest survivor count. At most [`MAX_FACT_BYTES`].
    pub facts: &'a [u8],
}

/// A new group, before and after its vote.
#[derive(Debug)]
pub struct Grown<T> {
    /// The transport between all planned members, or a communicator of those that are there.
    pub group: T,
    /// The plan.
    pub roster: Roster,
}

/// Reason why this process is in no new group.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GrowError<E> {
    /// The members could not agree. A process that was [excluded](Error::Excluded) may rejoin.
    #[error(transparent)]
    Group(#[from] Error),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// This process cannot connect.
    #[error("{0}")]
    Connect(E),
    /// A survivor cannot take part: its store failed, or it cannot be reached.
    #[error("rank {rank} cannot take part in the new group; read its output")]
    PeerFailed {
        /// The rank, in the survivors' order.
        rank: Rank,
    },
    /// No group has admitted this process within the time limit.
    #[error(
        "no group admitted this process within {limit:?}; do its ranks call admit, with the same \
        store, job and token?"
    )]
    NotAdmitted {
        /// The time limit.
        limit: Duration,
    },
    /// The facts are too long.
    #[error("the facts have {n_bytes} bytes; at most {MAX_FACT_BYTES} are possible")]
    FactsTooLong {
        /// Their length in bytes.
        n_bytes: usize,
    },
}

/// Survivors' side: forms a group of the ranks of `comm` that call this, and of newcomers that wait
/// in the store. Returns the transport between them, for [`vote`].
///
/// The ranks of `comm` call it at the same place of their program, after a failure or without one.
/// Survivors keep their ranks if the new group has them; other survivors, and then newcomers, take
/// the ranks that are left, in order.
///
/// # Errors
/// Any [`GrowError`] but [`NotAdmitted`](GrowError::NotAdmitted). The communicator is then gone.
pub async fn admit<P: Transport, C: Connector>(
    comm: Communicator<P>,
    store: &mut dyn Store,
    connector: &mut C,
    wanted: &Admission<'_>,
) -> Result<Grown<C::Transport>, GrowError<C::Error>> {
    let n_bytes = wanted.facts.len();
    if n_bytes > MAX_FACT_BYTES {
        return Err(GrowError::FactsTooLong { n_bytes });
    }
    let wanted = &Admission { patience: wanted.patience.min(MAX_PATIENCE), ..*wanted };
    let (old_rank, size) = (comm.rank(), comm.size());
    // A rank that cannot be reached tells the others, so that they do not wait for it.
    let unique = connector.unique().map_err(GrowError::Connect)?;
    let offer = connector.offer(unique);
    let own = SurvivorBlock {
        unique,
        old_rank: old_rank.0,
        generation: wanted.generation,
        offer: offer.as_deref().unwrap_or_default(),
    };
    let mut comm = comm;
    // A leader that stops ends the survivors' calls, whatever limits the caller's calls have.
    let config = comm.config_mut();
    config.timeout = wanted.patience.saturating_mul(2).max(LEAST_TIMEOUT);
    config.deadline = None;
    let mut comm = shrink(comm, wanted.patience, store).await?;
    // Attempts whose plan may be in the store although this rank has not got it.
    let mut attempts = Vec::new();
    let mut n_left = size + SPARE_ATTEMPTS;
    let roster = loop {
        // Looked for after a shrink, too: a slow leader may have been left out meanwhile.
        if let Some(roster) = find_plan(store, connector, &attempts, own.unique)? {
            break roster;
        }
        let mut attempt = None;
        match agree(&mut comm, store, connector, wanted, &own, &mut attempt).await {
            Ok(roster) => break roster,
            Err(GrowError::Group(error)) if n_left > 0 && !error.is_usage() => n_left -= 1,
            Err(error) => {
                return Err(match offer {
                    Err(own) => GrowError::Connect(own),
                    Ok(_) => error,
                });
            }
        }
        attempts.extend(attempt);
        if let Some(roster) = find_plan(store, connector, &attempts, own.unique)? {
            break roster;
        }
        comm = shrink(comm, wanted.patience, store).await?;
    };
    // Tells others, which may have missed the plan, that this rank has gone on.
    drop(comm);
    connect(store, connector, roster, own.unique, own.offer).await
}

/// Newcomer's side: waits until a group admits this process. Returns the transport between the
/// members, for [`vote`].
///
/// # Errors
/// [`GrowError::Store`], also if the process that hosts the store computes for longer than the
/// store waits for it; [`GrowError::Connect`]; [`GrowError::NotAdmitted`] if no group has admitted
/// this process within `limit`.
pub async fn rejoin<C: Connector>(
    store: &mut dyn Store,
    connector: &mut C,
    limit: Duration,
) -> Result<Grown<C::Transport>, GrowError<C::Error>> {
    let unique = connector.unique().map_err(GrowError::Connect)?;
    let offer = connector.offer(unique).map_err(GrowError::Connect)?;
    let mut registration = Registration::new(unique, offer.clone());
    let start = connector.now();
    let mut last_beat = None;
    loop {
        let now = connector.now();
        if last_beat.is_none_or(|last| now.saturating_sub(last) >= BEAT) {
            registration.beat(store, now)?;
            last_beat = Some(now);
        }
        if let Some(attempt) = registration.wait(store)?
            && let Some(roster) = find_plan(store, connector, &[attempt], unique)?
        {
            registration.withdraw(store)?;
            return connect(store, connector, roster, unique, &offer).await;
        }
        if now.saturating_sub(start) > limit {
            registration.withdraw(store)?;
            return Err(GrowError::NotAdmitted { limit });
        }
        // The store may have returned at once.
        connector.idle(REST);
        pause().await;
    }
}

/// Last step of both sides: agrees on the members that are there, over the new transport. Serves
/// the store meanwhile: others may still need the plan.
///
/// # Errors
/// As [`Communicator::shrink`], and [`Error::Excluded`] if no survivor is there. A process that was
/// excluded may [`rejoin`].
pub async fn vote<X: Transport>(
    comm: Communicator<X>,
    roster: &Roster,
    store: &mut dyn Store,
) -> Result<Communicator<X>, Error> {
    let comm = shrink(comm, roster.patience.saturating_mul(VOTE_PATIENCES), store).await?;
    let members = (0..comm.size()).filter_map(|rank| comm.transport_rank(Rank::new(rank)));
    roster.check_survivors(members)?;
    Ok(comm)
}

/// Drives a future of this module to its end on this thread.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = core::pin::pin!(future);
    let mut context = core::task::Context::from_waker(core::task::Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
}

/// Survivors agree on a plan. Sets `attempt` once a plan may be in the store.
async fn agree<P: Transport, C: Connector>(
    comm: &mut Communicator<P>,
    store: &mut dyn Store,
    connector: &mut C,
    wanted: &Admission<'_>,
    own: &SurvivorBlock<'_>,
    attempt: &mut Option<u128>,
) -> Result<Roster, GrowError<C::Error>> {
    let leads = comm.rank() == Rank(0);
    // The leader's random number tells this attempt from all others.
    let mut fresh = connector.unique().map_err(GrowError::Connect)?.to_le_bytes();
    let mut blocks = vec![0; comm.size() * BLOCK_BYTES];
    let block = own.encode();
    let gathered = Call::all_gather(&block[..], &mut blocks[..]);
    finish(comm.start(gathered, &Plan::raw())?, store).await?;
    finish(comm.start(Call::broadcast(&mut fresh[..], Rank(0)), &Plan::raw())?, store).await?;
    let survivors: Vec<SurvivorBlock<'_>> = blocks
        .chunks(BLOCK_BYTES)
        .map(SurvivorBlock::decode)
        .collect::<Option<_>>()
        .ok_or(GrowError::Store(StoreError::Damaged))?;
    if let Some(rank) = survivors.iter().position(|survivor| survivor.offer.is_empty()) {
        return Err(GrowError::PeerFailed { rank: Rank::new(rank) });
    }
    *attempt = Some(u128::from_le_bytes(fresh));
    // When the leader has this call's result, all survivors know the attempt. One that loses it
    // after that finds the plan.
    beat(comm, &mut [STATUS_WAITING], store).await?;
    let mut planning = if leads { Some(Watch::new(wanted, connector.now())) } else { None };
    let mut roster = Vec::new();
    loop {
        let mut status = [STATUS_WAITING];
        if let Some(watch) = &mut planning {
            let look = watch.look(store, &*connector, survivors.len());
            let planned = look.and_then(|found| match found {
                None => Ok(STATUS_WAITING),
                Some(newcomers) => {
                    let tuning = Tuning::of(&comm.config);
                    let made = Roster::plan(&survivors, &newcomers, wanted, tuning);
                    roster = made.encode();
                    let proof = connector.prove(&roster);
                    publish(store, u128::from_le_bytes(fresh), &roster, &proof, &newcomers)?;
                    Ok(STATUS_PLANNED)
                }
            });
            // Tell the others of a store that fails, and then return its error.
            status = [planned.unwrap_or(STATUS_FAILED)];
            let own_status = status;
            let told = beat(comm, &mut status, store).await;
            if own_status == [STATUS_FAILED] {
                planned?;
            }
            told?;
        } else {
            beat(comm, &mut status, store).await?;
        }
        match status {
            [STATUS_WAITING] => {}
            [STATUS_PLANNED] => break,
            _ => return Err(GrowError::PeerFailed { rank: Rank(0) }),
        }
        let until = connector.now() + if leads { BEAT } else { Duration::ZERO };
        while connector.now() < until {
            store.progress();
            connector.idle(REST);
            pause().await;
        }
    }
    let mut n_bytes = [roster.len() as u64];
    finish(comm.start(Call::broadcast(&mut n_bytes[..], Rank(0)), &Plan::raw())?, store).await?;
    let n_bytes = usize::try_from(n_bytes[0]).unwrap_or(usize::MAX);
    if n_bytes > crate::store::MAX_VALUE_BYTES {
        return Err(StoreError::TooLong { n_bytes }.into());
    }
    roster.resize(n_bytes, 0);
    finish(comm.start(Call::broadcast(&mut roster[..], Rank(0)), &Plan::raw())?, store).await?;
    let roster = Roster::decode(&roster).ok_or(StoreError::Damaged)?;
    Ok(roster)
}

const STATUS_WAITING: u8 = 0;
const STATUS_PLANNED: u8 = 1;
const STATUS_FAILED: u8 = 2;

/// One call of the survivors: all learn the highest status, or that a rank is lost.
async fn beat<P: Transport>(
    comm: &mut Communicator<P>,
    status: &mut [u8; 1],
    store: &mut dyn Store,
) -> Result<(), Error> {
    let call = Call::all_reduce(&mut status[..], Op::Max);
    finish(comm.start(call, &Plan::raw())?, store).await.map(|_| ())
}

fn plan_key(attempt: u128) -> String {
    format!("plan/{attempt:032x}")
}

/// Writes a plan behind its proof, and names it to the newcomers in it.
fn publish(
    store: &mut dyn Store,
    attempt: u128,
    roster: &[u8],
    proof: &[u8],
    newcomers: &[waiting::Newcomer],
) -> Result<(), StoreError> {
    let value = [&(proof.len() as u16).to_le_bytes(), proof, roster].concat();
    store.set(&plan_key(attempt), &value)?;
    for newcomer in newcomers {
        store.set(&waiting::invitation_key(newcomer.unique), &attempt.to_le_bytes())?;
    }
    Ok(())
}

/// Returns the first plan of these attempts that is in the store and has this process.
///
/// # Errors
/// If the store fails, or somebody who does not know the secret has written a plan.
fn find_plan<C: Connector>(
    store: &mut dyn Store,
    connector: &C,
    attempts: &[u128],
    unique: u128,
) -> Result<Option<Roster>, StoreError> {
    for &attempt in attempts {
        let Some(value) = store.get(&plan_key(attempt))? else { continue };
        let (plan, proof) = split_proof(&value).ok_or(StoreError::Damaged)?;
        if !connector.is_proven(plan, proof) {
            return Err(StoreError::Damaged);
        }
        let roster = Roster::decode(plan).ok_or(StoreError::Damaged)?;
        if roster.rank_of(unique).is_some() {
            return Ok(Some(roster));
        }
    }
    Ok(None)
}

/// Splits the value of a plan into the plan and its proof.
fn split_proof(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let (n_bytes, rest) = value.split_first_chunk()?;
    let (proof, plan) = rest.split_at_checked(usize::from(u16::from_le_bytes(*n_bytes)))?;
    Some((plan, proof))
}

/// Connects to the members of a plan.
async fn connect<C: Connector>(
    store: &mut dyn Store,
    connector: &mut C,
    mut roster: Roster,
    unique: u128,
    own_offer: &[u8],
) -> Result<Grown<C::Transport>, GrowError<C::Error>> {
    let rank = roster.rank_of(unique).ok_or(StoreError::Damaged)?;
    roster.rank = rank;
    // Someone else may have written the plan.
    if roster.members[rank].offer != own_offer {
        return Err(StoreError::Damaged.into());
    }
    let is_strange = |member: &Member| !connector.accepts(member.unique, &member.offer);
    if let Some(stranger) = roster.members.iter().position(is_strange) {
        return Err(GrowError::PeerFailed { rank: Rank::new(stranger) });
    }
    let offers: Vec<&[u8]> = roster.members.iter().map(|member| &member.offer[..]).collect();
    let plan = roster.encode();
    let limit = roster.patience.saturating_mul(CONNECT_PATIENCES);
    loop {
        match connector.poll_connect(rank, &offers, &plan, limit) {
            Poll::Ready(Ok(group)) => return Ok(Grown { group, roster }),
            Poll::Ready(Err(error)) => return Err(GrowError::Connect(error)),
            Poll::Pending => {}
        }
        // Others may still need the plan from a store that this process hosts.
        store.progress();
        pause().await;
    }
}

async fn shrink<P: Transport>(
    comm: Communicator<P>,
    patience: Duration,
    store: &mut dyn Store,
) -> Result<Communicator<P>, Error> {
    finish(comm.start_shrink(patience)?, store).await
}

/// Drives an operation to its end, and rests while nothing moves. Serves the store meanwhile: if
/// this process hosts it, others need it, such as a leader that looks for newcomers.
async fn finish<U: Advance>(mut operation: Handle<U>, store: &mut dyn Store) -> U::Output {
    poll_fn(|context| {
        store.progress();
        match operation.0.advance() {
            Ok(Progress::Finished) => return Poll::Ready(operation.0.output(Ok(()))),
            Ok(Progress::Moved) => {}
            Ok(Progress::Waiting) => operation.0.idle(),
            Err(error) => return Poll::Ready(operation.0.output(Err(error))),
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

/// Lets other tasks of the executor run.
async fn pause() {
    let mut is_first = true;
    poll_fn(|context| {
        if core::mem::take(&mut is_first) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
}
