//! Finds libfabric by pkg-config, compiles the shim for its static inline functions, and generates
//! bindings from the installed headers with bindgen.

use std::env;
use std::fs;
use std::panic;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bindgen::callbacks::{
    EnumVariantCustomBehavior, EnumVariantValue, ItemInfo, ItemKind, ParseCallbacks,
};

/// Oldest release that has everything used here.
const OLDEST: &str = "1.11";

/// Functions of the headers that have a symbol.
const FUNCTIONS: &str =
    "fi_(getinfo|freeinfo|dupinfo|fabric|version|strerror|tostr|getparams|freeparams)";
/// Types to bind. bindgen adds the types that they use.
const TYPES: &str = "fi_(info|param|context2|av_attr|cq_attr|cq_tagged_entry|cq_err_entry)";
/// Types that only the library fills, which need no default.
const FILLED: &str = "fi_(info|param|cq_tagged_entry|(ep|domain|fabric)_attr)";
/// Enumerators to bind.
const ENUMERATORS: [&str; 8] = [
    "FI_AV_UNSPEC",
    "FI_CQ_FORMAT_TAGGED",
    "FI_EP_RDM",
    "FI_PROGRESS_MANUAL",
    "FI_THREAD_DOMAIN",
    "FI_TYPE_MODE",
    "FI_TYPE_MR_MODE",
    "FI_WAIT_NONE",
];
/// Stored bindings to libfabric 1.17 on x86-64 Linux, for docs.rs, which has no libfabric and links
/// nothing.
const FOR_DOCS_RS: &str = "docs-rs/bindings.rs";

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed=shim");
    println!("cargo::rerun-if-changed={FOR_DOCS_RS}");
    println!("cargo::rerun-if-env-changed=DOCS_RS");
    if env::var_os("DOCS_RS").is_some() {
        return match bindings_file().and_then(|out| copy(FOR_DOCS_RS, &out)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(problem) => fail("no bindings for docs.rs", &problem),
        };
    }
    let library = match pkg_config::Config::new().atleast_version(OLDEST).probe("libfabric") {
        Ok(library) => library,
        Err(problem) => {
            let what = format!(
                "pkg-config finds no libfabric {OLDEST} or newer (set PKG_CONFIG_PATH to the \
                 folder of its libfabric.pc)"
            );
            return fail(&what, &problem.to_string());
        }
    };
    let includes = &library.include_paths;
    if let Err(problem) = cc::Build::new()
        .file("shim/shim.c")
        .includes(includes)
        .try_compile("foldwire_libfabric_shim")
    {
        return fail("the C compiler refuses libfabric's headers", &problem.to_string());
    }
    // bindgen panics with a clear message if it does not find libclang.
    match panic::catch_unwind(|| bindings(includes)) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(problem)) => fail("no bindings", &problem),
        Err(_) => {
            fail("bindgen cannot use libclang (set LIBCLANG_PATH to the folder of libclang.so)", "")
        }
    }
}

fn bindings(include_paths: &[PathBuf]) -> Result<(), String> {
    let includes = include_paths.iter().map(|path| format!("-I{}", path.display()));
    bindgen::Builder::default()
        .header("shim/shim.h")
        .clang_args(includes)
        .allowlist_function("shim_.*")
        .allowlist_function(FUNCTIONS)
        .allowlist_type(TYPES)
        .allowlist_var("shim_FI_.*")
        .opaque_type("fid|fid_(fabric|domain|ep|av|cq|mr|nic|wait)")
        .prepend_enum_name(false)
        .derive_default(true)
        .no_default(FILLED)
        .merge_extern_blocks(true)
        .generate_comments(false)
        .layout_tests(true)
        .parse_callbacks(Box::new(Names))
        .generate()
        .map_err(|problem| format!("bindgen cannot read libfabric's headers: {problem}"))?
        .write_to_file(bindings_file()?)
        .map_err(|problem| format!("cannot write the bindings: {problem}"))
}

/// Returns the path of the file that the library includes.
fn bindings_file() -> Result<PathBuf, String> {
    let out = env::var_os("OUT_DIR").ok_or("OUT_DIR is not set; build with cargo")?;
    Ok(Path::new(&out).join("bindings.rs"))
}

fn copy(from: &str, to: &Path) -> Result<(), String> {
    fs::copy(from, to).map(|_| ()).map_err(|problem| format!("{from}: {problem}"))
}

fn fail(what: &str, detail: &str) -> ExitCode {
    println!(
        "cargo::error={what}; on Debian and Ubuntu: apt-get install libfabric-dev libclang-dev \
         pkg-config gcc"
    );
    println!("{detail}");
    ExitCode::FAILURE
}

/// Renames the shim's functions and constants to libfabric's names, and chooses enumerators.
#[derive(Debug)]
struct Names;

impl ParseCallbacks for Names {
    fn enum_variant_behavior(
        &self,
        _: Option<&str>,
        name: &str,
        _: EnumVariantValue,
    ) -> Option<EnumVariantCustomBehavior> {
        (!ENUMERATORS.contains(&name)).then_some(EnumVariantCustomBehavior::Hide)
    }

    fn item_name(&self, item: ItemInfo<'_>) -> Option<String> {
        match item.kind {
            ItemKind::Function | ItemKind::Var => {
                item.name.strip_prefix("shim_").map(str::to_owned)
            }
            _ => None,
        }
    }
}
