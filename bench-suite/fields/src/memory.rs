//! Memory for long arrays, or an error that says how much was asked for. What the standard
//! collections do where there is none is to end the program.

use bytemuck::Zeroable;

/// Memory that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{} of memory are needed, {}", gigabytes(*.need), available(*.have))]
pub struct NoMemory {
    /// Bytes that were asked for.
    pub need: u128,
    /// Bytes that are free; `None` where the system said no without telling.
    pub have: Option<u64>,
}

fn gigabytes(n_bytes: u128) -> String {
    format!("{:.1} GB", n_bytes as f64 / 1e9)
}

fn available(n_bytes: Option<u64>) -> String {
    n_bytes.map_or_else(
        || "which the system does not give".to_owned(),
        |n_bytes| format!("and {} are free", gigabytes(n_bytes.into())),
    )
}

/// `n` zeros.
///
/// # Errors
///
/// [`NoMemory`] if the system refuses it. It may promise memory that it does not have.
pub fn zeroed<T: Zeroable>(n: usize) -> Result<Vec<T>, NoMemory> {
    let need = n as u128 * size_of::<T>() as u128;
    bytemuck::try_zeroed_vec(n).map_err(|()| NoMemory { need, have: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_had_is_an_error_that_says_how_much_it_is() {
        assert_eq!(zeroed::<f32>(3), Ok(vec![0.0; 3]));
        for n in [usize::MAX, isize::MAX as usize / 8] {
            let error = zeroed::<f64>(n).unwrap_err();
            assert_eq!(error, NoMemory { need: n as u128 * 8, have: None });
            assert!(error.to_string().contains(" GB of memory are needed, which the"), "{error}");
        }
        let error = NoMemory { need: 3_500_000_000, have: Some(2_000_000_000) };
        assert_eq!(error.to_string(), "3.5 GB of memory are needed, and 2.0 GB are free");
    }
}
