//! Any environment: a valid place in a group, or an error that names the variable.
//!
//! The input is lines of `NAME=VALUE`. In a valid place, the rank is below the size, the size is
//! within the limit, and the root's text parses to the same root.

use foldwire_bootstrap::{MAX_RANKS, Place, Root};
use std::cell::RefCell;
use std::ffi::OsString;

/// Runs the target on an input.
pub fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let set: Vec<_> = text.lines().filter_map(|line| line.split_once('=')).collect();
    let asked = RefCell::new(Vec::new());
    let lookup = |name: &str| {
        asked.borrow_mut().push(name.to_owned());
        set.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
    };
    match Place::detect(lookup) {
        Ok(place) => {
            assert!(place.rank.index() < place.size && place.size <= MAX_RANKS, "{place:?}");
            let root = place.root.to_string();
            assert!(root.parse::<Root>().as_ref() == Ok(&place.root), "{root}");
        }
        Err(error) => {
            // The error begins with the variable's name, or says which variable to set.
            let text = error.to_string();
            let is_named = asked.borrow().iter().any(|name| text.starts_with(name.as_str()));
            let says_how = ["set FOLDWIRE_ROOT=", "set FOLDWIRE_JOB to"];
            assert!(is_named || says_how.iter().any(|how| text.contains(how)), "{text}");
        }
    }
}
