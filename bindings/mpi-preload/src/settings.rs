//! What the user wants, from environment variables. Pure: the environment is a function.

use std::str::FromStr;

use foldwire::op::OpCode;
use foldwire::schedule::Collective;
use foldwire::{Bound, Plan, Spacing};

use crate::decide::{COLLECTIVES, DecisionInput, RankPlacement, index_of};
use crate::rules::RuleList;

/// How values of a collective may travel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TransferMode {
    /// All calls go to the MPI library.
    Off,
    /// As they are.
    Raw,
    /// Compressed, with nothing lost.
    Lossless,
    /// Compressed within this bound on each operand.
    Lossy(Bound),
}

impl TransferMode {
    /// The plan of calls that are taken.
    #[must_use]
    pub fn plan(self, spacing: Spacing) -> Plan {
        match self {
            Self::Off | Self::Raw => Plan::raw(),
            Self::Lossless => Plan::lossless(),
            Self::Lossy(bound) => Plan::foldwire(bound).with_spacing(spacing),
        }
    }
}

impl FromStr for TransferMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "off" => Self::Off,
            "raw" => Self::Raw,
            "lossless" => Self::Lossless,
            _ => {
                let bound: Bound = text.parse().map_err(|error| {
                    format!("{error}; or write off, raw (values as they are) or lossless")
                })?;
                bound.check_on_operands().map_err(|error| error.to_string())?;
                Self::Lossy(bound)
            }
        })
    }
}

/// What is said at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportFormat {
    /// Nothing.
    Off,
    /// A line.
    Line,
    /// An object of JSON.
    Json,
}

/// What the user wants; the same on all ranks, or nothing is taken.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Of some calls, before what follows.
    pub rules: RuleList,
    /// Of each of [`COLLECTIVES`].
    modes: [TransferMode; COLLECTIVES.len()],
    /// Calls of fewer bytes are passed on; `None`: by where the ranks are.
    pub min_bytes: Option<usize>,
    /// How far apart the values are that a bound lets codecs choose from.
    pub spacing: Spacing,
    /// A line for each call.
    pub debug: bool,
    /// What is said at the end.
    pub report_format: ReportFormat,
}

/// From so many bytes on calls pay between ranks that share memory: reductions within a bound,
/// exact ones, and what only moves values by a codec (README, *From where on it pays*).
const NEAR_WITHIN_BOUND: usize = 8 << 20;
const NEAR_EXACT: usize = 16 << 20;
const NEAR_MOVED: usize = 32 << 20;
/// Reductions as they are, where frames are handed over.
const SHARED_RAW: usize = 64 << 10;
/// And over a network: values as they are, if there are more than two ranks, and by a codec.
const FAR_RAW: usize = 2 << 20;
const FAR_CODED: usize = 256 << 10;

impl Default for Settings {
    fn default() -> Self {
        Self {
            rules: RuleList::default(),
            modes: [TransferMode::Raw; COLLECTIVES.len()],
            min_bytes: None,
            spacing: Spacing::PowerOfTwo,
            debug: false,
            report_format: ReportFormat::Line,
        }
    }
}

impl Settings {
    /// Reads the variables by `read`, which says the value of one that is set.
    ///
    /// # Errors
    /// Which variable has a value that means nothing, and what to write instead.
    pub fn read(read: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let mut settings = Self::default();
        let take = |name: &str, set: &mut dyn FnMut(&str) -> Result<(), String>| {
            let Some(value) = read(name) else { return Ok(()) };
            set(value.trim()).map_err(|error| format!("{name}={value}: {error}"))
        };
        take("FOLDWIRE_BOUND", &mut |value| {
            settings.modes = [value.parse()?; COLLECTIVES.len()];
            Ok(())
        })?;
        for (mode, row) in settings.modes.iter_mut().zip(COLLECTIVES) {
            take(&format!("FOLDWIRE_BOUND_{}", row.variable), &mut |value| {
                *mode = value.parse()?;
                Ok(())
            })?;
        }
        take("FOLDWIRE_RULES", &mut |value| {
            settings.rules = value.parse()?;
            Ok(())
        })?;
        take("FOLDWIRE_MIN_BYTES", &mut |value| {
            settings.min_bytes = Some(bytes(value)?);
            Ok(())
        })?;
        take("FOLDWIRE_STEP", &mut |value| {
            settings.spacing = match value {
                "pow2" => Spacing::PowerOfTwo,
                "widest" => Spacing::Widest,
                _ => return Err("write pow2 (whole numbers stay) or widest (fewer bytes)".into()),
            };
            Ok(())
        })?;
        take("FOLDWIRE_DEBUG", &mut |value| {
            settings.debug = match value {
                "0" | "" => false,
                "1" => true,
                _ => return Err("write 0 or 1".into()),
            };
            Ok(())
        })?;
        take("FOLDWIRE_REPORT", &mut |value| {
            settings.report_format = match value {
                "off" => ReportFormat::Off,
                "line" => ReportFormat::Line,
                "json" => ReportFormat::Json,
                _ => return Err("write off, line or json".into()),
            };
            Ok(())
        })?;
        Ok(settings)
    }

    /// How values of a collective travel where no row of the rules fits.
    #[must_use]
    pub const fn mode(&self, collective: Collective) -> TransferMode {
        self.modes[index_of(collective)]
    }

    /// The fewest bytes of a call that is taken, whose values travel this way; `None`: none is.
    #[must_use]
    pub fn min_bytes(
        &self,
        mode: TransferMode,
        reduces: bool,
        placement: RankPlacement,
    ) -> Option<usize> {
        self.min_bytes.or(match (placement, mode, reduces) {
            (RankPlacement::Shared, TransferMode::Off | TransferMode::Raw, true) => {
                Some(SHARED_RAW)
            }
            (RankPlacement::Shared | RankPlacement::Near, TransferMode::Lossy(_), true) => {
                Some(NEAR_WITHIN_BOUND)
            }
            (RankPlacement::Shared | RankPlacement::Near, _, true) => Some(NEAR_EXACT),
            (RankPlacement::Shared | RankPlacement::Near, _, false) => Some(NEAR_MOVED),
            (RankPlacement::Pair, TransferMode::Off | TransferMode::Raw, _) => None,
            (RankPlacement::Far, TransferMode::Off | TransferMode::Raw, _) => Some(FAR_RAW),
            (RankPlacement::Pair | RankPlacement::Far, ..) => Some(FAR_CODED),
        })
    }

    /// A way that is sooner, and promises no less: where frames are handed over, sums and products
    /// go as they are, unless the user has said from where on calls are taken.
    #[must_use]
    pub const fn faster_mode(&self, mode: TransferMode, input: &DecisionInput) -> TransferMode {
        match (input.placement, input.op) {
            (RankPlacement::Shared, Some(OpCode::Sum | OpCode::Prod))
                if self.min_bytes.is_none() =>
            {
                TransferMode::Raw
            }
            _ => mode,
        }
    }

    /// A number that differs where what routes depend on does: FNV-1a of all of it in words, and
    /// of the version.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let Self { rules, modes, min_bytes, spacing, debug: _, report_format: _ } = self;
        let version = env!("CARGO_PKG_VERSION");
        let text = format!("{version} {rules:?} {modes:?} {min_bytes:?} {spacing:?}");
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
    }
}

/// A number of bytes, as `65536`, `64k`, `8M` or `1G`.
pub(crate) fn bytes(text: &str) -> Result<usize, String> {
    let (number, shift) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: Option<usize> = number.parse().ok();
    number
        .and_then(|number| number.checked_mul(1 << shift))
        .ok_or_else(|| "write a number of bytes, as 65536, 64k or 8M".to_owned())
}

/// Says which variables of the environment nobody reads.
pub(crate) fn warn_of_unknown() {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for unknown in foldwire::variables::unknown(names) {
        eprintln!("foldwire: warning: {unknown}");
    }
}
