//! A plan in words.

use super::{Overlap, Plan, Rounding};
use crate::codec::Prediction;
use crate::fill::Fill;
use crate::schedule::Schedule;
use core::fmt;

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schedule = self.schedule.map_or("any schedule", Schedule::name);
        if self.is_auto {
            f.write_str("chosen for each call; else ")?;
        }
        write!(f, "{schedule} × {} × {}", self.pipeline.name, self.codec.name())?;
        if self.setting != 0 {
            write!(f, " at {}", self.setting)?;
        }
        if self.strides[0] != 0 {
            write!(f, ", rows {} apart, planes {}", self.strides[0], self.strides[1])?;
        }
        if self.prediction != Prediction::Auto {
            write!(f, ", predicted by {}", self.prediction.name())?;
        }
        write!(f, ", {:?} ({:?}, {:?})", self.bound, self.scope, self.spacing)?;
        if self.rounding != Rounding::Nearest {
            write!(f, ", {:?}", self.rounding)?;
        }
        write!(f, ", {:?}, sampling {:?}", self.division, self.sampling)?;
        if self.exact_below > 0 {
            write!(f, ", exact below {} bytes", self.exact_below)?;
        }
        f.write_str(match self.overlap {
            Overlap::Segments => "",
            Overlap::Polling => ", message by message, polling",
            Overlap::Nothing => ", message by message",
        })?;
        if self.lanes != 0 {
            write!(f, ", at most {} lanes", self.lanes)?;
        }
        if self.piece_bytes != 0 {
            write!(f, ", pieces of {} bytes", self.piece_bytes)?;
        }
        if let Some(Fill { value, is_number }) = self.fill {
            write!(f, ", fill value {value:?}{}", if is_number { " as number" } else { "" })?;
        }
        f.write_str(if self.refuses_fill { ", no suspected fill value" } else { "" })?;
        f.write_str(if self.same_bits { "" } else { ", as published" })
    }
}
