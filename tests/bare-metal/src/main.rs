//! Proof that core needs neither the standard library nor an allocator: an all-reduce between two
//! endpoints in a program that has neither.
//!
//! `cargo xtask bare-metal` builds it with `panic = "abort"`, runs it and checks its symbols. It is
//! a proof for three reasons:
//!
//! - If any crate here used `std`, the panic handler below would be a second one. The compiler
//!   rejects that (`duplicate lang item`).
//! - If any crate used `alloc`, the compiler would refuse to link without a `#[global_allocator]`.
//! - xtask rejects a program that imports more from the C library than the start code, `write`,
//!   `abort`, and the memory functions that every compiler may call (`memcpy`, …). So `malloc` is
//!   rejected too.
//!
//! The library next to it does all the work. Here is only what a platform provides: start, panic,
//! output. With a profile that unwinds (as in `cargo build --workspace`), a program without `std`
//! cannot exist on stable Rust. Then this is an ordinary program that does the same.

#![cfg_attr(panic = "abort", no_std, no_main)]

#[cfg(panic = "abort")]
mod platform {
    #![expect(unsafe_code, reason = "calls the C library and provides its start function")]

    use core::ffi::{c_char, c_int};
    use core::fmt::{self, Write};
    use core::panic::PanicInfo;

    // SAFETY: the signatures are those of POSIX. `abort` has no preconditions.
    #[link(name = "c")]
    unsafe extern "C" {
        fn write(file: c_int, bytes: *const u8, n_bytes: usize) -> isize;
        safe fn abort() -> !;
    }

    struct Stderr;

    impl Write for Stderr {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            // SAFETY: pointer and length describe a string that outlives the call.
            let written = unsafe { write(2, text.as_ptr(), text.len()) };
            if written == text.len() as isize { Ok(()) } else { Err(fmt::Error) }
        }
    }

    // SAFETY: the program has one `main`, with the signature that the C library's start code calls.
    #[unsafe(no_mangle)]
    extern "C" fn main(_n_args: c_int, _args: *const *const c_char) -> c_int {
        foldwire_bare_metal::run(&mut Stderr)
    }

    #[panic_handler]
    fn panic(info: &PanicInfo<'_>) -> ! {
        // If this write fails, there is no other way to report the panic.
        let _ = writeln!(Stderr, "{info}");
        abort()
    }
}

#[cfg(not(panic = "abort"))]
fn main() -> std::process::ExitCode {
    let mut report = String::new();
    let status = foldwire_bare_metal::run(&mut report);
    eprint!("{report}");
    std::process::ExitCode::from(status as u8)
}
