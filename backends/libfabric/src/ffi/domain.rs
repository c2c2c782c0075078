//! A fabric and a domain in it: access to one network through one device.

use libfabric_sys as sys;

use super::info::Description;
use super::{Errno, FidHandle, NO_CONTEXT};

/// Open domain, and the description that opened it.
pub(crate) struct Domain {
    // Closed in this order.
    domain: FidHandle<sys::fid_domain>,
    _fabric: FidHandle<sys::fid_fabric>,
    description: Description,
}

impl Domain {
    pub(crate) fn open(description: Description) -> Result<Self, Errno> {
        let info = description.raw();
        let fabric = FidHandle::open(|fabric| {
            // SAFETY: a description from fi_getinfo has fabric attributes; `fabric` is a valid
            // place for the result.
            unsafe { sys::fi_fabric((*info).fabric_attr, fabric, NO_CONTEXT) }
        })?;
        let domain = FidHandle::open(|domain| {
            // SAFETY: the fabric is open, and was opened from the same description. `domain` is a
            // valid place for the result.
            unsafe { sys::fi_domain(fabric.raw(), info, domain, NO_CONTEXT) }
        })?;
        Ok(Self { domain, _fabric: fabric, description })
    }

    pub(super) const fn raw(&self) -> *mut sys::fid_domain {
        self.domain.raw()
    }

    pub(crate) const fn description(&self) -> &Description {
        &self.description
    }
}
