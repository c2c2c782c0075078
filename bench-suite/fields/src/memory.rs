//! Allocation of long arrays that returns an error with the number of bytes. The standard
//! collections would abort the program instead.

use bytemuck::Zeroable;

/// An allocation that the available memory cannot hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{} of memory are needed, {}", gigabytes(*.need), available(*.have))]
pub struct NoMemory {
    /// Bytes requested.
    pub need: u128,
    /// Bytes free, if the caller measured them. `None` if the system refused the allocation.
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

/// Allocates `n` zeros.
///
/// # Errors
///
/// [`NoMemory`] if the system refuses the memory. Some systems grant memory that they do not have.
pub fn zeroed<T: Zeroable>(n: usize) -> Result<Vec<T>, NoMemory> {
    let need = n as u128 * size_of::<T>() as u128;
    bytemuck::try_zeroed_vec(n).map_err(|()| NoMemory { need, have: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_allocation_is_an_error_that_states_its_size() {
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
