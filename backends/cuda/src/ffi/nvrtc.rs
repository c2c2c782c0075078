//! NVRTC, NVIDIA's compiler as a library. It is loaded when the first kernel is compiled.

use crate::DeviceError;
use crate::kernel::NVRTC_OPTIONS;
use cudarc::nvrtc::{result, sys};
use std::ffi::{CStr, CString};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::{env, fs, ptr};

/// Variable with the path of the library, if it is not where the system finds it.
const PATH_VARIABLE: &str = "FOLDWIRE_NVRTC";
const REMEDY: &str = "install CUDA's toolkit, or run `pip install nvidia-cuda-nvrtc` and set \
                      FOLDWIRE_NVRTC to the path of its libnvrtc.so";

/// Loads the library. Fails, and says how to get it, if it is not there.
pub(super) fn load() -> Result<(), DeviceError> {
    static LOADED: OnceLock<bool> = OnceLock::new();
    let is_loaded = *LOADED.get_or_init(|| {
        for path in candidates() {
            // SAFETY: Loading NVIDIA's library runs its initializers, which have no requirements.
            if let Ok(library) = unsafe { libloading::Library::new(&path) } {
                // From now on the dynamic linker finds the library by its name.
                std::mem::forget(library);
                break;
            }
        }
        // SAFETY: As above.
        unsafe { sys::is_culib_present() }
    });
    if is_loaded {
        return Ok(());
    }
    Err(DeviceError::Missing { what: "the compiler NVRTC was not found".into(), remedy: REMEDY })
}

/// Returns the library's version: major and minor.
pub(super) fn version() -> Result<(i32, i32), DeviceError> {
    load()?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: The library is loaded, and the pointers are those of numbers.
    let said = unsafe { sys::nvrtcVersion(&raw mut major, &raw mut minor) }.result();
    let failed = |reason| DeviceError::Failed { during: "asking NVRTC for its version", reason };
    said.map_err(|error| failed(format!("{error:?}")))?;
    Ok((major, minor))
}

/// Returns paths at which the library may be: the variable's, and CUDA's toolkit.
fn candidates() -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        env::var_os(PATH_VARIABLE).map(PathBuf::from).into_iter().collect();
    let toolkits = ["/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib"];
    for folder in toolkits {
        let Ok(entries) = fs::read_dir(folder) else { continue };
        let is_library = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.starts_with("libnvrtc.so")
        };
        paths.extend(entries.flatten().map(|entry| entry.path()).filter(is_library));
    }
    paths
}

/// Compiles kernels to machine code for devices of this compute capability.
pub(super) fn compile(source: &str, (major, minor): (i32, i32)) -> Result<Vec<u8>, DeviceError> {
    load()?;
    let failed = |reason: String| DeviceError::Failed { during: "compiling kernels", reason };
    let source = CString::new(source).map_err(|error| failed(error.to_string()))?;
    let program = result::create_program(&source, Some(c"foldwire.cu"))
        .map_err(|error| failed(format!("{error:?}")))?;
    let mut options: Vec<String> = NVRTC_OPTIONS.map(String::from).into();
    options.push(format!("--gpu-architecture=sm_{major}{minor}"));
    // SAFETY: `create_program` made the program, which is destroyed at the end.
    let compiled = unsafe { result::compile_program(program, &options) };
    let machine_code = match compiled {
        // SAFETY: As above.
        Err(error) => Err(match unsafe { result::get_program_log(program) } {
            Ok(log) => {
                // SAFETY: NVRTC ends its log with a zero.
                let log = unsafe { CStr::from_ptr(log.as_ptr()) };
                failed(format!("{error:?}: {}", log.to_string_lossy()))
            }
            Err(_) => failed(format!("{error:?}")),
        }),
        Ok(()) => machine_code(program).map_err(|error| failed(format!("{error:?}"))),
    };
    // SAFETY: Nothing uses the program any more.
    let _ = unsafe { result::destroy_program(program) };
    machine_code
}

fn machine_code(program: sys::nvrtcProgram) -> Result<Vec<u8>, result::NvrtcError> {
    let mut n_bytes = 0;
    // SAFETY: The program was compiled, and the pointer is that of a number.
    unsafe { sys::nvrtcGetCUBINSize(program, ptr::from_mut(&mut n_bytes)) }.result()?;
    let mut code = vec![0_u8; n_bytes];
    // SAFETY: The buffer has as many bytes as NVRTC asked for.
    unsafe { sys::nvrtcGetCUBIN(program, code.as_mut_ptr().cast()) }.result()?;
    Ok(code)
}
