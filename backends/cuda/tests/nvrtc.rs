//! NVRTC compiles every kernel, and its assembler says how many registers each takes. Nothing runs.
//!
//! NVRTC comes with CUDA, or alone from PyPI: `pip install nvidia-cuda-nvrtc`. The tests look for
//! the library that `FOLDWIRE_NVRTC` names, then among the system's libraries, then in Python's
//! packages. They are skipped, and say so, if there is none.

mod nvrtc_ffi;

use foldwire::DType;
use foldwire_cuda::Module;
use foldwire_cuda::kernel::{KernelFile, NVRTC_OPTIONS};
use nvrtc_ffi::Nvrtc;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

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
    let options = [&format!("--gpu-architecture={architecture}"), "--ptxas-options=-v"];
    let options: Vec<&str> = options.into_iter().chain(NVRTC_OPTIONS).collect();
    let log = nvrtc.compile(&module.source(), &options);
    let log = log.unwrap_or_else(|log| panic!("{module:?} for {architecture}: {log}"));
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
    let nvrtc = match Nvrtc::find() {
        Ok(nvrtc) => nvrtc,
        Err(why) => return println!("skipped: {why}"),
    };
    let known = nvrtc.architectures();
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
