//! Encrypted connections.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};

use crate::noise::{NoiseChannel, NoiseHandshake};
use crate::secret::{NONCE_BYTES, SessionSecret};

/// One end of an encrypted connection.
#[allow(missing_debug_implementations, reason = "for fuzzing alone")]
pub struct EncryptedEnd(NoiseChannel);

impl EncryptedEnd {
    /// The end that connects, and the other, once they know each other.
    #[must_use]
    pub fn pair() -> [Self; 2] {
        Self::greet().expect("both know the secret")
    }

    fn greet() -> Result<[Self; 2], snow::Error> {
        let secret = SessionSecret::new(None, &[[7; NONCE_BYTES]]);
        let mut connector = NoiseHandshake::new(true, &secret, &[])?;
        let mut other = NoiseHandshake::new(false, &secret, &[])?;
        other.receive(&connector.key()?)?;
        connector.receive(&other.key()?)?;
        let (answer, connector) = connector.answer()?;
        Ok([connector, other.accept(&answer)?].map(Self))
    }

    /// Writes as a [`Tcp`](crate::Tcp) does: as much as one record holds, once the last has left.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn write(&mut self, to: &mut impl Write, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write(to, slices)
    }

    /// Hands on what is left of the last record.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn flush(&mut self, to: &mut impl Write) -> io::Result<()> {
        self.0.flush(to)
    }

    /// Reads as a [`Tcp`](crate::Tcp) does; 0 bytes are the end.
    ///
    /// # Errors
    /// Those of `from`; [`InvalidData`](io::ErrorKind::InvalidData) for what is forged.
    pub fn read(
        &mut self,
        from: &mut impl Read,
        slices: &mut [IoSliceMut<'_>],
    ) -> io::Result<usize> {
        self.0.read(from, slices)
    }

    /// Bytes of the memory for what comes, and of that for what was decrypted.
    #[must_use]
    pub fn n_held(&self) -> [usize; 2] {
        self.0.n_held()
    }
}
