//! The functions of NVRTC that the tests call, from a library that is loaded when they run.

#![allow(unsafe_code)]

use libloading::{Library, Symbol};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::process::Command;
use std::ptr::{null, null_mut};

/// NVRTC.
pub(crate) struct Nvrtc(Library);

type Program = *mut c_void;
type Create = unsafe extern "C" fn(
    *mut Program,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> c_int;
type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
type LogSize = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type Log = unsafe extern "C" fn(Program, *mut c_char) -> c_int;
type Destroy = unsafe extern "C" fn(*mut Program) -> c_int;
type Count = unsafe extern "C" fn(*mut c_int) -> c_int;

/// Lists the library in each of Python's folders of packages.
const PYTHON: &str = "
import glob, site
for folder in site.getsitepackages() + [site.getusersitepackages()]:
    for path in sorted(glob.glob(folder + '/nvidia/**/libnvrtc.so.*', recursive=True)):
        print(path)
";

impl Nvrtc {
    /// Finds the library; fails with the reason.
    pub(crate) fn find() -> Result<Self, String> {
        if let Some(path) = std::env::var_os("FOLDWIRE_NVRTC") {
            return Self::load(PathBuf::from(path));
        }
        let names = ["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"].map(PathBuf::from);
        let listed = Command::new("python3").args(["-c", PYTHON]).output();
        let listed = listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let listed = listed.unwrap_or_default();
        let all = names.into_iter().chain(listed.lines().map(PathBuf::from));
        all.map(Self::load).find_map(Result::ok).ok_or_else(|| {
            "no NVRTC; `pip install nvidia-cuda-nvrtc`, or set FOLDWIRE_NVRTC to libnvrtc.so".into()
        })
    }

    fn load(path: PathBuf) -> Result<Self, String> {
        // SAFETY: the library is NVRTC, whose initialisation has no requirements.
        let library = unsafe { Library::new(&path) };
        library.map(Self).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn function<T>(&self, name: &str) -> Symbol<'_, T> {
        // SAFETY: callers name the type that NVRTC's header declares.
        unsafe { self.0.get(name.as_bytes()) }.unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Numbers of the architectures that this NVRTC knows.
    pub(crate) fn architectures(&self) -> Vec<c_int> {
        let count = self.function::<Count>("nvrtcGetNumSupportedArchs");
        let list = self.function::<Count>("nvrtcGetSupportedArchs");
        let mut n = 0;
        // SAFETY: both write what the first one counts.
        unsafe {
            assert_eq!(count(&raw mut n), 0);
            let mut all = vec![0; n as usize];
            assert_eq!(list(all.as_mut_ptr()), 0);
            all
        }
    }

    /// Compiles a source; returns the log, as an error if the source does not compile.
    pub(crate) fn compile(&self, source: &str, options: &[&str]) -> Result<String, String> {
        let c_string = |text: &str| CString::new(text).expect("no NUL");
        let (source, name) = (c_string(source), c_string("kernels.cu"));
        let options: Vec<CString> = options.iter().map(|option| c_string(option)).collect();
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let mut program = null_mut();
        let mut n_bytes = 0;
        // SAFETY: all strings outlive the calls, and the buffer is as long as NVRTC asks for.
        unsafe {
            let create = self.function::<Create>("nvrtcCreateProgram");
            let made = create(&raw mut program, source.as_ptr(), name.as_ptr(), 0, null(), null());
            assert_eq!(made, 0, "nvrtcCreateProgram");
            let compile = self.function::<Compile>("nvrtcCompileProgram");
            let compiled = compile(program, options.len() as c_int, options.as_ptr());
            self.function::<LogSize>("nvrtcGetProgramLogSize")(program, &raw mut n_bytes);
            let mut log = vec![0_u8; n_bytes.max(1)];
            self.function::<Log>("nvrtcGetProgramLog")(program, log.as_mut_ptr().cast());
            self.function::<Destroy>("nvrtcDestroyProgram")(&raw mut program);
            let log = CStr::from_bytes_until_nul(&log).unwrap_or_default();
            let log = log.to_string_lossy().into_owned();
            if compiled == 0 { Ok(log) } else { Err(log) }
        }
    }
}
