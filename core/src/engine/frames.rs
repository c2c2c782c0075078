//! The frames that a lane has.
//!
//! A frame stays here until it is sent or given back. What is computed with frames names them by
//! their [`Place`] and borrows them, so whatever fails, none is lost: they are all still here, and
//! the lane gives them back.

use super::lane::misuse;
use crate::error::Error;
use crate::transport::FRAMES_PER_LANE;

/// A transport's frame.
pub(crate) trait Frame: AsRef<[u8]> + AsMut<[u8]> {}

impl<F: AsRef<[u8]> + AsMut<[u8]>> Frame for F {}

/// Where a frame is. Only the lane that put it there has use for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(usize);

/// Room for the frames of one lane.
pub(super) struct Frames<F> {
    places: [Option<F>; FRAMES_PER_LANE],
}

impl<F: Frame> Frames<F> {
    pub(super) const fn new() -> Self {
        Self { places: [const { None }; FRAMES_PER_LANE] }
    }

    /// Puts a frame into a free place; returns it if there is none.
    pub(super) fn put(&mut self, frame: F) -> Result<Place, F> {
        match self.places.iter().position(Option::is_none) {
            Some(place) => {
                self.places[place] = Some(frame);
                Ok(Place(place))
            }
            None => Err(frame),
        }
    }

    /// Takes a frame out, to send it or to give it back.
    pub(super) fn take(&mut self, place: Place) -> Result<F, Error> {
        self.places[place.0].take().ok_or(misuse())
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.places.iter().flatten().count()
    }

    /// Takes any frame out; `None` if there is none left.
    pub(super) fn take_any(&mut self) -> Option<F> {
        self.places.iter_mut().find_map(Option::take)
    }

    /// A frame's bytes.
    pub(super) fn bytes(&self, place: Place) -> Result<&[u8], Error> {
        self.places[place.0].as_ref().map(AsRef::as_ref).ok_or(misuse())
    }

    /// The bytes of several frames, which are different ones.
    pub(super) fn bytes_mut<const N: usize>(
        &mut self,
        places: [Place; N],
    ) -> Result<[&mut [u8]; N], Error> {
        if places.iter().any(|place| self.places[place.0].is_none()) {
            return Err(misuse());
        }
        let frames =
            self.places.get_disjoint_mut(places.map(|place| place.0)).map_err(|_| misuse())?;
        Ok(frames.map(|frame| frame.as_mut().map_or(&mut [][..], AsMut::as_mut)))
    }
}
