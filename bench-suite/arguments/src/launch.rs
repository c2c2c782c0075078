//! Options of `foldwire launch`.

use std::ffi::OsString;
use std::str::FromStr;
use std::time::Duration;

use crate::values;
use clap::Args;
use foldwire_fields::usage::{UsageError, usage};

const EXAMPLES: &str = "\
Examples:
  foldwire launch -n 4 -- ./program --its options
      Four ranks. Each line of output begins with its rank.
  foldwire launch -n 2 --env RUST_LOG=debug --env 1:FI_LOG_LEVEL=info -- ./program
      A variable for every rank, and one for rank 1 alone.
  foldwire launch -n 8 --timeout 60 --no-prefix -- ./program < input > output
      Rank 0 reads the input. All ranks are ended after a minute.

Every rank reads its place from FOLDWIRE_RANK, FOLDWIRE_SIZE, FOLDWIRE_ROOT (a free port of this
machine), FOLDWIRE_JOB (a new name) and FOLDWIRE_TOKEN (a new secret). Rank 0 has the standard
input, unless that is a terminal. The other ranks have none.

When a rank fails, the others have --grace seconds to end by themselves. Then they receive SIGTERM,
and after the same time again SIGKILL. Both also reach what these ranks have started, even if the
rank itself has ended by then. What a rank left behind before goes on.

All output of ended ranks is forwarded, however slowly it is read. If a process that a rank left
behind holds the output open, forwarding ends after another second, or another 1 MiB.

The exit code is that of the rank that failed first, or 128 + N if signal N ended it. It is 124
after --timeout, and 130 after Ctrl-C or another signal to foldwire. Such a signal ends all ranks,
and a second one kills them. If foldwire itself is killed, a shell that it started kills all
ranks.";

/// Options of `foldwire launch`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct LaunchArgs {
    /// Number of ranks
    #[arg(short = 'n', long, value_name = "N", value_parser = values::ranks)]
    pub ranks: usize,

    /// Set a variable on every rank, or on one; may be given several times
    #[arg(long, value_name = "[RANK:]NAME=VALUE")]
    pub env: Vec<EnvArg>,

    /// Forward lines without their rank in front (always so with a single rank)
    #[arg(long)]
    pub no_prefix: bool,

    /// End all ranks after this time
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<Duration>,

    /// Time that the other ranks have after a failure, and again after SIGTERM
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    pub grace: Duration,

    /// The program and its arguments
    #[arg(
        value_name = "PROGRAM",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub program: Vec<OsString>,
}

/// A variable for one rank or all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvArg {
    /// The rank. `None` for all.
    pub rank: Option<usize>,
    /// Name of the variable.
    pub name: String,
    /// Value of the variable.
    pub value: String,
}

impl FromStr for EnvArg {
    type Err = UsageError;

    fn from_str(text: &str) -> Result<Self, UsageError> {
        let (head, value) = text.split_once('=').ok_or_else(|| {
            usage!("`{text}` sets nothing: write NAME=VALUE, or 2:NAME=VALUE for rank 2")
        })?;
        let (rank, name) = match head.split_once(':') {
            None => (None, head),
            Some((rank, name)) => match rank.parse() {
                Ok(rank) => (Some(rank), name),
                Err(_) => {
                    return Err(usage!(
                        "`{rank}` is no rank: write NAME=VALUE, or 2:NAME=VALUE for rank 2"
                    ));
                }
            },
        };
        if name.is_empty() {
            return Err(usage!("`{text}` has no name before `=`"));
        }
        Ok(Self { rank, name: name.to_owned(), value: value.to_owned() })
    }
}

/// Parses a time in seconds, 0 or more.
fn seconds(text: &str) -> Result<Duration, UsageError> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    // Clock arithmetic with longer times could overflow.
    seconds
        .filter(|time| time.as_secs() <= 366 * 24 * 3600)
        .ok_or_else(|| usage!("`{text}` is no time: write seconds, such as 30 or 0.5"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_for_one_rank_or_all() {
        let arg =
            |rank, name: &str, value: &str| EnvArg { rank, name: name.into(), value: value.into() };
        assert_eq!("A=b".parse(), Ok(arg(None, "A", "b")));
        assert_eq!("A=".parse(), Ok(arg(None, "A", "")));
        assert_eq!("12:A=x=y:z".parse(), Ok(arg(Some(12), "A", "x=y:z")));
        for text in ["A", "", "=b", "x:A=b", ":A=b", "1:=b", "-1:A=b"] {
            assert!(text.parse::<EnvArg>().is_err(), "{text}");
        }
    }

    #[test]
    fn times_are_seconds() {
        assert_eq!(seconds("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(seconds("0"), Ok(Duration::ZERO));
        for text in ["", "-1", "x", "inf", "NaN", "1e300"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
