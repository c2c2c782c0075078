//! The user's settings, from environment variables. The caller passes a function that reads a
//! variable, so that tests need no environment.

use std::str::FromStr;

use foldwire::op::OpCode;
use foldwire::schedule::Collective;
use foldwire::{Bound, Plan, Spacing};

use crate::decide::{COLLECTIVES, DecisionInput, RankPlacement, index_of};
use crate::rules::RuleList;

/// Encoding of a collective's values in messages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TransferMode {
    /// The MPI library executes all calls.
    Off,
    /// Uncompressed.
    Raw,
    /// Compressed without loss.
    Lossless,
    /// Compressed within this error bound on each operand.
    Lossy(Bound),
}

impl TransferMode {
    /// Plan for Foldwire's collectives. A fill value is for floats. Only a bound needs it.
    ///
    /// Reductions take it as a number, as the MPI library does, which executes the short calls.
    #[must_use]
    pub fn plan(self, spacing: Spacing, fill: Option<f64>) -> Plan {
        match self {
            Self::Off | Self::Raw => Plan::raw(),
            Self::Lossless => Plan::lossless(),
            Self::Lossy(bound) => {
                let plan = Plan::foldwire(bound).with_spacing(spacing);
                fill.map_or(plan, |fill| plan.with_fill_as_number(fill))
            }
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

/// Format of the report at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportFormat {
    /// No report.
    Off,
    /// One line of text.
    Line,
    /// A JSON object.
    Json,
}

/// The user's settings. If they differ between ranks, the MPI library executes all calls.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Rules for some calls, which override `modes`.
    pub rules: RuleList,
    /// Mode for each of [`COLLECTIVES`].
    modes: [TransferMode; COLLECTIVES.len()],
    /// Calls of fewer bytes are passed on to the MPI library. `None`: the threshold depends on mode
    /// and placement ([`min_bytes`](Self::min_bytes)).
    pub min_bytes: Option<usize>,
    /// Choice of the quantization steps within a bound.
    pub spacing: Spacing,
    /// Value that stands for missing data in arrays of floats.
    pub fill: Option<f64>,
    /// True to refuse collectives whose data seem to have a fill value that sets the value range.
    pub refuses_fill: bool,
    /// Encoding of messages: as they are (off), lossless or lossy.
    pub messages: TransferMode,
    /// Messages of fewer bytes are passed on. `None`: a default, and messages between ranks of a
    /// node are passed on.
    pub messages_min_bytes: Option<usize>,
    /// True to log a line for each call.
    pub debug: bool,
    /// Format of the report at the end.
    pub report_format: ReportFormat,
}

// Bytes of the smallest calls that Foldwire makes faster, as measured (README, *When it takes a
// call*).

/// Between ranks that share memory: reductions within a bound, exact reductions, and calls that
/// only move data.
const NEAR_WITHIN_BOUND: usize = 8 << 20;
const NEAR_EXACT: usize = 16 << 20;
const NEAR_MOVED: usize = 32 << 20;
/// Between ranks that hand frames over in shared memory: uncompressed reductions.
const SHARED_RAW: usize = 64 << 10;
/// Over a network: uncompressed calls between more than two ranks, and compressed calls.
const FAR_RAW: usize = 2 << 20;
const FAR_COMPRESSED: usize = 256 << 10;

impl Default for Settings {
    fn default() -> Self {
        Self {
            rules: RuleList::default(),
            modes: [TransferMode::Raw; COLLECTIVES.len()],
            min_bytes: None,
            spacing: Spacing::PowerOfTwo,
            fill: None,
            refuses_fill: false,
            messages: TransferMode::Off,
            messages_min_bytes: None,
            debug: false,
            report_format: ReportFormat::Line,
        }
    }
}

impl Settings {
    /// Reads the variables with `read`, which returns the value of a variable that is set.
    ///
    /// # Errors
    /// Names the variable with an invalid value, and what to write instead.
    pub fn read(read: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let mut settings = Self::default();
        set(&read, "FOLDWIRE_BOUND", &mut settings.modes, |text| {
            Ok([text.parse()?; COLLECTIVES.len()])
        })?;
        for (mode, row) in settings.modes.iter_mut().zip(COLLECTIVES) {
            set(&read, &format!("FOLDWIRE_BOUND_{}", row.variable), mode, str::parse)?;
        }
        let optional_bytes = |text: &str| bytes(text).map(Some);
        set(&read, "FOLDWIRE_RULES", &mut settings.rules, str::parse)?;
        set(&read, "FOLDWIRE_MIN_BYTES", &mut settings.min_bytes, optional_bytes)?;
        set(&read, "FOLDWIRE_STEP", &mut settings.spacing, |text| match text {
            "pow2" => Ok(Spacing::PowerOfTwo),
            "widest" => Ok(Spacing::Widest),
            _ => Err("write pow2 (whole numbers stay) or widest (fewer bytes)".into()),
        })?;
        let mut fill = (None, false);
        set(&read, "FOLDWIRE_FILL", &mut fill, |text| {
            if text == "refuse" {
                return Ok((None, true));
            }
            let number = text.parse().ok().filter(|fill: &f64| !fill.is_nan());
            let wrong = "write a number, as 1e20 or -9999, or refuse; NaN needs no setting";
            number.map(|fill| (Some(fill), false)).ok_or_else(|| wrong.into())
        })?;
        (settings.fill, settings.refuses_fill) = fill;
        set(&read, "FOLDWIRE_MESSAGES", &mut settings.messages, |text| match text.parse() {
            Ok(TransferMode::Raw) => Err("write off, lossless or a bound".into()),
            mode => mode,
        })?;
        let messages_min_bytes = &mut settings.messages_min_bytes;
        set(&read, "FOLDWIRE_MESSAGES_MIN_BYTES", messages_min_bytes, optional_bytes)?;
        set(&read, "FOLDWIRE_DEBUG", &mut settings.debug, |text| match text {
            "0" | "" => Ok(false),
            "1" => Ok(true),
            _ => Err("write 0 or 1".into()),
        })?;
        set(&read, "FOLDWIRE_REPORT", &mut settings.report_format, |text| match text {
            "off" => Ok(ReportFormat::Off),
            "line" => Ok(ReportFormat::Line),
            "json" => Ok(ReportFormat::Json),
            _ => Err("write off, line or json".into()),
        })?;
        Ok(settings)
    }

    /// Mode of a collective's calls to which no rule applies.
    #[must_use]
    pub const fn mode(&self, collective: Collective) -> TransferMode {
        self.modes[index_of(collective)]
    }

    /// Smallest number of bytes of a call in this mode that Foldwire executes. `None` if it
    /// executes no such call.
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
            (RankPlacement::Pair | RankPlacement::Far, ..) => Some(FAR_COMPRESSED),
        })
    }

    /// Returns a faster mode with at least the same guarantee if there is one, else `mode`. Sums
    /// and products between ranks that hand frames over in shared memory are faster uncompressed.
    /// If the user has set a minimum length, the user's mode stays.
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

    /// FNV-1a hash of the version and of the debug text of all settings that influence decisions.
    /// Ranks compare their hashes.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let Self {
            rules,
            modes,
            min_bytes,
            spacing,
            fill,
            refuses_fill,
            messages,
            messages_min_bytes,
            debug: _,
            report_format: _,
        } = self;
        let version = env!("CARGO_PKG_VERSION");
        let text = format!(
            "{version} {rules:?} {modes:?} {min_bytes:?} {spacing:?} {fill:?} {refuses_fill} \
             {messages:?} {messages_min_bytes:?}"
        );
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
    }
}

/// Sets `setting` to the value of a variable, if it is set.
fn set<T>(
    read: impl Fn(&str) -> Option<String>,
    name: &str,
    setting: &mut T,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<(), String> {
    if let Some(value) = read(name) {
        *setting = parse(value.trim()).map_err(|error| format!("{name}={value}: {error}"))?;
    }
    Ok(())
}

/// Parses a number of bytes such as `65536`, `64k`, `8M` or `1G`.
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

/// Warns about environment variables that nothing reads.
pub(crate) fn warn_of_unknown() {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for unknown in foldwire::variables::unknown(names) {
        eprintln!("foldwire: warning: {unknown}");
    }
}
