//! The proof that core needs neither the standard library nor an allocator: an all-reduce between
//! two endpoints in a program that has neither.
//!
//! `cargo xtask bare-metal` builds it with `panic = "abort"`, runs it and looks at its symbols. It
//! is a proof because
//!
//! - were any crate here to use `std`, the panic handler below would be a second one, which is an
//!   error of the compiler (`duplicate lang item`);
//! - were any to use `alloc`, the compiler would refuse to link without a `#[global_allocator]`;
//! - xtask refuses a program that imports anything from the C library but the start code, the
//!   memory functions that every compiler may call (`memcpy`, …), `write` and `abort`: so no
//!   `malloc` either.
//!
//! Everything that happens is in the library beside it; here is only what a platform provides:
//! start, panic, output. Built with a profile that unwinds (as by `cargo build --workspace`), where
//! a program without `std` cannot exist on stable Rust, it is an ordinary program that does the
//! same.

#![cfg_attr(panic = "abort", no_std, no_main)]

#[cfg(panic = "abort")]
mod platform {
    #![expect(unsafe_code, reason = "the C library's start code and output are foreign")]

    use core::ffi::{c_char, c_int};
    use core::fmt::{self, Write};
    use core::panic::PanicInfo;

    // SAFETY: these are the signatures of POSIX. `abort` has no preconditions.
    #[link(name = "c")]
    unsafe extern "C" {
        fn write(file: c_int, bytes: *const u8, n_bytes: usize) -> isize;
        safe fn abort() -> !;
    }

    struct Stderr;

    impl Write for Stderr {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            // SAFETY: pointer and length are those of a string that lives as long as the call.
            let written = unsafe { write(2, text.as_ptr(), text.len()) };
            if written == text.len() as isize { Ok(()) } else { Err(fmt::Error) }
        }
    }

    // SAFETY: the program has one `main`, of the type that the C library's start code calls.
    #[unsafe(no_mangle)]
    extern "C" fn main(_n_args: c_int, _args: *const *const c_char) -> c_int {
        foldwire_bare_metal::run(&mut Stderr)
    }

    #[panic_handler]
    fn panic(info: &PanicInfo<'_>) -> ! {
        // Nothing is left to do if even this cannot be written.
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
