//! For fuzzing: both ends of an encrypted connection.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};

use crate::noise::{NoiseChannel, NoiseHandshake};
use crate::secret::SessionSecret;

/// One end of an encrypted connection.
#[allow(missing_debug_implementations, reason = "for fuzzing alone")]
pub struct EncryptedEnd(NoiseChannel);

impl EncryptedEnd {
    /// Returns the connector's end and the acceptor's, after their handshake.
    #[must_use]
    pub fn pair() -> [Self; 2] {
        Self::greet().expect("both know the secret")
    }

    fn greet() -> Result<[Self; 2], snow::Error> {
        let secret = SessionSecret::new(None, b"a group");
        let mut connector = NoiseHandshake::new(true, &secret, &[])?;
        let mut other = NoiseHandshake::new(false, &secret, &[])?;
        other.receive(&connector.key()?)?;
        connector.receive(&other.key()?)?;
        let (answer, connector) = connector.answer()?;
        Ok([connector, other.accept(&answer)?].map(Self))
    }

    /// Sends the rest of the last record, and then writes one record with as many bytes as it can
    /// hold, like a [`Tcp`](crate::Tcp). Returns the number of bytes.
    ///
    /// # Errors
    /// If `to` fails.
    pub fn write(&mut self, to: &mut impl Write, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write(to, slices)
    }

    /// Sends the rest of the last record.
    ///
    /// # Errors
    /// If `to` fails.
    pub fn flush(&mut self, to: &mut impl Write) -> io::Result<()> {
        self.0.flush(to)
    }

    /// Reads like a [`Tcp`](crate::Tcp). Returns 0 at the end of the connection.
    ///
    /// # Errors
    /// If `from` fails; [`InvalidData`](io::ErrorKind::InvalidData) for a forged record.
    pub fn read(
        &mut self,
        from: &mut impl Read,
        slices: &mut [IoSliceMut<'_>],
    ) -> io::Result<usize> {
        self.0.read(from, slices)
    }

    /// Bytes allocated for received and for decrypted data.
    #[must_use]
    pub fn n_held(&self) -> [usize; 2] {
        self.0.n_held()
    }
}
