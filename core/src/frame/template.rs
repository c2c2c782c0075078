//! The header that all messages of one call have in common, written once.

use super::{
    AS_FLOATS, CHECKSUM_AT, CallHeader, FROM_AT, HAS_CHECKSUM, HEADER_BYTES, Header, Kind,
    checksum_of,
};
use crate::transport::Rank;

/// Where a header says what part it is of: part, round, values.
const PART_AT: usize = 36;
const OPERANDS_AT: usize = 52;

/// The header of a call's data, but for what differs between its messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Template([u8; HEADER_BYTES]);

/// What differs between the messages of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) from: Rank,
    pub(crate) part: u32,
    pub(crate) round: u32,
    pub(crate) n_values: u32,
}

impl Template {
    pub(crate) fn new(call: &CallHeader) -> Self {
        let (kind, from, call) = (Kind::Data, Rank(0), *call);
        let (part, round, n_values, n_bytes, operands) = (0, 0, 0, 0, 0);
        let header =
            Header { kind, call, as_floats: false, from, part, round, n_values, n_bytes, operands };
        let mut bytes = [0; HEADER_BYTES];
        header.emit(&mut bytes, false);
        Self(bytes)
    }

    /// Of the call of this number.
    pub(crate) const fn numbered(mut self, sequence: u32) -> Self {
        let [a, b, c, d] = sequence.to_le_bytes();
        [self.0[12], self.0[13], self.0[14], self.0[15]] = [a, b, c, d];
        self
    }

    fn at(&self, place: &Place) -> [u8; HEADER_BYTES] {
        let mut head = self.0;
        head[PART_AT..PART_AT + 4].copy_from_slice(&place.part.to_le_bytes());
        head[PART_AT + 4..PART_AT + 8].copy_from_slice(&place.round.to_le_bytes());
        head[PART_AT + 8..PART_AT + 12].copy_from_slice(&place.n_values.to_le_bytes());
        head[FROM_AT..FROM_AT + 4].copy_from_slice(&place.from.0.to_le_bytes());
        head
    }

    /// The whole header of a message without a checksum.
    pub(crate) fn filled(&self, place: &Place, operands: u32, as_floats: bool) -> Self {
        let mut head = self.at(place);
        if as_floats {
            head[9] |= AS_FLOATS;
        }
        head[OPERANDS_AT..OPERANDS_AT + 4].copy_from_slice(&operands.to_le_bytes());
        Self(head)
    }

    /// Whether the whole header is that of a message.
    #[cfg(feature = "alloc")]
    pub(crate) fn begins(&self, message: &[u8]) -> bool {
        message.first_chunk() == Some(&self.0)
    }

    /// Writes the whole header, if there is room.
    #[cfg(feature = "alloc")]
    pub(crate) fn write(&self, message: &mut [u8]) -> Option<()> {
        *message.first_chunk_mut()? = self.0;
        Some(())
    }

    /// Writes what [`Header::emit`] would, before the payload that is all else in `message`.
    pub(crate) fn emit(
        &self,
        message: &mut [u8],
        place: &Place,
        operands: u32,
        as_floats: bool,
        checksum: bool,
    ) {
        let (room, payload) = message.split_at_mut(HEADER_BYTES);
        let Self(mut head) = self.filled(place, operands, as_floats);
        if checksum {
            head[8] |= HAS_CHECKSUM;
            let sum = checksum_of(&head[..CHECKSUM_AT], payload);
            head[CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
        }
        room.copy_from_slice(&head);
    }

    /// How many operands a message has whose header is of this call and place, says that its
    /// payload is by the call's codec, and has no checksum. `None` says nothing.
    pub(crate) fn operands_of(&self, message: &[u8], place: &Place) -> Option<u32> {
        let head: &[u8; HEADER_BYTES] = message.first_chunk()?;
        let mut expected = self.at(place);
        expected[OPERANDS_AT..CHECKSUM_AT].copy_from_slice(&head[OPERANDS_AT..CHECKSUM_AT]);
        let operands = u32::from_le_bytes(*head[OPERANDS_AT..].first_chunk()?);
        (*head == expected).then_some(operands)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::readdress;
    use std::vec;

    fn header() -> Header {
        let call = CallHeader { sequence: 77, count: 9, ..CallHeader::of_no_call(3, 4) };
        let (from, part, round) = (Rank(70_000), 5, 6);
        let call = CallHeader { codec: crate::codec::CodecId::FzLight, ..call };
        Header {
            kind: Kind::Data,
            call,
            as_floats: false,
            from,
            part,
            round,
            n_values: 7,
            n_bytes: 12,
            operands: 8,
        }
    }

    fn place(header: &Header) -> Place {
        let &Header { from, part, round, n_values, .. } = header;
        Place { from, part, round, n_values }
    }

    #[test]
    fn a_template_writes_what_a_header_does() {
        for (as_floats, checksum) in [(false, false), (true, false), (false, true), (true, true)] {
            let header = Header { as_floats, ..header() };
            let mut expected = vec![7; HEADER_BYTES + 12];
            let mut bytes = expected.clone();
            header.emit(&mut expected, checksum);
            let template = Template::new(&header.call);
            template.emit(&mut bytes, &place(&header), header.operands, as_floats, checksum);
            assert_eq!(bytes, expected);
        }
    }

    #[test]
    fn a_template_knows_its_messages_and_no_others() {
        let header = header();
        let template = Template::new(&header.call);
        let mut message = vec![7; HEADER_BYTES + 12];
        header.emit(&mut message, false);
        assert_eq!(template.operands_of(&message, &place(&header)), Some(8));
        for bit in 0..HEADER_BYTES * 8 {
            let mut damaged = message.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let found = template.operands_of(&damaged, &place(&header));
            // Only the number of operands may be another.
            let is_operands = (OPERANDS_AT..CHECKSUM_AT).contains(&(bit / 8));
            assert_eq!(found.is_some(), is_operands, "bit {bit}");
        }
        assert_eq!(template.operands_of(&message[..HEADER_BYTES - 1], &place(&header)), None);
        readdress(&mut message, Rank(1));
        assert_eq!(template.operands_of(&message, &place(&header)), None);
        header.emit(&mut message, true);
        assert_eq!(template.operands_of(&message, &place(&header)), None);
    }
}
