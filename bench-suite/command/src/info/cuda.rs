//! The backend for NVIDIA GPUs: the devices, and what is missing to use them.

#[cfg(not(feature = "cuda"))]
use super::section::ReportSection;

#[cfg(feature = "cuda")]
pub(super) use built_in::section;

#[cfg(not(feature = "cuda"))]
pub(super) fn section() -> ReportSection {
    ReportSection::absent_backend("cuda", "nothing of CUDA; NVIDIA's driver and NVRTC when it runs")
}

#[cfg(feature = "cuda")]
mod built_in {
    use foldwire_cuda::{Cuda, DeviceError};

    use crate::info::section::{ReportCell, ReportSection};
    use foldwire_workbench::table::Align;

    const COLUMNS: &[(&str, Align)] =
        &[("device", Align::Left), ("name", Align::Left), ("compute capability", Align::Left)];

    pub(in crate::info) fn section() -> ReportSection {
        let section = ReportSection::backend("cuda")
            .property("driver", version(Cuda::driver_version()))
            .property("NVRTC", version(Cuda::compiler_version()));
        match Cuda::n_devices() {
            // The driver's line has the reason.
            Err(_) => section,
            Ok(0) => section.property("devices", "none; see `nvidia-smi`"),
            Ok(n_devices) => section.rows(COLUMNS, (0..n_devices).map(row)),
        }
    }

    /// Returns a version of CUDA, or what is missing and how to get it.
    fn version(version: Result<(i32, i32), DeviceError>) -> ReportCell {
        match version {
            Ok((major, minor)) => format!("CUDA {major}.{minor}").into(),
            Err(missing) => format!("missing: {missing}").into(),
        }
    }

    fn row(device: usize) -> Vec<ReportCell> {
        let [name, capability] = match Cuda::describe(device) {
            Ok((name, (major, minor))) => [name.into(), format!("{major}.{minor}").into()],
            Err(error) => [error.to_string().into(), ReportCell::unknown()],
        };
        vec![ReportCell::new(device.to_string(), device), name, capability]
    }
}
