//! Names of functions that the program's files refer to.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::ptr;
use std::slice;

/// Beginnings of the names of MPI libraries' files, and of Foldwire's.
const IS_MPI: [&str; 12] = [
    "libmpi.so",
    "libmpi_abi",
    "libmpi_cxx",
    "libmpi_mpifh",
    "libmpi_usempi",
    "libmpich",
    "libmpicxx",
    "libmpifort",
    "libopen-",
    "libopen_",
    "mca_",
    "libfoldwire_preload_",
];

/// Tags of the dynamic section.
const DT_NULL: usize = 0;
const DT_STRTAB: usize = 5;
const DT_STRSZ: usize = 10;

/// Calls `each` with the names in the symbol tables of all loaded files except the MPI library's:
/// functions that the file calls or has, and some other names. A name may be a part of another
/// one, where the linker has stored one text for both. So look for parts of names.
pub(crate) fn each_name(each: &mut dyn FnMut(&[u8])) {
    let mut each = each;
    let data = (&raw mut each).cast::<c_void>();
    // SAFETY: the callback gets `data`, and only during this call.
    unsafe { libc::dl_iterate_phdr(Some(visit), data) };
}

/// Returns whether a file belongs to an MPI library, by its name.
fn is_of_mpi(path: &[u8]) -> bool {
    let path = String::from_utf8_lossy(path).into_owned();
    let name = Path::new(&path).file_name().unwrap_or_default().to_string_lossy().into_owned();
    IS_MPI.iter().any(|it| name.starts_with(it))
}

unsafe extern "C" fn visit(
    info: *mut libc::dl_phdr_info,
    _: libc::size_t,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the linker passes a valid structure, and `data` is that of `each_name`.
    let (info, each) = unsafe { (&*info, &mut **data.cast::<&mut dyn FnMut(&[u8])>()) };
    // SAFETY: a name that ends with a zero, if there is one.
    let is_mpi = !info.dlpi_name.is_null()
        && is_of_mpi(unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes());
    if !is_mpi && let Some(names) = names_of(info) {
        // A panic must not leave a function that C calls.
        let seen = catch_unwind(AssertUnwindSafe(|| {
            names.split(|&byte| byte == 0).for_each(each);
        }));
        std::mem::forget(seen.err());
    }
    0
}

/// Text of all names in a file.
fn names_of(info: &libc::dl_phdr_info) -> Option<&[u8]> {
    let base = info.dlpi_addr as usize;
    let n = usize::from(info.dlpi_phnum);
    // SAFETY: the linker passes `n` headers.
    let headers = unsafe { slice::from_raw_parts(info.dlpi_phdr, n) };
    let dynamic = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
    let start = base.wrapping_add(dynamic.p_vaddr as usize);
    let entries: *const [usize; 2] = ptr::with_exposed_provenance(start);
    let (mut text, mut n_bytes) = (0, 0);
    for at in 0.. {
        // SAFETY: the dynamic section is mapped, and ends with `DT_NULL`.
        match unsafe { entries.add(at).read() } {
            [DT_NULL, _] => break,
            [DT_STRTAB, value] => text = value,
            [DT_STRSZ, value] => n_bytes = value,
            _ => {}
        }
    }
    if text == 0 {
        return None;
    }
    // Some linkers store the address, others the distance from the file's start.
    let text = if text < base { base + text } else { text };
    let text: *const c_char = ptr::with_exposed_provenance(text);
    // SAFETY: the file's table of names has this address and length, and stays mapped during the
    // callback.
    Some(unsafe { slice::from_raw_parts(text.cast(), n_bytes) })
}
