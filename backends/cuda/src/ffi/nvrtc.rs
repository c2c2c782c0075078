//! NVRTC, NVIDIA's compiler as a library. It is loaded when the first kernel is compiled.

use crate::DeviceError;
use crate::kernel::NVRTC_OPTIONS;
use libloading::Library;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::{env, fmt, fs};

/// Variable with the path of the library, if it is not where the system finds it.
const PATH_VARIABLE: &str = "FOLDWIRE_NVRTC";
/// Names by which the system may find it.
const NAMES: [&str; 4] = ["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"];
const REMEDY: &str = "install CUDA's toolkit, or run `pip install nvidia-cuda-nvrtc` and set \
                      FOLDWIRE_NVRTC to the path of its libnvrtc.so";

type Program = *mut c_void;

/// Declares [`Nvrtc`], a library with these functions.
macro_rules! library {
    ($($field:ident: $name:literal = fn($($arg:ty),*) -> $result:ty;)*) => {
        /// A loaded NVRTC. The process uses the one that the variable `FOLDWIRE_NVRTC` names, that
        /// of CUDA's toolkit, or the system's: the first one that is there.
        pub struct Nvrtc {
            $($field: unsafe extern "C" fn($($arg),*) -> $result,)*
            /// Keeps the functions.
            _library: Library,
        }

        impl Nvrtc {
            /// Loads the library from a path, or by a name that the system knows.
            ///
            /// # Errors
            /// [`DeviceError::Missing`] if it is not there, or is no NVRTC of CUDA 11.2 or later.
            pub fn load(path: impl AsRef<OsStr>) -> Result<Self, DeviceError> {
                let missing = |error: libloading::Error| missing(&error.to_string());
                // SAFETY: Loading NVIDIA's library runs its initializers, which have no
                // requirements.
                let library = unsafe { Library::new(path.as_ref()) }.map_err(missing)?;
                Ok(Self {
                    // SAFETY: NVRTC's header declares functions of these types.
                    $($field: *unsafe { library.get($name) }.map_err(missing)?,)*
                    _library: library,
                })
            }
        }
    };
}

library! {
    version: "nvrtcVersion" = fn(*mut c_int, *mut c_int) -> c_int;
    n_architectures: "nvrtcGetNumSupportedArchs" = fn(*mut c_int) -> c_int;
    architectures: "nvrtcGetSupportedArchs" = fn(*mut c_int) -> c_int;
    create: "nvrtcCreateProgram" = fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char
    ) -> c_int;
    compile: "nvrtcCompileProgram" = fn(Program, c_int, *const *const c_char) -> c_int;
    destroy: "nvrtcDestroyProgram" = fn(*mut Program) -> c_int;
    log_size: "nvrtcGetProgramLogSize" = fn(Program, *mut usize) -> c_int;
    log: "nvrtcGetProgramLog" = fn(Program, *mut c_char) -> c_int;
    machine_code_size: "nvrtcGetCUBINSize" = fn(Program, *mut usize) -> c_int;
    machine_code: "nvrtcGetCUBIN" = fn(Program, *mut c_char) -> c_int;
    ptx_size: "nvrtcGetPTXSize" = fn(Program, *mut usize) -> c_int;
    ptx: "nvrtcGetPTX" = fn(Program, *mut c_char) -> c_int;
    words: "nvrtcGetErrorString" = fn(c_int) -> *const c_char;
}

impl fmt::Debug for Nvrtc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nvrtc").finish_non_exhaustive()
    }
}

/// Returns the error of a process without NVRTC.
fn missing(why: &str) -> DeviceError {
    let what = format!("the compiler NVRTC was not found: {why}");
    DeviceError::Missing { what, remedy: REMEDY }
}

/// Returns paths and names of the library, in the order in which they are tried.
fn candidates() -> impl Iterator<Item = PathBuf> {
    let named = env::var_os(PATH_VARIABLE).map(PathBuf::from);
    let toolkits = ["/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib"];
    let entries = toolkits.into_iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
    let is_library = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("libnvrtc.so")
    };
    let found = entries.flatten().map(|entry| entry.path()).filter(is_library);
    named.into_iter().chain(found).chain(NAMES.map(PathBuf::from))
}

/// A source that NVRTC has compiled.
#[derive(Debug)]
pub struct Compiled {
    /// Machine code, or PTX for an architecture whose name begins with `compute_`.
    pub code: Vec<u8>,
    /// Warnings, and what the assembler says.
    pub log: String,
}

impl Nvrtc {
    /// Returns the library of this process, which the first call loads.
    ///
    /// # Errors
    /// [`DeviceError::Missing`], with the way to get it.
    pub fn get() -> Result<&'static Self, DeviceError> {
        static LOADED: OnceLock<Result<Nvrtc, DeviceError>> = OnceLock::new();
        let load = || {
            let mut first = Err(missing("there are no candidates"));
            for (nth, path) in candidates().enumerate() {
                match Self::load(path) {
                    Ok(loaded) => return Ok(loaded),
                    Err(error) if nth == 0 => first = Err(error),
                    Err(_) => {}
                }
            }
            first
        };
        LOADED.get_or_init(load).as_ref().map_err(Clone::clone)
    }

    /// Returns an error of a function in the library's words.
    fn check(&self, during: &'static str, code: c_int) -> Result<(), DeviceError> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: The function returns a text, which is constant, for every number.
        let words = unsafe { CStr::from_ptr((self.words)(code)) };
        Err(DeviceError::Failed { during, reason: words.to_string_lossy().into_owned() })
    }

    /// Returns the library's version: major and minor.
    ///
    /// # Errors
    /// [`DeviceError::Failed`].
    pub fn version(&self) -> Result<(i32, i32), DeviceError> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: The pointers are those of numbers.
        let code = unsafe { (self.version)(&raw mut major, &raw mut minor) };
        self.check("asking NVRTC for its version", code).map(|()| (major, minor))
    }

    /// Returns the numbers of the architectures for which it compiles: 90 is `sm_90`.
    ///
    /// # Errors
    /// [`DeviceError::Failed`].
    pub fn architectures(&self) -> Result<Vec<i32>, DeviceError> {
        let during = "asking NVRTC for its architectures";
        let mut n = 0;
        // SAFETY: The pointer is that of a number.
        self.check(during, unsafe { (self.n_architectures)(&raw mut n) })?;
        let mut all = vec![0; usize::try_from(n).unwrap_or(0)];
        // SAFETY: The list has as many numbers as NVRTC asked for.
        self.check(during, unsafe { (self.architectures)(all.as_mut_ptr()) }).map(|()| all)
    }

    /// Compiles a source for an architecture, with these options.
    ///
    /// # Errors
    /// [`DeviceError::Failed`], with the compiler's messages.
    pub fn compile(
        &self,
        source: &str,
        architecture: &str,
        options: &[&str],
    ) -> Result<Compiled, DeviceError> {
        let during = "compiling kernels";
        let c_string = |text: &str| {
            let failed = |error| DeviceError::Failed { during, reason: format!("{error}") };
            CString::new(text).map_err(failed)
        };
        let (source, name) = (c_string(source)?, c"foldwire.cu");
        let mut all = vec![c_string(&format!("--gpu-architecture={architecture}"))?];
        for option in options {
            all.push(c_string(option)?);
        }
        let options: Vec<*const c_char> = all.iter().map(|option| option.as_ptr()).collect();
        let mut program = null_mut();
        // SAFETY: The texts end with zeros. The library copies them.
        let created = unsafe {
            (self.create)(&raw mut program, source.as_ptr(), name.as_ptr(), 0, null(), null())
        };
        self.check(during, created)?;
        // SAFETY: The program exists, and there are as many options as the number says.
        let compiled = unsafe { (self.compile)(program, options.len() as c_int, options.as_ptr()) };
        let log = self.output(program, self.log_size, self.log);
        let (size, get) = match architecture.starts_with("compute_") {
            true => (self.ptx_size, self.ptx),
            false => (self.machine_code_size, self.machine_code),
        };
        let code = self
            .check(during, compiled)
            .and_then(|()| self.output(program, size, get))
            .map_err(|error| match (error, &log) {
                (DeviceError::Failed { during, reason }, Ok(log)) => {
                    DeviceError::Failed { during, reason: format!("{reason}: {}", text(log)) }
                }
                (error, _) => error,
            });
        // SAFETY: Nothing uses the program any more.
        unsafe { (self.destroy)(&raw mut program) };
        Ok(Compiled { code: code?, log: text(&log?) })
    }

    /// Returns what a pair of functions says of a program: the size of something, and its bytes.
    fn output(
        &self,
        program: Program,
        size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
        get: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    ) -> Result<Vec<u8>, DeviceError> {
        let (during, mut n_bytes) = ("compiling kernels", 0);
        // SAFETY: The program exists, and the pointer is that of a number.
        self.check(during, unsafe { size(program, &raw mut n_bytes) })?;
        let mut bytes = vec![0_u8; n_bytes];
        // SAFETY: The buffer has as many bytes as NVRTC asked for.
        self.check(during, unsafe { get(program, bytes.as_mut_ptr().cast()) }).map(|()| bytes)
    }

    /// Compiles kernels for devices of this compute capability. A device that is newer than the
    /// library gets PTX, which its driver translates.
    ///
    /// # Errors
    /// [`DeviceError::Failed`], with the compiler's messages.
    pub fn compile_for(
        &self,
        source: &str,
        (major, minor): (i32, i32),
    ) -> Result<Vec<u8>, DeviceError> {
        let own = 10 * major + minor;
        let newest = self.architectures()?.into_iter().filter(|known| *known <= own).max();
        let architecture = match newest {
            Some(older) if older < own => format!("compute_{older}"),
            _ => format!("sm_{own}"),
        };
        self.compile(source, &architecture, &NVRTC_OPTIONS).map(|compiled| compiled.code)
    }
}

/// Returns the library's text, which ends with a zero.
fn text(bytes: &[u8]) -> String {
    let text = CStr::from_bytes_until_nul(bytes).unwrap_or_default();
    text.to_string_lossy().into_owned()
}
