//! Settings that all ranks of a group share, which newcomers take over.

use super::roster::Reader;
use crate::collective::Config;
use crate::select::Speeds;
use crate::transport::MAX_LANES;
use alloc::vec::Vec;

/// The part of a [`Config`] that must be the same on all ranks, without
/// [`Config::select`](Config::select), which newcomers must have themselves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuning {
    /// See [`Config::lanes`](Config::lanes).
    pub lanes: usize,
    /// See [`Config::checksum`](Config::checksum).
    pub checksum: Option<bool>,
    /// See [`Config::messages`](Config::messages).
    pub messages: bool,
    /// See [`Config::link_rate`](Config::link_rate).
    pub link_rate: Option<f64>,
    /// See [`Config::speeds`](Config::speeds).
    pub speeds: Speeds,
}

impl Tuning {
    pub(super) fn of(config: &Config) -> Self {
        let Config { lanes, checksum, messages, link_rate, speeds, .. } = *config;
        Self { lanes: lanes.clamp(1, MAX_LANES), checksum, messages, link_rate, speeds }
    }

    /// Returns the configuration with these settings.
    #[must_use]
    pub const fn configure(&self, config: Config) -> Config {
        let Self { lanes, checksum, messages, link_rate, speeds } = *self;
        Config { lanes, checksum, messages, link_rate, speeds, ..config }
    }

    /// A byte each for lanes, checksum (0: as needed, 1: never, 2: always) and messages; the link
    /// rate, 0 if unknown; the speeds.
    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        let checksum = self.checksum.map_or(0, |checksum| 1 + u8::from(checksum));
        bytes.extend([self.lanes as u8, checksum, u8::from(self.messages)]);
        let link_rate = self.link_rate.filter(|rate| *rate > 0.0);
        bytes.extend(link_rate.unwrap_or(0.0).to_le_bytes());
        let mut speeds = self.speeds;
        bytes.extend(speeds.values_mut().iter().flat_map(|speed| speed.to_le_bytes()));
    }

    /// Decodes settings that a configuration can have; `None` otherwise.
    pub(super) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let [lanes, checksum, messages] = reader.array()?;
        let link_rate = f64::from_le_bytes(reader.array()?);
        let mut speeds = Speeds::default();
        for speed in speeds.values_mut() {
            *speed = f32::from_le_bytes(reader.array()?);
            if !(*speed > 0.0 && speed.is_finite()) {
                return None;
            }
        }
        let is_sound = (1..=MAX_LANES).contains(&usize::from(lanes))
            && checksum <= 2
            && messages <= 1
            && link_rate >= 0.0;
        is_sound.then_some(Self {
            lanes: lanes.into(),
            checksum: (checksum > 0).then_some(checksum == 2),
            messages: messages == 1,
            link_rate: (link_rate > 0.0).then_some(link_rate),
            speeds,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::CodecId;

    #[test]
    fn a_newcomer_has_the_settings_of_the_group() {
        let mut config = Config::default();
        for checksum in [None, Some(false), Some(true)] {
            // Links within a process have an infinite rate.
            for link_rate in [None, Some(1.25e8), Some(f64::INFINITY)] {
                config.lanes = 3;
                config.messages = true;
                (config.checksum, config.link_rate) = (checksum, link_rate);
                config.speeds = config.speeds.with(CodecId::Dense, 7e9);
                let tuning = Tuning::of(&config);
                let mut bytes = Vec::new();
                tuning.encode(&mut bytes);
                let mut reader = Reader(&bytes);
                assert_eq!(Tuning::decode(&mut reader), Some(tuning));
                assert!(reader.0.is_empty());
                assert_eq!(Tuning::of(&tuning.configure(Config::default())), tuning);
            }
        }
    }

    #[test]
    fn settings_that_no_group_has_are_refused() {
        let mut bytes = Vec::new();
        Tuning::of(&Config::default()).encode(&mut bytes);
        let nan = f64::NAN.to_le_bytes();
        for (at, wrong) in [
            (0, &[0][..]),
            (0, &[MAX_LANES as u8 + 1]),
            (1, &[3]),
            (2, &[2]),
            (3, &nan),
            (11, &[0; 4]),
            (11, &f32::INFINITY.to_le_bytes()),
        ] {
            let mut changed = bytes.clone();
            changed[at..at + wrong.len()].copy_from_slice(wrong);
            assert_eq!(Tuning::decode(&mut Reader(&changed)), None, "{wrong:?} at {at}");
        }
    }
}
