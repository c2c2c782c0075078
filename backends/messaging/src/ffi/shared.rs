//! Memory shared by the ranks of a node. Each rank has a file in memory, which the others map.
//!
//! ```text
//!   token │ a ring of messages from each rank │ slots of frames
//! ```
//!
//! *Access.* A slot belongs to one process at a time. The process that takes its [`SharedFrame`]
//! from a message owns the slot until it sends the slot in another message. Rings consist of atomic
//! numbers, and every value read from one is checked before use. A rank trusts the others in one
//! point: they do not touch a slot that they have given away. MPI libraries that use shared memory
//! rely on the same. The bytes of a short message in a ring are trusted like a slot's. A process of
//! another user cannot open any of the files.
//!
//! *Devices.* A process locks the pages of a slot when it first owns it, if a device of its own
//! asks for it. They stay locked until the process unmaps the file, so each process locks a slot
//! once.
//!
//! *Commitment.* The system commits memory to a page at its first use, and ends a process by SIGBUS
//! if there is none. With strict accounting (`vm.overcommit_memory` = 2) that may happen long
//! before memory is full. So memory is committed there when a slot is allocated, and a slot that
//! gets none is not used.
//!
//! *Cleanup.* A file in memory has no name. The system frees it when the last process that maps it
//! ends, in whatever way.
#![allow(unsafe_code, reason = "maps memory that processes share")]

use std::fs::File;
use std::io;
use std::mem;
use std::ops::Deref;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::ptr::{self, NonNull};
use std::sync::{Arc, OnceLock};

use foldwire::device::PageLocks;
use foldwire::transport::FRAME_ALIGN;

use super::ring::{MessageRing, RingReceiver, RingSender};
use crate::frame::SlotId;

/// Total size of the slots of a file in bytes, unless [`FEWEST_SLOTS`] need more. The system
/// commits memory to a slot at its first use.
const SLOTS_BYTES: usize = 64 << 20;
const FEWEST_SLOTS: usize = 16;
const PAGE: usize = 4096;
/// Frames of at least this many bytes have staggered offsets, and pages that devices can lock.
const LARGE: usize = 4 * PAGE;
/// Offsets of large frames in a page, by slot in rotation: see [`HeapFrame`](foldwire::HeapFrame).
const FRAME_OFFSETS: [usize; 3] = [PAGE / 4, PAGE / 2, PAGE - PAGE / 4];

/// Random bytes at the start of a rank's file, which identify it.
pub(crate) type RegionToken = [u8; 16];

/// Mapped part of a file.
struct Mapping {
    start: NonNull<u8>,
    n_bytes: usize,
}

// SAFETY: any thread may use the mapped memory. Its contents are atomic numbers, or belong to one
// frame.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `n_bytes` of a file. The file must be that long and must never shrink.
    fn new(file: &File, n_bytes: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the system chooses the address, so the mapping replaces no memory of ours.
        let start = unsafe {
            let (any, how) = (ptr::null_mut(), libc::MAP_SHARED);
            libc::mmap(any, n_bytes, protection, how, file.as_raw_fd(), 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, n_bytes })
    }

    /// Commits memory to `n_bytes` from offset `at`. Returns whether there was enough. Does nothing
    /// before Linux 5.14.
    fn commit(&self, at: usize, n_bytes: usize) -> bool {
        let Some(pages) = self.at(at, n_bytes) else { return false };
        // SAFETY: the range is mapped, and this changes no byte of it.
        let done =
            unsafe { libc::madvise(pages.as_ptr().cast(), n_bytes, libc::MADV_POPULATE_WRITE) };
        let refused = [libc::EFAULT, libc::ENOMEM].map(Some);
        done == 0 || !refused.contains(&io::Error::last_os_error().raw_os_error())
    }

    /// Returns the address of offset `at`, if `n_bytes` from there lie within the mapping.
    fn at(&self, at: usize, n_bytes: usize) -> Option<NonNull<u8>> {
        let is_within = at.checked_add(n_bytes)? <= self.n_bytes;
        // SAFETY: the offset lies within the mapping.
        is_within.then(|| unsafe { self.start.add(at) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: we mapped this memory, and no reference to it is left: each ring and frame keeps
        // the mapping alive by an `Arc`.
        let _ = unsafe { libc::munmap(self.start.as_ptr().cast(), self.n_bytes) };
    }
}

/// Mapped file of a rank, and the locks of its slots' pages.
struct FileMemory {
    /// Locks of each slot that this process has owned. Dropped before the mapping.
    locks: Box<[OnceLock<PageLocks>]>,
    mapping: Mapping,
}

/// Layout of the files of a group, the same in all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegionLayout {
    /// Number of rings in each file: one for each rank of the group, or none.
    pub(crate) n_rings: usize,
    pub(crate) frame_bytes: usize,
}

impl RegionLayout {
    /// Returns the offset of the ring for messages from `rank`. The first page holds the token.
    const fn ring_at(rank: usize) -> usize {
        PAGE + rank * mem::size_of::<MessageRing>()
    }

    const fn slots_at(&self) -> usize {
        Self::ring_at(self.n_rings).next_multiple_of(PAGE)
    }

    /// Returns the size of a slot: a frame, and one page for the frame's offset.
    const fn slot_bytes(&self) -> usize {
        self.frame_bytes.next_multiple_of(PAGE) + PAGE
    }

    const fn n_slots(&self) -> usize {
        let n_slots = SLOTS_BYTES / self.slot_bytes();
        if n_slots > FEWEST_SLOTS { n_slots } else { FEWEST_SLOTS }
    }

    const fn n_bytes(&self) -> usize {
        self.slots_at() + self.n_slots() * self.slot_bytes()
    }

    /// Returns the offset of a frame in its slot.
    const fn frame_offset(&self, slot: usize) -> usize {
        if self.frame_bytes < LARGE { 0 } else { FRAME_OFFSETS[slot % FRAME_OFFSETS.len()] }
    }
}

const _: () = assert!(FRAME_OFFSETS[0].is_multiple_of(FRAME_ALIGN) && FRAME_OFFSETS[2] < PAGE);

/// Frame in shared memory that belongs to this process for now. A dropped frame is lost: its slot
/// is not used again.
pub(crate) struct SharedFrame {
    start: NonNull<u8>,
    n_bytes: usize,
    id: SlotId,
    /// Keeps the memory mapped.
    memory: Arc<FileMemory>,
}

// SAFETY: the owner of the frame has exclusive access to its memory.
unsafe impl Send for SharedFrame {}
// SAFETY: as above.
unsafe impl Sync for SharedFrame {}

impl SharedFrame {
    pub(crate) const fn slot(&self) -> SlotId {
        self.id
    }
}

impl AsRef<[u8]> for SharedFrame {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the memory is mapped as long as `memory` lives, initialised (with zeros), and
        // ours alone.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.n_bytes) }
    }
}

impl AsMut<[u8]> for SharedFrame {
    #[inline]
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; the frame is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.n_bytes) }
    }
}

/// File of one rank, mapped into this process.
pub(crate) struct Region {
    layout: RegionLayout,
    n_slots: usize,
    owner: u32,
    memory: Arc<FileMemory>,
    /// Slots that the owner has allocated.
    n_allocated: u32,
    /// The system promises no more memory than it has.
    is_strict: bool,
}

impl Region {
    /// Creates this rank's file, which begins with the token. Other ranks can open the file until
    /// the returned `File` is dropped.
    pub(crate) fn create(
        layout: RegionLayout,
        owner: u32,
        token: RegionToken,
    ) -> io::Result<(Self, File)> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name is terminated; a returned descriptor is ours alone.
        let file = unsafe {
            match libc::memfd_create(c"foldwire".as_ptr(), flags) {
                fd if fd >= 0 => File::from_raw_fd(fd),
                _ => return Err(io::Error::last_os_error()),
            }
        };
        // Beyond this limit, the system would end the process by SIGXFSZ.
        let longest = longest_file()?;
        if !libc::rlim_t::try_from(layout.n_bytes()).is_ok_and(|n_bytes| n_bytes <= longest) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        file.set_len(layout.n_bytes() as u64)?;
        // SAFETY: passes a descriptor of ours and no pointer.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut region = Self::of(&file, layout, owner)?;
        region.is_strict = is_strict();
        if region.is_strict && !region.memory.mapping.commit(0, layout.slots_at()) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let start = region.memory.mapping.start.as_ptr();
        // SAFETY: no other rank accesses the first page until it learns of the file.
        unsafe { start.copy_from_nonoverlapping(token.as_ptr(), token.len()) };
        Ok((region, file))
    }

    /// Maps the file that another process of this machine has open as descriptor `fd`.
    pub(crate) fn open(
        (process, fd): (u32, i32),
        layout: RegionLayout,
        owner: u32,
        token: RegionToken,
    ) -> io::Result<Self> {
        let mut options = File::options();
        // Opening must not block, whatever kind of file this is.
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        let file = options.open(format!("/proc/{process}/fd/{fd}"))?;
        // SAFETY: passes a descriptor of ours and no pointer.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        // A file that can shrink would crash this process when it touches the lost pages.
        let is_sealed = seals >= 0 && seals & libc::F_SEAL_SHRINK != 0;
        if !is_sealed || file.metadata()?.len() < layout.n_bytes() as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let region = Self::of(&file, layout, owner)?;
        let mut found = RegionToken::default();
        // SAFETY: the first page is mapped, and its owner no longer writes to it.
        unsafe { found.as_mut_ptr().copy_from(region.memory.mapping.start.as_ptr(), found.len()) };
        if found == token { Ok(region) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    fn of(file: &File, layout: RegionLayout, owner: u32) -> io::Result<Self> {
        let (mapping, n_slots) = (Mapping::new(file, layout.n_bytes())?, layout.n_slots());
        let locks = (0..n_slots).map(|_| OnceLock::new()).collect();
        let memory = Arc::new(FileMemory { locks, mapping });
        Ok(Self { n_slots, layout, owner, memory, n_allocated: 0, is_strict: false })
    }

    /// Allocates an unused slot of this rank's own file. Returns `None` if none is left, or if the
    /// system has no memory for it.
    pub(crate) fn allocate(&mut self) -> Option<SharedFrame> {
        let (slot, n_bytes) = (self.n_allocated as usize, self.layout.slot_bytes());
        let at = self.layout.slots_at() + slot * n_bytes;
        if self.is_strict && slot < self.n_slots && !self.memory.mapping.commit(at, n_bytes) {
            return None;
        }
        let frame = self.frame(self.n_allocated)?;
        self.n_allocated += 1;
        Some(frame)
    }

    /// Returns the frame of a slot that now belongs to this process, if the slot exists.
    pub(crate) fn frame(&self, index: u32) -> Option<SharedFrame> {
        let Self { layout, memory, owner, .. } = self;
        let exists = (index as usize) < self.n_slots;
        let slot = exists.then_some(index as usize)?;
        self.lock(slot);
        let at = layout.slots_at() + slot * layout.slot_bytes() + layout.frame_offset(slot);
        let (n_bytes, id) = (layout.frame_bytes, SlotId { owner: *owner, index });
        let (start, memory) = (memory.mapping.at(at, n_bytes)?, Arc::clone(memory));
        Some(SharedFrame { start, n_bytes, id, memory })
    }

    /// Returns whether a frame lies in this file.
    pub(crate) fn has(&self, frame: &SharedFrame) -> bool {
        Arc::ptr_eq(&self.memory, &frame.memory)
    }

    /// Locks the pages of a slot that belongs to this process, the first time that it does.
    fn lock(&self, slot: usize) {
        let Self { layout, memory, .. } = self;
        let (at, n_bytes) = (layout.slots_at() + slot * layout.slot_bytes(), layout.slot_bytes());
        let pages = memory.mapping.at(at, n_bytes).filter(|_| layout.frame_bytes >= LARGE);
        let (Some(pages), Some(locks)) = (pages, memory.locks.get(slot)) else { return };
        locks.get_or_init(|| {
            if !PageLocks::are_wanted() {
                return PageLocks::default();
            }
            // SAFETY: the memory is mapped, initialised (with zeros), and ours for now.
            PageLocks::of(unsafe { std::slice::from_raw_parts(pages.as_ptr(), n_bytes) })
        });
    }

    /// Returns this file's ring for messages from a rank.
    fn ring(&self, from: usize) -> Option<RingRef> {
        let at =
            self.memory.mapping.at(RegionLayout::ring_at(from), mem::size_of::<MessageRing>())?;
        Some(RingRef { at: at.cast(), _memory: Arc::clone(&self.memory) })
    }

    /// Returns the sending end of the ring for messages from this rank, in a peer's file.
    pub(crate) fn sender(&self, own_rank: usize) -> Option<RingSender<RingRef>> {
        Some(RingSender::new(self.ring(own_rank)?))
    }

    /// Returns the receiving end of the ring for messages from rank `from`, in this rank's file.
    pub(crate) fn receiver(&self, from: usize) -> Option<RingReceiver<RingRef>> {
        Some(RingReceiver::new(self.ring(from)?))
    }
}

/// Returns whether the system promises no more memory than it has.
fn is_strict() -> bool {
    let mode = std::fs::read("/proc/sys/vm/overcommit_memory");
    mode.is_ok_and(|mode| mode.first() == Some(&b'2'))
}

/// Returns the size limit of this process's files in bytes (`ulimit -f`).
fn longest_file() -> io::Result<libc::rlim_t> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes to the pointer, which points to a value of this type.
    match unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } {
        0 => Ok(limit.rlim_cur),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A ring in mapped memory.
pub(crate) struct RingRef {
    at: NonNull<MessageRing>,
    _memory: Arc<FileMemory>,
}

// SAFETY: a ring is `Sync`.
unsafe impl Send for RingRef {}

impl Deref for RingRef {
    type Target = MessageRing;

    #[inline]
    fn deref(&self) -> &MessageRing {
        // SAFETY: the memory is mapped as long as `_memory` lives. It is aligned, since files begin
        // at a page and rings are a multiple of their alignment apart. All bit patterns are valid
        // numbers, and a ring's methods keep to the rules of its access.
        unsafe { self.at.as_ref() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::ffi::ring::{RING_DEPTH, RingMessage, SHORT_BYTES};
    use foldwire::device::{PageLock, PageLocker, lock_frames};
    use std::ops::Range;
    use std::process;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    const LAYOUT: RegionLayout = RegionLayout { n_rings: 2, frame_bytes: 20_000 };
    const TOKEN: RegionToken = [7; 16];

    fn pair() -> (Region, Region) {
        let (own, file) = Region::create(LAYOUT, 0, TOKEN).unwrap();
        let there = Region::open((process::id(), file.as_raw_fd()), LAYOUT, 0, TOKEN).unwrap();
        (own, there)
    }

    #[test]
    fn what_one_writes_the_other_reads_when_no_file_is_open_any_more() {
        let (mut own, there) = pair();
        for nth in 0..LAYOUT.n_slots() as u32 {
            let mut frame = own.allocate().unwrap();
            assert_eq!(frame.as_ref().as_ptr().addr() % FRAME_ALIGN, 0);
            assert_eq!(
                (frame.as_ref().len(), frame.slot()),
                (20_000, SlotId { owner: 0, index: nth })
            );
            frame.as_mut()[..1000].fill(nth as u8);
            let same = there.frame(nth).unwrap();
            assert!(same.as_ref()[..1000].iter().all(|&byte| byte == nth as u8));
        }
        assert!(own.allocate().is_none() && there.frame(u32::MAX).is_none());
        let largest = RegionLayout { frame_bytes: 1 << 28, ..LAYOUT };
        assert_eq!(largest.n_slots(), FEWEST_SLOTS);
    }

    /// Pages that are locked now.
    #[derive(Clone, Default)]
    struct Locker(Arc<Mutex<Vec<Range<usize>>>>);

    impl Locker {
        /// Returns how many locks cover these bytes.
        fn n_of(&self, bytes: &[u8]) -> usize {
            let Range { start, end } = bytes.as_ptr_range();
            let locked = self.0.lock().unwrap();
            locked.iter().filter(|it| it.start <= start.addr() && end.addr() <= it.end).count()
        }
    }

    impl PageLocker for Locker {
        fn lock(&self, pages: &[u8]) -> Option<PageLock> {
            let Range { start, end } = pages.as_ptr_range();
            let range = start.addr()..end.addr();
            assert!(range.start.is_multiple_of(PAGE) && range.end.is_multiple_of(PAGE));
            self.0.lock().unwrap().push(range.clone());
            Some(Box::new(Unlock(self.clone(), range)))
        }
    }

    struct Unlock(Locker, Range<usize>);

    impl Drop for Unlock {
        fn drop(&mut self) {
            self.0.0.lock().unwrap().retain(|it| *it != self.1);
        }
    }

    #[test]
    fn each_process_locks_the_pages_of_a_frame_that_it_owns_once() {
        let (mut own, there) = pair();
        let locker = Locker::default();
        let before = own.allocate().unwrap();
        let locking = lock_frames(Arc::new(locker.clone()));
        let frames: Vec<_> = (0..3).map(|_| own.allocate().unwrap()).collect();
        let again = own.frame(frames[0].slot().index).unwrap();
        let of_peer = there.frame(frames[1].slot().index).unwrap();
        let small = RegionLayout { frame_bytes: LARGE - 1, ..LAYOUT };
        let (mut small, _file) = Region::create(small, 0, TOKEN).unwrap();
        let small = small.allocate().unwrap();
        drop(locking);
        let late = own.allocate().unwrap();
        for frame in frames.iter().chain([&again, &of_peer]) {
            assert_eq!(locker.n_of(frame.as_ref()), 1);
        }
        for frame in [&before, &small, &late] {
            assert_eq!(locker.n_of(frame.as_ref()), 0);
        }
        let place = of_peer.as_ref().as_ptr();
        drop((own, frames, again, before, late, there));
        assert_eq!(locker.n_of(of_peer.as_ref()), 1, "a frame keeps its lock");
        drop(of_peer);
        let is_left = |it: &Range<usize>| it.contains(&place.addr());
        assert!(!locker.0.lock().unwrap().iter().any(is_left), "unmapped pages are not locked");
    }

    #[test]
    fn a_file_of_another_kind_or_rank_is_not_mapped() {
        let (_own, file) = Region::create(LAYOUT, 0, TOKEN).unwrap();
        let open = |fd, layout, token| Region::open((process::id(), fd), layout, 0, token);
        let fd = file.as_raw_fd();
        assert!(open(fd, LAYOUT, TOKEN).is_ok());
        assert!(open(fd, LAYOUT, [8; 16]).is_err(), "of another rank");
        assert!(open(fd, RegionLayout { n_rings: 100_000, ..LAYOUT }, TOKEN).is_err(), "too short");
        let other = tempfile();
        assert!(open(other.as_raw_fd(), LAYOUT, TOKEN).is_err(), "a file that may shrink");
        assert!(open(-1, LAYOUT, TOKEN).is_err());
    }

    /// The test runs itself in a process with such a limit.
    #[test]
    fn where_files_must_be_short_there_is_no_shared_memory() {
        const LIMITED: &str = "FOLDWIRE_TEST_SHORT_FILES";
        const NAME: &str = "where_files_must_be_short_there_is_no_shared_memory";
        if std::env::var_os(LIMITED).is_some() {
            assert!(crate::MemoryOffer::new(foldwire::Rank(0), 20_000).is_none());
            return;
        }
        let mut limited = process::Command::new("sh");
        limited.args(["-c", "ulimit -f 2048 && exec \"$0\" \"$@\""]);
        limited.arg(std::env::current_exe().unwrap()).arg(NAME).env(LIMITED, "1");
        let output = limited.output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && told.contains("1 passed"), "{output:?}");
    }

    /// A system without memory answers as for pages that a file does not have.
    #[test]
    fn a_slot_without_memory_is_not_used() {
        let layout = LAYOUT;
        let (mut region, _file) = Region::create(layout, 0, TOKEN).unwrap();
        region.is_strict = true;
        let mut frame = region.allocate().expect("there is memory");
        frame.as_mut().fill(1);

        let file = tempfile();
        file.set_len(layout.slots_at() as u64).unwrap();
        let mut region = Region::of(&file, layout, 0).unwrap();
        assert!(region.memory.mapping.commit(0, layout.slots_at()));
        region.is_strict = true;
        assert!(region.allocate().is_none());
    }

    fn tempfile() -> File {
        static N_MADE: AtomicU32 = AtomicU32::new(0);
        let name = [process::id(), N_MADE.fetch_add(1, Ordering::Relaxed)];
        let path = std::env::temp_dir().join(format!("foldwire-shared-{}-{}", name[0], name[1]));
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.set_len(1 << 30).unwrap();
        std::fs::remove_file(path).unwrap();
        file
    }

    #[test]
    fn messages_come_in_order_and_no_more_than_there_is_room_for() {
        let (own, there) = pair();
        let (mut sender, mut receiver) = (there.sender(1).unwrap(), own.receiver(1).unwrap());
        let message = |nth: u32| {
            let slot = SlotId { owner: nth, index: !nth };
            RingMessage { slot, n_bytes: u64::from(nth) << 30, word: nth / 2 }
        };
        let short = |nth: u32| [nth as u8; SHORT_BYTES];
        let mut push = |nth| sender.push(message(nth), &short(nth));
        let mut pop = || receiver.pop(|message, short| (message, *short));
        let expected = |nth| Some((message(nth), short(nth)));
        assert_eq!(pop(), None);
        (0..RING_DEPTH).for_each(|nth| assert!(push(nth)));
        assert!(!push(0));
        assert_eq!(pop(), expected(0));
        assert!(push(RING_DEPTH) && !push(0));
        (1..=RING_DEPTH).for_each(|nth| assert_eq!(pop(), expected(nth)));
        assert_eq!(pop(), None);

        const N: u32 = 100_000;
        thread::scope(|scope| {
            scope.spawn(|| {
                for nth in 0..N {
                    while !push(nth) {
                        thread::yield_now();
                    }
                }
            });
            for nth in 0..N {
                let found = loop {
                    match pop() {
                        Some(found) => break found,
                        None => thread::yield_now(),
                    }
                };
                assert_eq!(Some(found), expected(nth));
            }
        });
    }
}
