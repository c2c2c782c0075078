//! `fi_getinfo`: which providers there are, and what they ask of their user.

use std::ffi::{CStr, CString, c_char, c_int};
use std::net::IpAddr;
use std::ptr::{self, NonNull};
use std::sync::Mutex;

use libfabric_sys as sys;

use super::{API_VERSION, Errno, Version, checked};

/// Modes that we honour: each request has a `fi_context2` of its own.
const MODES: u64 = sys::FI_CONTEXT | sys::FI_CONTEXT2;
/// Memory modes that we honour. Those about remote access cost us nothing, as we offer none.
const MEMORY_MODES: c_int = sys::FI_MR_LOCAL
    | sys::FI_MR_ALLOCATED
    | sys::FI_MR_VIRT_ADDR
    | sys::FI_MR_PROV_KEY
    | sys::FI_MR_ENDPOINT;
/// Every memory mode bit that there is or may be, without the two that stand for older schemes.
const ALL_MEMORY_MODES: c_int = c_int::MAX & !3;

/// How much of what we need a provider is asked for. Each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Requirements {
    /// Nothing.
    Nothing,
    /// Endpoints that reach all peers reliably (`FI_EP_RDM`).
    ReliableDatagrams,
    /// Messages with tags (`FI_TAGGED`).
    Tags,
    /// Sends matched in order (`FI_ORDER_SAS`).
    Order,
    /// No modes but ours.
    Modes,
    /// No memory modes but ours.
    MemoryModes,
    /// Use by one thread, progress when we poll.
    All,
}

/// A question to libfabric.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProviderQuery<'a> {
    pub(crate) provider: &'a str,
    /// Where to send from and listen.
    pub(crate) address: Option<IpAddr>,
    /// Where there is a choice, only IPv4.
    pub(crate) only_ipv4: bool,
    pub(crate) requirements: Requirements,
}

/// `fi_info` that we own.
#[derive(Debug)]
struct OwnedInfo(NonNull<sys::fi_info>);

impl Drop for OwnedInfo {
    fn drop(&mut self) {
        // SAFETY: it came from libfabric, is freed once, and nothing borrowed from it is left.
        unsafe { sys::fi_freeinfo(self.0.as_ptr()) };
    }
}

/// One way to use a provider: with which fabric and domain, in which modes.
#[derive(Debug)]
pub(crate) struct Description(OwnedInfo);

/// What libfabric answered, best first; at least one.
#[derive(Debug)]
pub(crate) struct Descriptions(OwnedInfo);

impl Descriptions {
    /// The providers built into libfabric, of which only names and versions are known.
    pub(crate) fn providers() -> Result<Self, Errno> {
        Self::get(ptr::null(), sys::FI_PROV_ATTR_ONLY, ptr::null())
    }

    /// Who can do what the query asks for. [`Errno::NO_DATA`] if nobody can.
    pub(crate) fn query(query: &ProviderQuery<'_>) -> Result<Self, Errno> {
        let c_string = |text: &str| CString::new(text).map_err(|_| Errno::INVALID);
        let provider = c_string(query.provider)?;
        let node = query.address.map(|address| c_string(&address.to_string())).transpose()?;

        // SAFETY: no arguments.
        let hints =
            OwnedInfo(NonNull::new(unsafe { sys::fi_allocinfo() }).ok_or(Errno::NO_MEMORY)?);
        // SAFETY: fi_allocinfo allocates all attributes that are set here. The name is a pointer of
        // ours, which outlives the call and is taken out before the hints are freed.
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

    /// All answers.
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

/// Writes what `query` requires into hints.
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
        // SAFETY: a valid structure, to which there is no other reference.
        unsafe { sys::set_progress(domain, sys::FI_PROGRESS_MANUAL) };
    }
    domain.mr_mode =
        if requires(Requirements::MemoryModes) { MEMORY_MODES } else { ALL_MEMORY_MODES };
    // SAFETY: as above; none of the references made there is to these fields.
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
        // SAFETY: valid as long as we are, and nobody writes to it.
        unsafe { self.0.0.as_ref() }
    }

    /// As in `tcp;ofi_rxm`: the provider, and what is layered upon it.
    pub(crate) fn provider(&self) -> String {
        // SAFETY: the attributes are null or valid, and belong to us.
        unsafe { self.info().fabric_attr.as_ref() }
            .map_or(String::new(), |attr| text(attr.prov_name))
    }

    /// Name of the network.
    pub(crate) fn fabric(&self) -> String {
        // SAFETY: as above.
        unsafe { self.info().fabric_attr.as_ref() }.map_or(String::new(), |attr| text(attr.name))
    }

    /// Name of the interface or device.
    pub(crate) fn domain(&self) -> String {
        // SAFETY: as above.
        unsafe { self.info().domain_attr.as_ref() }.map_or(String::new(), |attr| text(attr.name))
    }

    /// The provider's version.
    pub(crate) fn version(&self) -> Version {
        // SAFETY: as above.
        let attr = unsafe { self.info().fabric_attr.as_ref() };
        Version::unpack(attr.map_or(0, |attr| attr.prov_version))
    }

    /// Bits of a tag that the provider matches by.
    pub(crate) fn n_tag_bits(&self) -> u32 {
        // SAFETY: as above.
        let attr = unsafe { self.info().ep_attr.as_ref() };
        u64::BITS - attr.map_or(0, |attr| attr.mem_tag_format).leading_zeros()
    }

    /// Modes that it asks for and that we do not honour.
    pub(crate) const fn foreign_modes(&self) -> u64 {
        self.info().mode & !MODES
    }

    /// Memory modes that it asks for.
    fn memory_modes(&self) -> c_int {
        // SAFETY: as above.
        unsafe { self.info().domain_attr.as_ref() }.map_or(0, |attr| attr.mr_mode)
    }

    /// Memory modes that it asks for and that we do not honour.
    pub(crate) fn foreign_memory_modes(&self) -> i32 {
        self.memory_modes() & !MEMORY_MODES
    }

    /// Whether memory must be registered before the network may touch it.
    pub(super) fn registers_memory(&self) -> bool {
        self.memory_modes() & sys::FI_MR_LOCAL != 0
    }

    /// Whether registrations are bound to the endpoint.
    pub(super) fn binds_memory(&self) -> bool {
        self.memory_modes() & sys::FI_MR_ENDPOINT != 0
    }

    /// Whether registrations have keys of the provider's choice.
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

/// The names that libfabric has for the bits of a mode, or of a memory mode.
pub(crate) fn names_of(bits: u64, is_memory_mode: bool) -> String {
    /// fi_tostr has one buffer for all threads in old releases.
    static BUFFER: Mutex<()> = Mutex::new(());
    let kind = if is_memory_mode { sys::FI_TYPE_MR_MODE } else { sys::FI_TYPE_MODE };
    let _guard = BUFFER.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // SAFETY: reads an integer of 4 or 8 bytes, whose low half comes first on the machines that
    // Foldwire runs on; returns null or a terminated string that is valid until the next call,
    // which the lock keeps out.
    text(unsafe { sys::fi_tostr((&raw const bits).cast(), kind) })
}

/// Whether the library has parameters of a provider that it does not list: it is built in, and gave
/// up.
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
    // SAFETY: the list came from fi_getparams, and nothing of it is used any more.
    unsafe { sys::fi_freeparams(list) };
    found
}
