//! `fi_getinfo`: the providers, and their requirements.

use std::ffi::{CStr, CString, c_char, c_int};
use std::net::IpAddr;
use std::ptr::{self, NonNull};
use std::sync::Mutex;

use libfabric_sys as sys;

use super::{API_VERSION, Errno, Version, checked};

/// Modes that Foldwire supports. For these two, each request has its own `fi_context2`.
const MODES: u64 = sys::FI_CONTEXT | sys::FI_CONTEXT2;
/// Memory modes that Foldwire supports. `FI_MR_VIRT_ADDR` and `FI_MR_PROV_KEY` concern the
/// addresses and keys of remote access, and Foldwire gives no peer access to its memory.
const MEMORY_MODES: c_int = sys::FI_MR_LOCAL
    | sys::FI_MR_ALLOCATED
    | sys::FI_MR_VIRT_ADDR
    | sys::FI_MR_PROV_KEY
    | sys::FI_MR_ENDPOINT;
/// All memory mode bits, known or future, except the two lowest, which select libfabric's older
/// schemes.
const ALL_MEMORY_MODES: c_int = c_int::MAX & !3;

/// Requirements of a query. Each level includes the levels before it. If a provider does not meet
/// all of them, queries with rising levels find the first that it lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Requirements {
    /// No requirement.
    Nothing,
    /// Endpoints that reach all peers reliably (`FI_EP_RDM`).
    ReliableDatagrams,
    /// Messages with tags (`FI_TAGGED`).
    Tags,
    /// Sends matched in order (`FI_ORDER_SAS`).
    Order,
    /// Only modes that Foldwire supports.
    Modes,
    /// Only memory modes that Foldwire supports.
    MemoryModes,
    /// Use by one thread, with progress by polls.
    All,
}

/// Query to libfabric.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProviderQuery<'a> {
    pub(crate) provider: &'a str,
    /// Local address to send from and listen on.
    pub(crate) address: Option<IpAddr>,
    /// Accepts only IPv4, if `address` does not determine the address format.
    pub(crate) only_ipv4: bool,
    pub(crate) requirements: Requirements,
    /// Posted receives that the provider must have space for; 0 for its default.
    pub(crate) n_receives: usize,
}

/// Owned list of `fi_info`.
#[derive(Debug)]
struct OwnedInfo(NonNull<sys::fi_info>);

impl Drop for OwnedInfo {
    fn drop(&mut self) {
        // SAFETY: the list came from libfabric, is freed once, and nothing borrows from it any
        // more.
        unsafe { sys::fi_freeinfo(self.0.as_ptr()) };
    }
}

/// Configuration of a provider: fabric, domain and modes.
#[derive(Debug)]
pub(crate) struct Description(OwnedInfo);

/// Answers of libfabric, best first. At least one.
#[derive(Debug)]
pub(crate) struct Descriptions(OwnedInfo);

impl Descriptions {
    /// Returns the providers built into libfabric, with names and versions only.
    pub(crate) fn providers() -> Result<Self, Errno> {
        Self::get(ptr::null(), sys::FI_PROV_ATTR_ONLY, ptr::null())
    }

    /// Returns the configurations that meet a query, or [`Errno::NO_DATA`] if there are none.
    pub(crate) fn query(query: &ProviderQuery<'_>) -> Result<Self, Errno> {
        let c_string = |text: &str| CString::new(text).map_err(|_| Errno::INVALID);
        let provider = c_string(query.provider)?;
        let node = query.address.map(|address| c_string(&address.to_string())).transpose()?;

        // SAFETY: takes no arguments.
        let hints =
            OwnedInfo(NonNull::new(unsafe { sys::fi_allocinfo() }).ok_or(Errno::NO_MEMORY)?);
        // SAFETY: fi_allocinfo allocates all attributes that are set here. The name points to a
        // string of ours, which outlives the call. The pointer is removed before the hints are
        // freed.
        unsafe {
            let hints = hints.0.as_ptr();
            fill(hints, query);
            (*(*hints).fabric_attr).prov_name = provider.as_ptr().cast_mut();
            let flags = if node.is_some() { sys::FI_SOURCE } else { 0 };
            let node = node.as_ref().map_or(ptr::null(), |node| node.as_ptr());
            let answer = Self::get(node, flags, hints);
            (*(*hints).fabric_attr).prov_name = ptr::null_mut();
            answer
        }
    }

    fn get(node: *const c_char, flags: u64, hints: *const sys::fi_info) -> Result<Self, Errno> {
        let mut list = ptr::null_mut();
        // SAFETY: node and hints are null or valid for the call; `list` is a valid place for the
        // result.
        let status =
            unsafe { sys::fi_getinfo(API_VERSION, node, ptr::null(), flags, hints, &raw mut list) };
        checked(status)?;
        NonNull::new(list).map(|list| Self(OwnedInfo(list))).ok_or(Errno::NO_DATA)
    }

    /// Copies all answers.
    pub(crate) fn all(&self) -> Result<Vec<Description>, Errno> {
        let mut copies = Vec::new();
        let mut next = self.0.0.as_ptr().cast_const();
        while !next.is_null() {
            // SAFETY: `next` is an element of the list that we own.
            let (copy, after) = unsafe { (sys::fi_dupinfo(next), (*next).next) };
            copies.push(Description(OwnedInfo(NonNull::new(copy).ok_or(Errno::NO_MEMORY)?)));
            next = after;
        }
        Ok(copies)
    }
}

/// Writes the requirements of `query` into hints.
///
/// # Safety
/// `hints` must come from `fi_allocinfo`.
unsafe fn fill(hints: *mut sys::fi_info, query: &ProviderQuery<'_>) {
    let requires = |requirement| query.requirements >= requirement;
    // SAFETY: fi_allocinfo allocates these structures together.
    let (hints, tx, rx, ep, domain) = unsafe {
        let hints = &mut *hints;
        (
            &raw mut *hints,
            &mut *hints.tx_attr,
            &mut *hints.rx_attr,
            &mut *hints.ep_attr,
            &mut *hints.domain_attr,
        )
    };
    if requires(Requirements::ReliableDatagrams) {
        ep.type_ = sys::FI_EP_RDM;
    }
    if requires(Requirements::Order) {
        tx.msg_order = sys::FI_ORDER_SAS;
        rx.msg_order = sys::FI_ORDER_SAS;
    }
    if requires(Requirements::All) {
        domain.threading = sys::FI_THREAD_DOMAIN;
        // SAFETY: `domain` is a valid structure without other references.
        unsafe { sys::set_progress(domain, sys::FI_PROGRESS_MANUAL) };
    }
    rx.size = query.n_receives;
    domain.mr_mode =
        if requires(Requirements::MemoryModes) { MEMORY_MODES } else { ALL_MEMORY_MODES };
    // SAFETY: `hints` is valid by the caller's guarantee; none of the references made above is to
    // these fields.
    unsafe {
        (*hints).mode = if requires(Requirements::Modes) { MODES } else { u64::MAX };
        (*hints).caps = if requires(Requirements::Tags) { sys::FI_TAGGED } else { 0 };
        (*hints).addr_format = match query.address {
            Some(IpAddr::V4(_)) => sys::FI_SOCKADDR_IN,
            Some(IpAddr::V6(_)) => sys::FI_SOCKADDR_IN6,
            None if query.only_ipv4 => sys::FI_SOCKADDR_IN,
            None => 0,
        };
    }
}

impl Description {
    pub(super) const fn raw(&self) -> *mut sys::fi_info {
        self.0.0.as_ptr()
    }

    const fn info(&self) -> &sys::fi_info {
        // SAFETY: the list is valid as long as `self`, and no one writes to it.
        unsafe { self.0.0.as_ref() }
    }

    /// Returns the provider and its layers, such as `tcp;ofi_rxm`.
    pub(crate) fn provider(&self) -> String {
        // SAFETY: the attributes are null or valid, and belong to `self`.
        unsafe { self.info().fabric_attr.as_ref() }
            .map_or(String::new(), |attr| text(attr.prov_name))
    }

    /// Returns the name of the network.
    pub(crate) fn fabric(&self) -> String {
        // SAFETY: as above.
        unsafe { self.info().fabric_attr.as_ref() }.map_or(String::new(), |attr| text(attr.name))
    }

    /// Returns the name of the interface or device.
    pub(crate) fn domain(&self) -> String {
        // SAFETY: as above.
        unsafe { self.info().domain_attr.as_ref() }.map_or(String::new(), |attr| text(attr.name))
    }

    /// Returns the provider's version.
    pub(crate) fn version(&self) -> Version {
        // SAFETY: as above.
        let attr = unsafe { self.info().fabric_attr.as_ref() };
        Version::unpack(attr.map_or(0, |attr| attr.prov_version))
    }

    /// Returns the number of posted receives that the provider has space for.
    #[cfg(test)]
    pub(crate) fn n_receives(&self) -> usize {
        // SAFETY: as above.
        unsafe { self.info().rx_attr.as_ref() }.map_or(0, |attr| attr.size)
    }

    /// Returns the number of tag bits that the provider matches by.
    pub(crate) fn n_tag_bits(&self) -> u32 {
        // SAFETY: as above.
        let attr = unsafe { self.info().ep_attr.as_ref() };
        u64::BITS - attr.map_or(0, |attr| attr.mem_tag_format).leading_zeros()
    }

    /// Returns the required modes that are not supported.
    pub(crate) const fn foreign_modes(&self) -> u64 {
        self.info().mode & !MODES
    }

    /// Returns the required memory modes.
    fn memory_modes(&self) -> c_int {
        // SAFETY: as above.
        unsafe { self.info().domain_attr.as_ref() }.map_or(0, |attr| attr.mr_mode)
    }

    /// Returns the required memory modes that are not supported.
    pub(crate) fn foreign_memory_modes(&self) -> i32 {
        self.memory_modes() & !MEMORY_MODES
    }

    /// Returns whether memory must be registered before the network may access it.
    pub(super) fn registers_memory(&self) -> bool {
        self.memory_modes() & sys::FI_MR_LOCAL != 0
    }

    /// Returns whether registrations must be bound to the endpoint.
    pub(super) fn binds_memory(&self) -> bool {
        self.memory_modes() & sys::FI_MR_ENDPOINT != 0
    }

    /// Returns whether the provider chooses the keys of registrations.
    pub(super) fn chooses_keys(&self) -> bool {
        self.memory_modes() & sys::FI_MR_PROV_KEY != 0
    }
}

fn text(raw: *const c_char) -> String {
    if raw.is_null() {
        return String::new();
    }
    // SAFETY: names in a description are null or terminated strings that belong to it.
    unsafe { CStr::from_ptr(raw) }.to_string_lossy().into_owned()
}

/// Returns libfabric's names for the bits of a mode or a memory mode.
pub(crate) fn names_of(bits: u64, is_memory_mode: bool) -> String {
    /// Guards the buffer of fi_tostr, which old releases share between threads.
    static BUFFER: Mutex<()> = Mutex::new(());
    let kind = if is_memory_mode { sys::FI_TYPE_MR_MODE } else { sys::FI_TYPE_MODE };
    let _guard = BUFFER.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // SAFETY: fi_tostr reads an integer of 4 or 8 bytes, whose low half comes first on the machines
    // that Foldwire supports. It returns null or a terminated string that is valid until the next
    // call, which the lock delays until the string is copied.
    text(unsafe { sys::fi_tostr((&raw const bits).cast(), kind) })
}

/// Returns whether libfabric has parameters of this provider. If libfabric does not list the
/// provider but has its parameters, the provider is built in and gave up when it was loaded.
pub(crate) fn is_known_by_parameters(provider: &str) -> bool {
    let (mut list, mut n) = (ptr::null_mut(), 0);
    // SAFETY: both are valid places for the result.
    let status = unsafe { sys::fi_getparams(&raw mut list, &raw mut n) };
    if status != 0 || list.is_null() {
        return false;
    }
    let prefix = format!("FI_{}_", provider.to_uppercase());
    let is_of_provider = |at: usize| {
        // SAFETY: the list has `n` elements; names are terminated strings.
        text(unsafe { (*list.add(at)).name }).starts_with(&prefix)
    };
    let found = (0..usize::try_from(n).unwrap_or(0)).any(is_of_provider);
    // SAFETY: the list came from fi_getparams, and is not used afterwards.
    unsafe { sys::fi_freeparams(list) };
    found
}
