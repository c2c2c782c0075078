//! The table of handles. A handle is an index with a generation, so that a freed or invented handle
//! is an error, not an invalid address.
//!
//! A handle has the type of a pointer, but is a number. The low half of its bits is the index of a
//! slot, the high half the slot's generation. Generations start at 1, so no handle is null. A slot
//! whose generations are used up is not reused.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::endpoint::{SharedEndpoint, Signals};
use crate::errors::ApiError;
use crate::ffi::types::FW_INVALID_HANDLE;

/// Number of bits of the index, and of the generation.
const HALF: u32 = usize::BITS / 2;
/// Largest index and generation.
const MOST: usize = (1 << HALF) - 1;

/// Kind of a handle. A communicator's rank and size never change, so the table stores copies.
#[derive(Clone)]
pub(crate) enum HandleKind {
    Comm { rank: usize, size: usize, signals: Arc<Signals> },
    Request,
}

/// Contents of a slot.
#[derive(Clone)]
pub(crate) struct HandleEntry {
    pub(crate) kind: HandleKind,
    pub(crate) endpoint: Arc<SharedEndpoint>,
}

/// A slot of the table.
#[derive(Default)]
struct HandleSlot {
    generation: usize,
    entry: Option<HandleEntry>,
}

/// All handles of this process.
pub(crate) struct HandleTable {
    slots: Vec<HandleSlot>,
    free: Vec<usize>,
}

static TABLE: Mutex<HandleTable> = Mutex::new(HandleTable { slots: Vec::new(), free: Vec::new() });

/// Locks the table. A poisoned lock is ignored: no panic can leave the table inconsistent.
pub(crate) fn table() -> MutexGuard<'static, HandleTable> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the slot of a valid handle, and its index.
fn slot(table: &mut HandleTable, handle: usize) -> Option<(usize, &mut HandleSlot)> {
    let (at, generation) = (handle & MOST, handle >> HALF);
    let slot = table.slots.get_mut(at)?;
    (slot.generation == generation && slot.entry.is_some()).then_some((at, slot))
}

/// Creates a handle.
///
/// # Errors
/// If all slots are in use.
pub(crate) fn insert(entry: HandleEntry) -> Result<usize, ApiError> {
    let mut table = table();
    let at = match table.free.pop() {
        Some(at) => at,
        None if table.slots.len() < MOST => {
            table.slots.push(HandleSlot::default());
            table.slots.len() - 1
        }
        None => {
            return Err(ApiError::new(FW_INVALID_HANDLE, "too many handles are in use; free some"));
        }
    };
    let slot = &mut table.slots[at];
    slot.generation += 1;
    slot.entry = Some(entry);
    Ok(slot.generation << HALF | at)
}

/// The error for an invalid handle.
fn unknown(handle: usize, what: &str) -> ApiError {
    let message = match handle {
        0 => format!("the {what} is NULL"),
        _ => format!("this {what} does not exist: it was freed, or never created"),
    };
    ApiError::new(FW_INVALID_HANDLE, message)
}

/// Looks up a handle and returns what `of` extracts from its entry.
///
/// # Errors
/// If the handle is invalid, `of` returns `None`, or the entry belongs to another process.
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

/// Returns the endpoint, rank and size of a communicator.
pub(crate) fn comm(handle: usize) -> Result<(Arc<SharedEndpoint>, usize, usize), ApiError> {
    lookup(handle, "communicator", |entry| match entry.kind {
        HandleKind::Comm { rank, size, .. } => Some((Arc::clone(&entry.endpoint), rank, size)),
        HandleKind::Request => None,
    })
}

/// Returns the endpoint of a communicator, and the signals that all threads may use.
pub(crate) fn signals(handle: usize) -> Result<(Arc<SharedEndpoint>, Arc<Signals>), ApiError> {
    lookup(handle, "communicator", |entry| match &entry.kind {
        HandleKind::Comm { signals, .. } => {
            Some((Arc::clone(&entry.endpoint), Arc::clone(signals)))
        }
        HandleKind::Request => None,
    })
}

/// Returns the endpoint of a request.
pub(crate) fn request(handle: usize) -> Result<Arc<SharedEndpoint>, ApiError> {
    lookup(handle, "request", |entry| match entry.kind {
        HandleKind::Comm { .. } => None,
        HandleKind::Request => Some(Arc::clone(&entry.endpoint)),
    })
}

/// Frees a handle. Does nothing if it is invalid.
pub(crate) fn remove(handle: usize) {
    take(handle);
}

/// Frees a handle. Returns false if it is invalid. The entry is dropped after the table is
/// unlocked, because its drop may take long.
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
