//! Newcomers that wait in the store, and how the survivors' leader finds them.
//!
//! A store has no list of keys, so newcomers take numbered slots. A newcomer writes its random
//! number, its offer and a count to the first slot that is free, and counts on at each beat. Two
//! newcomers may take one slot at the same time. The later one then owns it, and the other one
//! notices at its next beat and takes another.
//!
//! The leader takes a newcomer only after it has seen it count. So one that has died in its slot
//! delays nobody, and its slot becomes free.

use super::roster::Reader;
use super::{Admission, BEAT, Connector, MAX_OFFER_BYTES};
use crate::group::MAX_RANKS;
use crate::store::{Store, StoreError};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// Number of slots, so that all newcomers that a group can have find one.
const N_SLOTS: usize = MAX_RANKS;
/// Most newcomers that the leader remembers.
const MAX_SEEN: usize = 2 * N_SLOTS;
/// The leader looks at this many slots behind the last that was ever used.
const N_EMPTY_SLOTS: usize = 4;
/// A slot whose count has not changed for this many beats is free.
const STALE_BEATS: u32 = 20;
/// The leader takes those that waited already if it has looked for this many beats.
const LOOK_BEATS: u32 = 3;

fn slot_key(slot: usize) -> String {
    format!("join/{slot}")
}

/// Key of the plan that admits a newcomer.
pub(super) fn invitation_key(unique: u128) -> String {
    format!("invite/{unique:032x}")
}

/// A newcomer that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Newcomer {
    pub(super) unique: u128,
    pub(super) offer: Vec<u8>,
}

fn encode(unique: u128, count: u64, offer: &[u8]) -> Vec<u8> {
    let mut value = unique.to_le_bytes().to_vec();
    value.extend(count.to_le_bytes());
    value.extend((offer.len() as u16).to_le_bytes());
    value.extend(offer);
    value
}

/// Reads a slot: random number, count and offer.
fn decode(value: &[u8]) -> Option<(u128, u64, &[u8])> {
    let mut reader = Reader(value);
    let unique = u128::from_le_bytes(reader.array()?);
    let count = u64::from_le_bytes(reader.array()?);
    let offer = reader.offer()?;
    reader.0.is_empty().then_some((unique, count, offer))
}

/// A newcomer's side.
pub(super) struct Registration {
    unique: u128,
    offer: Vec<u8>,
    count: u64,
    slot: Option<usize>,
    /// The slots that others hold: what was seen first, and when.
    held: Vec<(usize, Vec<u8>, Duration)>,
}

impl Registration {
    pub(super) fn new(unique: u128, mut offer: Vec<u8>) -> Self {
        offer.truncate(MAX_OFFER_BYTES);
        Self { unique, offer, count: 0, slot: None, held: Vec::new() }
    }

    /// Counts on in its slot, or takes another one if it has lost it.
    pub(super) fn beat(&mut self, store: &mut dyn Store, now: Duration) -> Result<(), StoreError> {
        if let Some(slot) = self.slot {
            let value = store.get(&slot_key(slot))?;
            let owner = value.as_deref().and_then(decode).map(|(unique, ..)| unique);
            if owner.is_some_and(|owner| owner != self.unique) {
                self.slot = None;
            }
        }
        if self.slot.is_none() {
            self.slot = self.find_slot(store, now)?;
        }
        self.count += 1;
        match self.slot {
            Some(slot) => store.set(&slot_key(slot), &encode(self.unique, self.count, &self.offer)),
            None => Ok(()),
        }
    }

    /// Returns the first slot that is free.
    fn find_slot(
        &mut self,
        store: &mut dyn Store,
        now: Duration,
    ) -> Result<Option<usize>, StoreError> {
        for slot in 0..N_SLOTS {
            let Some(value) = store.get(&slot_key(slot))? else { return Ok(Some(slot)) };
            // A slot with a value that no newcomer writes is free, too.
            if decode(&value).is_none() {
                return Ok(Some(slot));
            }
            match self.held.iter_mut().find(|(held, ..)| *held == slot) {
                None => self.held.push((slot, value, now)),
                Some((_, seen, since)) if *seen == value => {
                    if now.saturating_sub(*since) > STALE_BEATS * BEAT {
                        return Ok(Some(slot));
                    }
                }
                Some((_, seen, since)) => (*seen, *since) = (value, now),
            }
        }
        Ok(None)
    }

    /// Waits for a beat, and returns the attempt that has planned this newcomer.
    pub(super) fn wait(&self, store: &mut dyn Store) -> Result<Option<u128>, StoreError> {
        let Some(value) = store.wait(&invitation_key(self.unique), BEAT)? else { return Ok(None) };
        Ok(value.try_into().ok().map(u128::from_le_bytes))
    }

    /// Frees the slot.
    pub(super) fn withdraw(&mut self, store: &mut dyn Store) -> Result<(), StoreError> {
        self.slot.take().map_or(Ok(()), |slot| store.set(&slot_key(slot), &[]))
    }
}

/// The leader's side.
pub(super) struct Watch {
    /// Number of ranks that the group should have; 0: take those that wait.
    size: usize,
    limit: Duration,
    start: Duration,
    /// Newcomers in the order in which they were seen, their count then, and whether they have
    /// counted on.
    seen: Vec<(Newcomer, u64, bool)>,
}

impl Watch {
    pub(super) fn new(wanted: &Admission<'_>, now: Duration) -> Self {
        Self { size: wanted.size, limit: wanted.limit, start: now, seen: Vec::new() }
    }

    /// Looks at the slots once. Returns the newcomers to admit beside `n_survivors` ranks, once
    /// there are enough of them or time is over.
    pub(super) fn look<C: Connector>(
        &mut self,
        store: &mut dyn Store,
        connector: &C,
        n_survivors: usize,
    ) -> Result<Option<Vec<Newcomer>>, StoreError> {
        let room = match self.size {
            0 => MAX_RANKS,
            size => size,
        };
        let room = room.saturating_sub(n_survivors);
        if room == 0 {
            return Ok(Some(Vec::new()));
        }
        let mut n_empty = 0;
        for slot in 0..N_SLOTS {
            let value = store.get(&slot_key(slot))?;
            n_empty = if value.is_some() { 0 } else { n_empty + 1 };
            if n_empty > N_EMPTY_SLOTS {
                break;
            }
            if let Some((unique, count, offer)) = value.as_deref().and_then(decode) {
                self.see(unique, count, offer, || connector.accepts(unique, offer));
            }
        }
        let live = self.seen.iter().filter(|(.., lives)| *lives);
        let n_live = live.clone().count();
        let waited = connector.now().saturating_sub(self.start);
        // A newcomer that waits already is seen to live within some beats.
        let has_looked = waited >= LOOK_BEATS * BEAT;
        let is_over = has_looked && (self.size == 0 || waited >= self.limit);
        let found = || live.take(room).map(|(newcomer, ..)| newcomer.clone()).collect();
        Ok((n_live >= room || is_over).then(found))
    }

    fn see(&mut self, unique: u128, count: u64, offer: &[u8], accepts: impl FnOnce() -> bool) {
        match self.seen.iter_mut().find(|(newcomer, ..)| newcomer.unique == unique) {
            Some((newcomer, first, lives)) => {
                *lives |= count != *first && newcomer.offer == offer;
            }
            // The offer proves that a newcomer of this number knows the group's secret. But anyone
            // can keep the offers of all newcomers that ever were, and write them to slots.
            None if accepts() => {
                if self.seen.len() >= MAX_SEEN {
                    let Some(at) = self.seen.iter().position(|(.., lives)| !lives) else { return };
                    self.seen.remove(at);
                }
                self.seen.push((Newcomer { unique, offer: offer.to_vec() }, count, false));
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_an_offer_neither_fill_the_memory_nor_displace_who_lives() {
        let wanted = Admission { size: 4, limit: BEAT, patience: BEAT, generation: 0, facts: &[] };
        let mut watch = Watch::new(&wanted, Duration::ZERO);
        let offer = b"an offer";
        for count in [1, 2] {
            watch.see(7, count, offer, || true);
        }
        for copy in 0..3 * MAX_SEEN as u128 {
            watch.see(1000 + copy, 1, offer, || true);
        }
        assert_eq!(watch.seen.len(), MAX_SEEN);
        let living: Vec<u128> = watch
            .seen
            .iter()
            .filter_map(|(newcomer, _, lives)| lives.then_some(newcomer.unique))
            .collect();
        assert_eq!(living, [7]);
        watch.see(9, 1, offer, || false);
        assert!(watch.seen.iter().all(|(newcomer, ..)| newcomer.unique != 9));
    }
}
