//! Options of this package's programs.

use std::ops::RangeInclusive;

/// Returns a parser of whole numbers in a range, which may be written as 1e6.
pub fn number(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let whole = |x: &f64| (0.0..=1e15).contains(x) && x.fract() == 0.0;
        let short = || text.parse().ok().filter(whole).map(|x| x as u64);
        let number = text.parse().ok().or_else(short).filter(|n| range.contains(n));
        let (least, most) = (range.start(), range.end());
        let wanted =
            || format!("a whole number from {least} to {most} is needed, as in 1000 or 1e3");
        number.ok_or_else(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_may_be_short() {
        let any = number(0..=u64::MAX);
        assert_eq!(any("1000000"), Ok(1_000_000));
        assert_eq!(any("5e6"), Ok(5_000_000));
        assert_eq!(any(&u64::MAX.to_string()), Ok(u64::MAX));
        assert!(["-1", "1.5", "1e99", "many"].into_iter().all(|text| any(text).is_err()));
        assert!(number(1..=9)("0").is_err() && number(1..=9)("1e1").is_err());
    }
}
