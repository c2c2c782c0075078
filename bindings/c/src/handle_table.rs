//! Handles: places in a table, with a generation each, so that one that was freed, or never made,
//! is an error and not an address.
//!
//! A handle is a number in the clothes of a pointer: the place in the low half of its bits, the
//! generation in the high one. Generations begin at 1, so none is null; a place whose generations
//! are used up is not used again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::endpoint::{SharedEndpoint, Signals};
use crate::errors::ApiError;
use crate::ffi::types::FW_INVALID_HANDLE;

const HALF: u32 = usize::BITS / 2;
const MOST: usize = (1 << HALF) - 1;

/// What a handle stands for; a communicator's rank and size never change.
#[derive(Clone)]
pub(crate) enum HandleKind {
    Comm { rank: usize, size: usize, signals: Arc<Signals> },
    Request,
}

/// What the table knows of a handle.
#[derive(Clone)]
pub(crate) struct HandleEntry {
    pub(crate) kind: HandleKind,
    pub(crate) endpoint: Arc<SharedEndpoint>,
}

#[derive(Default)]
struct HandleSlot {
    generation: usize,
    entry: Option<HandleEntry>,
}

pub(crate) struct HandleTable {
    slots: Vec<HandleSlot>,
    free: Vec<usize>,
}

static TABLE: Mutex<HandleTable> = Mutex::new(HandleTable { slots: Vec::new(), free: Vec::new() });

/// Nothing in here panics half way.
pub(crate) fn table() -> MutexGuard<'static, HandleTable> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn slot(table: &mut HandleTable, handle: usize) -> Option<(usize, &mut HandleSlot)> {
    let (at, generation) = (handle & MOST, handle >> HALF);
    let slot = table.slots.get_mut(at)?;
    (slot.generation == generation && slot.entry.is_some()).then_some((at, slot))
}

/// A new handle.
pub(crate) fn insert(entry: HandleEntry) -> Result<usize, ApiError> {
    let mut table = table();
    let at = match table.free.pop() {
        Some(at) => at,
        None if table.slots.len() < MOST => {
            table.slots.push(HandleSlot::default());
            table.slots.len() - 1
        }
        None => {
            return Err(ApiError::new(FW_INVALID_HANDLE, "there are too many handles; free some"));
        }
    };
    let slot = &mut table.slots[at];
    slot.generation += 1;
    slot.entry = Some(entry);
    Ok(slot.generation << HALF | at)
}

fn unknown(handle: usize, what: &str) -> ApiError {
    let message = match handle {
        0 => format!("the {what} is NULL"),
        _ => format!("this is no {what}, or no longer: it was freed, or never made"),
    };
    ApiError::new(FW_INVALID_HANDLE, message)
}

/// The part of an entry that `of` finds.
fn lookup<R>(
    handle: usize,
    what: &str,
    of: impl FnOnce(&HandleEntry) -> Option<R>,
) -> Result<R, ApiError> {
    let mut table = table();
    let entry = slot(&mut table, handle).and_then(|(_, slot)| slot.entry.as_ref());
    let Some((entry, found)) = entry.and_then(|entry| Some((entry, of(entry)?))) else {
        return Err(unknown(handle, what));
    };
    entry.endpoint.check_process(what)?;
    Ok(found)
}

/// The communicator of a handle: family, rank and size.
pub(crate) fn comm(handle: usize) -> Result<(Arc<SharedEndpoint>, usize, usize), ApiError> {
    lookup(handle, "communicator", |entry| match entry.kind {
        HandleKind::Comm { rank, size, .. } => Some((Arc::clone(&entry.endpoint), rank, size)),
        HandleKind::Request => None,
    })
}

/// A communicator as other threads may see and end it.
pub(crate) fn signals(handle: usize) -> Result<(Arc<SharedEndpoint>, Arc<Signals>), ApiError> {
    lookup(handle, "communicator", |entry| match &entry.kind {
        HandleKind::Comm { signals, .. } => {
            Some((Arc::clone(&entry.endpoint), Arc::clone(signals)))
        }
        HandleKind::Request => None,
    })
}

/// The family of a request.
pub(crate) fn request(handle: usize) -> Result<Arc<SharedEndpoint>, ApiError> {
    lookup(handle, "request", |entry| match entry.kind {
        HandleKind::Comm { .. } => None,
        HandleKind::Request => Some(Arc::clone(&entry.endpoint)),
    })
}

/// Frees a handle, if it still is one.
pub(crate) fn remove(handle: usize) {
    take(handle);
}

/// Frees a handle; false if it was none. Its entry is dropped once the table is let go.
pub(crate) fn take(handle: usize) -> bool {
    let mut table = table();
    let Some((at, slot)) = slot(&mut table, handle) else { return false };
    let entry = slot.entry.take();
    if slot.generation < MOST {
        table.free.push(at);
    }
    drop(table);
    drop(entry);
    true
}
