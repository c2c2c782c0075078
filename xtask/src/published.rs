//! Tests that each published package has the metadata and files that the registry's readers need.

use crate::workspace;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the folders of the workspace members that are published.
fn published() -> Vec<PathBuf> {
    let root = workspace();
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let (_, members) = manifest.split_once("members = [").unwrap();
    let (members, _) = members.split_once(']').unwrap();
    let folders = members.split('"').skip(1).step_by(2).map(|member| root.join(member));
    folders.filter(|folder| !manifest_of(folder).contains("\npublish = false\n")).collect()
}

fn manifest_of(folder: &Path) -> String {
    fs::read_to_string(folder.join("Cargo.toml")).unwrap()
}

#[test]
fn a_published_package_says_what_it_is_and_brings_its_page_and_licences() {
    let packages = published();
    assert!(packages.len() > 5, "{packages:?}");
    for folder in packages {
        let manifest = manifest_of(&folder);
        for key in ["description", "keywords", "categories", "[package.metadata.docs.rs]"] {
            assert!(manifest.contains(&format!("\n{key}")), "{}: no {key}", folder.display());
        }
        let list = Command::new("cargo")
            .args(["package", "--list", "--allow-dirty", "--offline"])
            .current_dir(&folder)
            .output()
            .unwrap();
        let files = String::from_utf8(list.stdout).unwrap();
        for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
            let problem = String::from_utf8_lossy(&list.stderr);
            assert!(files.lines().any(|f| f == file), "{}: no {file}; {problem}", folder.display());
        }
    }
}
