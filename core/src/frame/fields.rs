//! Access to a call's parameters one by one: as numbers to compare, and in words to show.

use super::{CallHeader, MESSAGE, StepQuantity};
use crate::bound::Quantum;
use crate::codec::CodecId;
use crate::element::DType;
use crate::error::{Error, Field, Value};
use crate::op::OpCode;
use crate::pipeline;
use crate::schedule::{self, Collective, Division};
use crate::transport::Rank;
use bytemuck::checked;

/// Fields in the order of comparison. The kind of call comes first, so that ranks in different
/// calls get an error about the call, not about its count. The library chooses some fields by the
/// kind and the count, such as the codec. They come later.
const FIELDS: [Field; 15] = [
    Field::Context,
    Field::Epoch,
    Field::Sequence,
    Field::Collective,
    Field::Type,
    Field::Op,
    Field::Root,
    Field::Count,
    Field::Codec,
    Field::Pipeline,
    Field::Division,
    Field::Bound,
    Field::Schedule,
    Field::Quantum,
    Field::Lanes,
];

impl CallHeader {
    /// Returns a field as a number. `None` if it is not a parameter of a call.
    pub(crate) const fn number(&self, field: Field) -> Option<u64> {
        Some(match field {
            Field::Context => self.context as u64,
            Field::Epoch => self.epoch as u64,
            Field::Sequence => self.sequence as u64,
            Field::Collective => self.collective as u64,
            Field::Type => self.dtype as u64,
            Field::Op => self.op as u64,
            Field::Codec => self.codec as u64,
            Field::Pipeline => self.pipeline as u64,
            Field::Schedule => self.schedule as u64,
            Field::Lanes => self.lanes as u64,
            Field::Division => self.division as u64,
            Field::Root => self.root as u64,
            Field::Count => self.count,
            Field::Bound => self.measure as u64,
            Field::Quantum => self.step.to_bits(),
            _ => return None,
        })
    }

    /// Returns the first field in which another rank's call differs.
    fn difference(&self, theirs: &Self) -> Option<Field> {
        FIELDS.into_iter().find(|&field| self.number(field) != theirs.number(field))
    }

    /// Returns a value of this field, given as a number, in words.
    fn value(&self, field: Field, number: u64) -> Value {
        let code = u8::try_from(number).unwrap_or(u8::MAX);
        let word = match field {
            Field::Collective if number == MESSAGE => Some("message"),
            Field::Collective => Collective::from_code(code).map(Collective::name),
            Field::Type => DType::from_code(code).map(DType::name),
            Field::Op => OpCode::from_code(code).map(OpCode::name),
            Field::Codec => CodecId::from_code(code).map(CodecId::name),
            // The raw and the fused pipeline have the same code. This finds the name of the fused
            // one.
            Field::Pipeline => {
                let mut known = pipeline::ALL.iter().rev();
                known.find(|known| known.code() == code).map(|known| known.name)
            }
            Field::Schedule => Some(schedule::name_of(code)),
            Field::Division => Division::from_code(code).map(Division::name),
            Field::Bound => checked::try_cast(code).ok().map(StepQuantity::name),
            Field::Quantum => {
                return match (f64::from_bits(number), self.measure) {
                    (_, StepQuantity::Group) => Value::number(number),
                    (setting, StepQuantity::Setting | StepQuantity::Links) => {
                        Value::number(setting as u64)
                    }
                    (0.0, _) => Value::word(number, "lossless"),
                    (step, StepQuantity::Lattice) => {
                        Value::bound(number, Quantum::bound_of_step(step))
                    }
                    (required, _) => Value::bound(number, required),
                };
            }
            _ => None,
        };
        word.map_or(Value::number(number), |word| Value::word(number, word))
    }

    /// Returns the error for a different call of another rank; `None` if the calls are the same.
    pub(crate) fn mismatch(&self, rank: Rank, theirs: &Self) -> Option<Error> {
        let field = self.difference(theirs)?;
        Some(self.mismatch_in(field, rank, theirs.number(field)?))
    }

    /// Returns the error for another rank's value `theirs` of this field.
    pub(crate) fn mismatch_in(&self, field: Field, rank: Rank, theirs: u64) -> Error {
        let ours = self.number(field).unwrap_or(0);
        let [ours, theirs] = [ours, theirs].map(|number| self.value(field, number));
        Error::Mismatch { rank, field, ours, theirs }
    }
}
