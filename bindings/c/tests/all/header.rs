//! The committed header matches the sources and the version of the package.

use std::fs;

use crate::package;

/// Generates the header from the sources.
fn generated() -> String {
    let mut builder = cbindgen::Builder::new()
        .with_config(cbindgen::Config::from_file(package().join("cbindgen.toml")).unwrap());
    // Files in reading order.
    const FILES: [&str; 10] = [
        "types",
        "communicators",
        "stores",
        "device",
        "operations",
        "collectives",
        "sums",
        "located",
        "requests",
        "codec",
    ];
    for file in FILES {
        builder = builder.with_src(package().join(format!("src/ffi/{file}.rs")));
    }
    let mut bytes = Vec::new();
    builder.generate().unwrap().write(&mut bytes);
    String::from_utf8(bytes).unwrap()
}

#[test]
fn the_header_is_that_of_the_sources() {
    let (path, new) = (package().join("include/foldwire.h"), generated());
    if std::env::var_os("FOLDWIRE_UPDATE_HEADER").is_some() {
        fs::write(&path, &new).unwrap();
    }
    let old = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        old == new,
        "{} differs from what cbindgen generates from src/ffi/; to regenerate it, run:\n  \
         FOLDWIRE_UPDATE_HEADER=1 cargo test -p foldwire-capi header",
        path.display()
    );
    for line in new.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

#[test]
fn the_header_has_the_packages_version() {
    let header = fs::read_to_string(package().join("include/foldwire.h")).unwrap();
    for (name, value) in [
        ("MAJOR", env!("CARGO_PKG_VERSION_MAJOR")),
        ("MINOR", env!("CARGO_PKG_VERSION_MINOR")),
        ("PATCH", env!("CARGO_PKG_VERSION_PATCH")),
    ] {
        assert!(header.contains(&format!("#define FW_VERSION_{name} {value}\n")), "{name}");
    }
}
