//! Fields on which ranks can disagree, and each rank's value, in words.

use crate::coded_enum::coded_enum;
use core::fmt::{self, Write as _};

coded_enum! {
    /// Properties of a call or group on which ranks can disagree.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    #[allow(missing_docs)]
    pub enum Field {
        Epoch = 0, "group of survivors";
        Members = 1, "number of survivors";
        Sequence = 2, "number of calls made";
        Collective = 3, "collective";
        Type = 4, "element type";
        Op = 5, "operation";
        Codec = 6, "codec";
        Pipeline = 7, "pipeline";
        Schedule = 8, "schedule";
        Lanes = 9, "number of lanes";
        Division = 10, "division of the array";
        Root = 11, "root";
        Count = 12, "count";
        Bound = 13, "kind of bound (scope, or sampling)";
        Quantum = 14, "bound";
        Source = 15, "sender of the message";
        Part = 16, "part (schedule)";
        Round = 17, "round (frame capacity or lanes)";
        Segment = 18, "segment length (frame capacity)";
        Operands = 19, "number of values combined (schedule)";
        Context = 20, "context (communicator, or number of calls under way)";
        Run = 21, "number of parts in a message (frame capacity)";
        Tag = 22, "tag";
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One rank's value of a [`Field`]. `Display` shows it in words: `sum`, `f32`, `1e-4`, a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    /// The value as it travels in messages.
    number: u64,
    shown: ShownValue,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum ShownValue {
    /// A count, a rank, a number of calls.
    Number,
    /// The name of a choice.
    Word(&'static str),
    /// An error bound on each operand, in the unit of the data or of their value range. The bound
    /// is computed from the transmitted value, so its last digits may differ from the caller's.
    Bound(f64),
}

impl Value {
    pub(crate) const fn number(number: u64) -> Self {
        Self { number, shown: ShownValue::Number }
    }

    pub(crate) const fn word(number: u64, word: &'static str) -> Self {
        Self { number, shown: ShownValue::Word(word) }
    }

    pub(crate) const fn bound(number: u64, bound: f64) -> Self {
        Self { number, shown: ShownValue::Bound(bound) }
    }

    /// Returns the value as it travels in messages: a number, a code, or the bits of a
    /// [`CallHeader::step`](crate::frame::CallHeader::step).
    pub(crate) const fn as_number(self) -> u64 {
        self.number
    }

    /// Returns the value as shown next to the other rank's. Bounds have six digits, or all digits
    /// if both round to the same six.
    pub(super) fn beside(self, other: Self) -> impl fmt::Display {
        ValueBeside { value: self, exactly: self.rounded() == other.rounded() }
    }

    /// Rounds a bound to six digits.
    fn rounded(self) -> ShownValue {
        let ShownValue::Bound(bound) = self.shown else { return self.shown };
        let mut digits = heapless::String::<32>::new();
        let is_written = write!(digits, "{bound:.5e}").is_ok();
        let rounded = if is_written { digits.parse().ok() } else { None };
        ShownValue::Bound(rounded.unwrap_or(bound))
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rounded() {
            ShownValue::Number => self.number.fmt(f),
            ShownValue::Word(word) => f.write_str(word),
            ShownValue::Bound(bound) => write!(f, "{bound:e}"),
        }
    }
}

struct ValueBeside {
    value: Value,
    /// True to show all digits of a bound.
    exactly: bool,
}

impl fmt::Display for ValueBeside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value.shown {
            ShownValue::Bound(bound) if self.exactly => write!(f, "{bound:e}"),
            _ => self.value.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::transport::Rank;
    use std::string::ToString;

    #[test]
    fn codes_of_fields_are_their_places() {
        for (place, &field) in Field::ALL.iter().enumerate() {
            assert_eq!(field as usize, place);
            assert_eq!(Field::from_code(place as u8), Some(field));
        }
        assert_eq!(Field::from_code(Field::ALL.len() as u8), None);
    }

    #[test]
    fn people_read_words_and_bounds_as_they_wrote_them() {
        let said = |field, ours, theirs| {
            let message = Error::Mismatch { rank: Rank(3), field, ours, theirs }.to_string();
            message.strip_prefix("rank 3 disagrees on the ").unwrap_or_default().to_string()
        };
        let [sum, avg] = ["sum", "avg"].map(|word| Value::word(0, word));
        assert_eq!(said(Field::Op, sum, avg), "operation: avg there, sum here");
        let [a, b] = [1e-4 * (1.0 + 1e-9), 1e-3].map(|bound| Value::bound(0, bound));
        assert_eq!(said(Field::Quantum, a, b), "bound: 1e-3 there, 1e-4 here");
        let close = Value::bound(0, 1e-3 * (1.0 + 1e-9));
        assert_eq!(said(Field::Quantum, b, close), "bound: 1.000000001e-3 there, 1e-3 here");
        let count = said(Field::Count, Value::number(5), Value::number(6));
        assert_eq!(count, "count: 6 there, 5 here");
    }
}
