//! Sizes of arrays on the command line: `0,4,1K:64M`, `1K:1M:4`.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use foldwire_fields::usage::{UsageError, usage};

/// Largest size of an array, in bytes.
pub const MAX_SIZE: usize = 1 << 40;
/// Largest number of sizes in a list.
const MAX_SIZES: usize = 256;

/// A list of sizes in bytes, ascending, each once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SizeList(Vec<usize>);

impl SizeList {
    /// The sizes.
    pub fn n_bytes(&self) -> &[usize] {
        &self.0
    }
}

impl FromStr for SizeList {
    type Err = UsageError;

    fn from_str(text: &str) -> Result<Self, UsageError> {
        let mut sizes = Vec::new();
        for item in text.split(',') {
            let Some(range) = range(item) else {
                return Err(usage!(
                    "`{item}` is no size: write bytes (4, 64K, 16M, 1G, in powers of 1024; 646MB, \
                     in powers of 1000), or a range as in 1K:64M (each twice the one before) or \
                     1K:64M:4 (four times)"
                ));
            };
            sizes.extend(range);
        }
        sizes.sort_unstable();
        sizes.dedup();
        if sizes.len() > MAX_SIZES {
            return Err(usage!("these are {} sizes; ask for at most {MAX_SIZES}", sizes.len()));
        }
        Ok(Self(sizes))
    }
}

/// Parses the size of an array.
pub(super) fn one(text: &str) -> Result<usize, String> {
    let n_bytes = n_bytes(text).filter(|&n| n <= MAX_SIZE);
    n_bytes.ok_or_else(|| "a size is needed, such as 64M, 646MB or 1G, 1024G at most".to_owned())
}

/// Parses the sizes of one item of the list.
fn range(item: &str) -> Option<Vec<usize>> {
    let parts: Vec<&str> = item.split(':').collect();
    let (first, last, factor) = match parts[..] {
        [only] => return n_bytes(only).map(|n| vec![n]),
        [first, last] => (n_bytes(first)?, n_bytes(last)?, 2),
        [first, last, factor] => (n_bytes(first)?, n_bytes(last)?, factor.parse().ok()?),
        _ => return None,
    };
    // A range from zero would never grow.
    if first == 0 || first > last || factor < 2 {
        return None;
    }
    let next = |n: &usize| n.checked_mul(factor);
    Some(std::iter::successors(Some(first), next).take_while(|&n| n <= last).collect())
}

/// Returns a parser of lists of numbers of ranks.
pub fn ranks(
    range: RangeInclusive<usize>,
) -> impl Fn(&str) -> Result<SizeList, String> + Clone + Send + Sync + 'static {
    move |text| {
        let list = text.parse::<SizeList>().ok();
        let list = list.filter(|list| list.n_bytes().iter().all(|n| range.contains(n)));
        let (least, most) = (range.start(), range.end());
        list.ok_or_else(|| {
            format!(
                "numbers from {least} to {most} are needed, as in 2:512 (each twice the one \
                 before) or 8,64,100"
            )
        })
    }
}

/// Parses a number of bytes with or without a unit: of 1024 (K, M, G, also as KiB, MiB, GiB), or of
/// 1000 (kB, MB, GB).
pub fn n_bytes(text: &str) -> Option<usize> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        _ => return None,
    };
    number.parse::<usize>().ok()?.checked_mul(factor)
}

/// A size that prints as on the command line, in the largest unit without a fraction.
#[derive(Debug, Clone, Copy)]
pub struct Size(pub usize);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(30, "G"), (20, "M"), (10, "K")];
        let fitting =
            units.into_iter().find(|&(shift, _)| self.0 > 0 && self.0.is_multiple_of(1 << shift));
        match fitting {
            Some((shift, unit)) => f.pad(&format!("{}{unit}", self.0 >> shift)),
            None => f.pad(&self.0.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Vec<usize> {
        text.parse::<SizeList>().unwrap().n_bytes().to_vec()
    }

    #[test]
    fn ranges_and_sizes_make_one_ascending_list() {
        assert_eq!(list("0,4,1K:8K"), [0, 4, 1024, 2048, 4096, 8192]);
        assert_eq!(list("1K:64K:4"), [1024, 4096, 16384, 65536]);
        assert_eq!(list("3:20"), [3, 6, 12]);
        assert_eq!(list("64K,1k,65536,1KiB"), [1024, 65536]);
        assert_eq!(list("1G"), [1 << 30]);
        assert_eq!(list("646MB,2kB"), [2000, 646_000_000]);
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for wrong in [
            "",
            "x",
            "-4",
            "1.5M",
            "4,,8",
            "0:8",
            "8:4",
            "1K:64K:1",
            "1:2:3:4",
            "1T",
            "99999999999999999999",
        ] {
            let message = wrong.parse::<SizeList>().unwrap_err().to_string();
            assert!(message.contains("no size"), "{wrong}: {message}");
        }
        assert!(
            "1:1G:2,3:1G,5:1G,7:1G,9:1G,11:1G,13:1G,15:1G,17:1G,19:1G".parse::<SizeList>().is_err()
        );
    }

    #[test]
    fn sizes_print_as_they_are_written() {
        for text in ["0", "4", "1K", "1025", "96K", "64M", "2G"] {
            assert_eq!(Size(n_bytes(text).unwrap()).to_string(), text);
        }
    }
}
