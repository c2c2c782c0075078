//! Tests of the main job as a separate program: README's first command.

use std::process::{Command, Output};

fn stack(args: &str) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    Command::new(env!("CARGO_BIN_EXE_stack"))
        .current_dir(folder.path())
        .args(args.split_whitespace())
        .env("FOLDWIRE_TOKN", "none")
        .output()
        .expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("it writes UTF-8")
}

#[test]
fn it_sums_images_and_says_in_words_what_was_seen() {
    let output = stack("--shape 24x20x28 --ranks 3 --cache images --repeat 1 --link none");
    let (said, remarks) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{remarks}");
    assert!(
        said.contains("MPI-like raw") && said.contains("every value within its bound"),
        "{said}"
    );
    assert!(
        remarks.contains("FOLDWIRE_TOKEN") && remarks.contains("out/overview.png"),
        "{remarks}"
    );
}

#[test]
fn what_is_wrong_is_said_and_is_an_exit_code() {
    for (args, expected) in [
        ("--shape 64x64", "three numbers"),
        ("--bound 1e-3", "needs a prefix"),
        ("stack", "unexpected argument"),
        ("--input a.f32 --cache images", "--cache has no use here"),
    ] {
        let output = stack(args);
        assert_eq!(output.status.code(), Some(2), "{args}");
        assert!(text(&output.stderr).contains(expected), "{args}: {}", text(&output.stderr));
    }
    let help = stack("--help");
    assert!(help.status.success() && text(&help.stdout).contains("`foldwire stack`"));
}
