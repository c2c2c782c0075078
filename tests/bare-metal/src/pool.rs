//! The frames of this machine, in static memory that is taken once.
//!
//! A frame is a unique reference to its slot. So ownership passes between the ranks without a copy,
//! as it would between a driver and its DMA engine.

use crate::loopback::{LANES, LINK_DEPTH};
use foldwire::transport::{FRAMES_PER_LANE, Tag};
use heapless::Vec;
use static_cell::ConstStaticCell;

/// Bytes in a frame.
pub const FRAME_BYTES: usize = 8192;

/// Number of frames that both ranks' lanes and all links can hold. So the pool is never empty when
/// a rank needs a frame.
pub const N_FRAMES: usize = 2 * (LANES * FRAMES_PER_LANE + Tag::COUNT * LINK_DEPTH);

#[repr(C, align(64))]
struct FrameSlot([u8; FRAME_BYTES]);

const _: () = assert!(align_of::<FrameSlot>() == foldwire::transport::FRAME_ALIGN);

static SLOTS: ConstStaticCell<[FrameSlot; N_FRAMES]> =
    ConstStaticCell::new([const { FrameSlot([0; FRAME_BYTES]) }; N_FRAMES]);

/// A message buffer: the only reference to its slot.
pub struct StaticFrame(&'static mut FrameSlot);

impl AsRef<[u8]> for StaticFrame {
    fn as_ref(&self) -> &[u8] {
        &self.0.0
    }
}

impl AsMut<[u8]> for StaticFrame {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0.0
    }
}

/// Frames that are not in use.
pub type FreeFrames = Vec<StaticFrame, N_FRAMES>;

/// Takes all frames; `None` if they were taken before.
#[must_use]
pub fn take() -> Option<FreeFrames> {
    Some(SLOTS.try_take()?.iter_mut().map(StaticFrame).collect())
}
