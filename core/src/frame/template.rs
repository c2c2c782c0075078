//! Header that all messages of one call have in common, encoded once.

use super::{
    AS_FLOATS, CHECKSUM_AT, CallHeader, FROM_AT, HAS_CHECKSUM, HEADER_BYTES, Header, MessageKind,
    checksum_of,
};
use crate::transport::Rank;

/// Offset of the part. The round and the number of values follow it.
const PART_AT: usize = 36;
const OPERANDS_AT: usize = 52;

/// Encoded header of a call's data messages, without the fields that differ between them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Template([u8; HEADER_BYTES]);

/// Fields that differ between the messages of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageFields {
    pub(crate) from: Rank,
    pub(crate) part: u32,
    pub(crate) round: u32,
    pub(crate) n_values: u32,
}

impl Template {
    pub(crate) fn new(call: &CallHeader) -> Self {
        let mut bytes = [0; HEADER_BYTES];
        Header::without_values(MessageKind::Data, *call, Rank(0)).emit(&mut bytes, false);
        Self(bytes)
    }

    /// Returns the template with this call number.
    #[inline]
    pub(crate) const fn numbered(mut self, sequence: u32) -> Self {
        let [a, b, c, d] = sequence.to_le_bytes();
        [self.0[12], self.0[13], self.0[14], self.0[15]] = [a, b, c, d];
        self
    }

    /// Returns the whole header of a message, except for a checksum.
    pub(crate) fn filled(&self, message: &MessageFields, operands: u32, as_floats: bool) -> Self {
        let mut head = self.0;
        let MessageFields { from, part, round, n_values } = *message;
        let fields =
            [(PART_AT, part), (PART_AT + 4, round), (PART_AT + 8, n_values), (FROM_AT, from.0)];
        for (at, field) in fields.into_iter().chain([(OPERANDS_AT, operands)]) {
            head[at..at + 4].copy_from_slice(&field.to_le_bytes());
        }
        if as_floats {
            head[9] |= AS_FLOATS;
        }
        Self(head)
    }

    /// Returns the header with the checksum of a message with this payload.
    fn summed(mut self, payload: &[u8]) -> Self {
        self.0[8] |= HAS_CHECKSUM;
        let sum = checksum_of(&self.0[..CHECKSUM_AT], payload);
        self.0[CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
        self
    }

    /// Returns whether a message begins with this header. With `checksum`, it must also contain the
    /// correct checksum, otherwise none.
    #[inline]
    pub(crate) fn is_of(&self, message: &[u8], checksum: bool) -> bool {
        message.split_first_chunk().is_some_and(|(head, payload)| {
            if checksum { self.summed(payload).is_equal(head) } else { self.is_equal(head) }
        })
    }

    /// Compares without branches. (`==` on so many bytes calls a function, for every message.)
    #[inline]
    fn is_equal(&self, head: &[u8; HEADER_BYTES]) -> bool {
        self.0.iter().zip(head).fold(0, |differing, (ours, theirs)| differing | (ours ^ theirs))
            == 0
    }

    /// Writes what [`Header::emit`] would, in front of the payload that fills the rest of
    /// `message`. `None` if `message` is too short.
    #[inline]
    pub(crate) fn write(self, message: &mut [u8], checksum: bool) -> Option<()> {
        let (head, payload) = message.split_first_chunk_mut()?;
        match checksum {
            true => *head = self.summed(payload).0,
            false => *head = self.0,
        }
        Some(())
    }
}

/// Returns the number of operands that a message claims.
pub(crate) fn operands_of(message: &[u8]) -> Option<u32> {
    message.get(OPERANDS_AT..)?.first_chunk().copied().map(u32::from_le_bytes)
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
            kind: MessageKind::Data,
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

    fn fields_of(header: &Header) -> MessageFields {
        let &Header { from, part, round, n_values, .. } = header;
        MessageFields { from, part, round, n_values }
    }

    #[test]
    fn a_template_writes_what_a_header_does() {
        for (as_floats, checksum) in [(false, false), (true, false), (false, true), (true, true)] {
            let header = Header { as_floats, ..header() };
            let mut expected = vec![7; HEADER_BYTES + 12];
            let mut bytes = expected.clone();
            header.emit(&mut expected, checksum);
            let template = Template::new(&header.call);
            let filled = template.filled(&fields_of(&header), header.operands, as_floats);
            assert_eq!(filled.write(&mut bytes, checksum), Some(()));
            assert_eq!(bytes, expected);
            assert_eq!(filled.write(&mut bytes[..HEADER_BYTES - 1], checksum), None);
        }
    }

    #[test]
    fn a_header_knows_its_messages_and_no_others() {
        let header = header();
        let filled = Template::new(&header.call).filled(&fields_of(&header), 8, false);
        for checksum in [false, true] {
            let mut message = vec![7; HEADER_BYTES + 12];
            header.emit(&mut message, checksum);
            assert!(filled.is_of(&message, checksum));
            assert!(!filled.is_of(&message, !checksum));
            for bit in 0..message.len() * 8 {
                let mut damaged = message.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                // Without a checksum, damage to the payload goes unnoticed.
                let is_payload = bit / 8 >= HEADER_BYTES;
                assert_eq!(filled.is_of(&damaged, checksum), is_payload && !checksum, "bit {bit}");
            }
            assert!(!filled.is_of(&message[..HEADER_BYTES - 1], checksum));
            assert!(!filled.numbered(78).is_of(&message, checksum));
            readdress(&mut message, Rank(1));
            assert!(!filled.is_of(&message, checksum));
        }
    }
}
