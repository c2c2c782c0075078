//! The device of `--device`. A build without the feature `cuda` has none.

#[cfg(feature = "cuda")]
pub(crate) use built_in::{DeviceOption, open};
#[cfg(not(feature = "cuda"))]
pub(crate) use none::{DeviceOption, open};

#[cfg(feature = "cuda")]
mod built_in {
    use std::sync::Arc;

    use anyhow::Context;
    use foldwire_cuda::{Cuda, Driver};
    use foldwire_fields::usage::UsageError;
    use foldwire_workbench::streams;

    pub(crate) type DeviceOption = Option<Arc<dyn Driver>>;

    /// Opens the device that `--device` names.
    pub(crate) fn open(name: Option<&str>) -> anyhow::Result<DeviceOption> {
        let Some(name) = name else { return Ok(None) };
        let number = match name.split_once(':') {
            None if name == "cuda" => Some(0),
            Some(("cuda", number)) => number.parse().ok(),
            _ => None,
        };
        let number = number.ok_or_else(|| {
            UsageError::new(format!("there is no device {name}; write cuda, or cuda:1"))
        })?;
        let device = Cuda::open(number).context("--device")?;
        streams::remark(format_args!("device: {}", device.description()));
        Ok(Some(device))
    }
}

#[cfg(not(feature = "cuda"))]
mod none {
    use std::convert::Infallible;

    use foldwire_fields::usage::UsageError;

    pub(crate) type DeviceOption = Option<Infallible>;

    pub(crate) fn open(name: Option<&str>) -> anyhow::Result<DeviceOption> {
        name.map_or(Ok(None), |_| {
            Err(UsageError::new(
                "this foldwire was built without devices; build it with --features cuda",
            )
            .into())
        })
    }
}
