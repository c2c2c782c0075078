//! NVRTC compiles every kernel, and its assembler says how many registers each takes. Nothing runs.
//!
//! NVRTC comes with CUDA, or alone from PyPI: `pip install nvidia-cuda-nvrtc`. The tests look for
//! the library that `FOLDWIRE_NVRTC` names, then among the system's libraries, then in Python's
//! packages. They are skipped, and say so, if there is none.

use foldwire::DType;
use foldwire_cuda::kernel::{KernelFile, NVRTC_OPTIONS};
use foldwire_cuda::{Cuda, DeviceError, Module, Nvrtc};
use std::num::NonZero;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, thread};

/// Lists the library in each of Python's folders of packages.
const PYTHON: &str = "
import glob, site
for folder in site.getsitepackages() + [site.getusersitepackages()]:
    for path in sorted(glob.glob(folder + '/nvidia/**/libnvrtc.so.*', recursive=True)):
        print(path)
";

/// Finds the library.
fn find() -> Result<Nvrtc, DeviceError> {
    if let Some(path) = env::var_os("FOLDWIRE_NVRTC") {
        return Nvrtc::load(path);
    }
    let listed = Command::new("python3").args(["-c", PYTHON]).output();
    let listed = listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let listed = listed.unwrap_or_default();
    let names = ["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"];
    let mut all = names.into_iter().chain(listed.lines()).map(Nvrtc::load);
    all.find_map(Result::ok).map_or_else(|| Nvrtc::load("libnvrtc.so"), Ok)
}

/// Registers and spilled bytes of a kernel.
struct Usage {
    kernel: String,
    registers: u32,
    spilled: u32,
}

/// Reads what the assembler says of each kernel.
fn usages(log: &str) -> Vec<Usage> {
    let number_before = |line: &str, unit: &str| {
        let before = line.split(unit).next()?;
        before.split_whitespace().last()?.parse().ok()
    };
    let (mut usages, mut kernel, mut spilled) = (Vec::new(), String::new(), 0);
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            kernel = rest.split('\'').next().unwrap_or_default().into();
        } else if line.contains("bytes spill stores") {
            spilled = number_before(line, " bytes spill stores").unwrap_or(u32::MAX);
        } else if let Some(registers) = number_before(line, " registers") {
            usages.push(Usage { kernel: kernel.clone(), registers, spilled });
        }
    }
    usages
}

/// Compiles a module for an architecture, and prints what each kernel takes.
fn compile(nvrtc: &Nvrtc, module: Module, architecture: &str) {
    let options: Vec<&str> = ["--ptxas-options=-v"].into_iter().chain(NVRTC_OPTIONS).collect();
    let compiled = nvrtc.compile(&module.source(), architecture, &options);
    let log = compiled.unwrap_or_else(|error| panic!("{module:?} for {architecture}: {error}")).log;
    let is_old = |line: &&str| line.contains("Architectures prior to");
    let is_warned = log.lines().filter(|line| !is_old(line)).any(|line| line.contains("warning"));
    assert!(!is_warned, "{module:?} for {architecture}: {log}");
    let usages = usages(&log);
    assert!(!usages.is_empty(), "{module:?}: no kernel in {log}");
    for Usage { kernel, registers, spilled } in usages {
        println!("{architecture} {kernel}: {registers} registers, {spilled} bytes spilled");
        assert!(spilled == 0 || module.file != KernelFile::FzLight, "{kernel} spills");
    }
}

/// Compiles some modules for some architectures, if NVRTC is there and knows them.
fn compile_all(modules: impl Iterator<Item = Module>, architectures: &[&str]) {
    let nvrtc = match find() {
        Ok(nvrtc) => nvrtc,
        Err(why) => return println!("skipped: {why}"),
    };
    let known = nvrtc.architectures().expect("a list");
    let is_known = |architecture: &&&str| {
        let number = architecture.trim_start_matches("sm_").parse().expect("a number");
        let is_known = known.contains(&number);
        if !is_known {
            println!("skipped: this NVRTC does not know {architecture}");
        }
        is_known
    };
    let architectures: Vec<&str> = architectures.iter().filter(is_known).copied().collect();
    let jobs = modules.flat_map(|module| architectures.iter().map(move |&on| (module, on)));
    let (jobs, next): (Vec<_>, _) = (jobs.collect(), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(|| {
                while let Some(&(module, on)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    compile(&nvrtc, module, on);
                }
            });
        }
    });
}

#[test]
fn kernels_of_fz_light_for_f32_do_not_spill() {
    let module = Module { file: KernelFile::FzLight, dtype: DType::F32 };
    compile_all([module].into_iter(), &["sm_90"]);
}

/// The driver of such a device translates PTX.
#[test]
fn a_device_that_is_newer_than_nvrtc_gets_ptx() {
    let nvrtc = match find() {
        Ok(nvrtc) => nvrtc,
        Err(why) => return println!("skipped: {why}"),
    };
    let source = Module { file: KernelFile::Payload, dtype: DType::F32 }.source();
    let code = nvrtc.compile_for(&source, (99, 0)).expect("it compiles");
    let text = String::from_utf8(code).expect("PTX is text");
    let newest = nvrtc.architectures().expect("a list").into_iter().max().expect("some");
    assert!(text.contains(&format!(".target sm_{newest}")) && text.ends_with('\0'));
    let code = nvrtc.compile_for(&source, (9, 0)).expect("it compiles");
    assert!(code.starts_with(b"\x7fELF"), "machine code");
    let failed = nvrtc.compile_for("no source", (9, 0)).expect_err("it does not compile");
    assert!(failed.to_string().contains("foldwire.cu(1)"), "{failed}");
}

/// A library with NVRTC's functions, which only says its version.
const STAND_IN: &str = "
int nvrtcVersion(int *major, int *minor) { *major = MAJOR; *minor = 0; return 0; }
#define OTHER(name) int name(void) { return 1; }
OTHER(nvrtcGetNumSupportedArchs) OTHER(nvrtcGetSupportedArchs) OTHER(nvrtcCreateProgram)
OTHER(nvrtcCompileProgram) OTHER(nvrtcDestroyProgram) OTHER(nvrtcGetProgramLogSize)
OTHER(nvrtcGetProgramLog) OTHER(nvrtcGetCUBINSize) OTHER(nvrtcGetCUBIN) OTHER(nvrtcGetPTXSize)
OTHER(nvrtcGetPTX)
const char *nvrtcGetErrorString(int error) { return \"\"; }
";

/// The system finds one library by its name, and the variable names another one.
#[test]
fn the_library_that_the_variable_names_comes_before_the_systems() {
    let home = env::temp_dir().join(format!("foldwire-nvrtc-{}", std::process::id()));
    let make = |folder: &str, name: &str, major: u32| {
        let folder = home.join(folder);
        fs::create_dir_all(&folder).expect("a folder");
        let (source, library) = (folder.join("nvrtc.c"), folder.join(name));
        fs::write(&source, STAND_IN.replace("MAJOR", &major.to_string())).expect("a file");
        let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
        let mut command = Command::new(compiler);
        command.args(["-shared", "-fPIC", "-Wl,-soname,libnvrtc.so.12", "-o"]);
        let done = command.arg(&library).arg(&source).status();
        assert!(done.expect("a C compiler").success());
        library
    };
    let (named, found) = (make("a", "libnvrtc.so.12", 77), make("b", "libnvrtc.so", 66));
    let version = |variable: Option<&str>| {
        let mut child = Command::new(env::current_exe().expect("this program"));
        child.args(["--exact", "said_version", "--ignored", "--nocapture"]);
        child.env_remove("FOLDWIRE_NVRTC").envs(variable.map(|path| ("FOLDWIRE_NVRTC", path)));
        child.env("LD_LIBRARY_PATH", found.parent().expect("a folder"));
        let output = child.output().expect("it runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let said = version(named.to_str());
    assert!(said.contains("version 77.0"), "{said}");
    // Without it, CUDA's toolkit may have one.
    for variable in [None, Some("/no/such/library")] {
        let said = version(variable);
        assert!(said.contains("version ") && !said.contains("version 77"), "{said}");
    }
    fs::remove_dir_all(home).expect("the folder is there");
}

#[test]
#[ignore = "only with the variables of the test above"]
fn said_version() {
    let (major, minor) = Cuda::compiler_version().expect("a library");
    println!("version {major}.{minor}");
}

/// The slowest test.
mod long {
    use super::*;

    #[test]
    fn every_kernel_is_compiled_for_every_architecture() {
        let modules = KernelFile::ALL.iter().flat_map(|&file| {
            let dtypes = DType::ALL.iter().copied().filter(move |&dtype| file.is_for(dtype));
            dtypes.map(move |dtype| Module { file, dtype })
        });
        compile_all(modules, &["sm_70", "sm_80", "sm_90", "sm_100"]);
    }
}
