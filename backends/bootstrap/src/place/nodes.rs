//! The first host of a Slurm node list, such as `node[01-03,7],login` or `rack[1-2]n[5,7]-ib`.

/// Returns the first host of `list`, or `None` if `list` does not start like a node list.
///
/// A host is a text that may contain brackets. A bracket holds numbers and ranges of numbers,
/// separated by commas. The first host gets the first number of each bracket, with leading zeros.
pub(super) fn first(list: &str) -> Option<String> {
    let mut host = String::new();
    let mut rest = list;
    loop {
        let end = rest.find(['[', ']', ',']).unwrap_or(rest.len());
        let (text, behind) = rest.split_at(end);
        if !text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
            return None;
        }
        host.push_str(text);
        rest = match behind.strip_prefix('[') {
            None if behind.starts_with(']') || host.is_empty() => return None,
            None => return Some(host),
            Some(behind) => {
                let (numbers, behind) = behind.split_once(']')?;
                host.push_str(first_number(numbers)?);
                behind
            }
        };
    }
}

/// Returns the first number of the contents of a bracket, or `None` if any part is malformed.
fn first_number(numbers: &str) -> Option<&str> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    let mut ranges = numbers.split(',').map(|range| match range.split_once('-') {
        Some((low, high)) => (is_number(low) && is_number(high)).then_some(low),
        None => is_number(range).then_some(range),
    });
    let first = ranges.next()??;
    ranges.all(|range| range.is_some()).then_some(first)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::first;

    #[test]
    fn the_first_host_is_found() {
        for (list, host) in [
            ("node1", "node1"),
            ("node1,node2", "node1"),
            ("node[1-3]", "node1"),
            ("node[007-130,2]", "node007"),
            ("node[12,3-4],login", "node12"),
            ("login,node[12,3-4]", "login"),
            ("rack[2-3]n[05,7]-ib,other", "rack2n05-ib"),
            ("gpu-a.example.org", "gpu-a.example.org"),
            ("[1-2]", "1"),
        ] {
            assert_eq!(first(list).as_deref(), Some(host), "{list}");
        }
    }

    #[test]
    fn a_list_that_does_not_begin_with_a_host_has_none() {
        for list in [
            "",
            ",",
            ",node1",
            "node[",
            "node[]",
            "node[1",
            "node]",
            "node[1-]",
            "node[-1]",
            "node[a]",
            "node[1,]",
            "node[[1]]",
            "no de1",
            "node[1-2-3]",
            "node:1",
            "node[1x4]",
        ] {
            assert_eq!(first(list), None, "{list}");
        }
    }

    /// A bracket and its first number.
    fn bracket() -> impl Strategy<Value = (String, String)> {
        proptest::collection::vec(("[0-9]{1,4}", proptest::option::of("[0-9]{1,4}")), 1..4)
            .prop_map(|ranges| {
                let low = ranges[0].0.clone();
                let texts: Vec<_> = ranges
                    .into_iter()
                    .map(|(low, high)| high.map_or(low.clone(), |high| format!("{low}-{high}")))
                    .collect();
                (format!("[{}]", texts.join(",")), low)
            })
    }

    proptest! {
        #[test]
        fn brackets_are_replaced_by_their_first_numbers(
            head in "[a-z][a-z0-9.-]{0,8}",
            parts in proptest::collection::vec((bracket(), "[a-z]{0,3}"), 0..3),
            rest in "(,[a-z]{1,5}(\\[[0-9]{1,3}-[0-9]{1,3}\\])?){0,2}",
        ) {
            let (mut list, mut host) = (head.clone(), head);
            for ((written, low), text) in parts {
                list.push_str(&(written + &text));
                host.push_str(&(low + &text));
            }
            prop_assert_eq!(first(&(list + &rest)), Some(host));
        }

        #[test]
        fn any_text_is_read_without_panic(list in any::<String>()) {
            if let Some(host) = first(&list) {
                prop_assert!(!host.is_empty() && !host.contains(['[', ']', ',']));
            }
        }

        #[test]
        fn nearly_lists_are_read_without_panic(list in "[a1,\\[\\]-]{0,20}") {
            if let Some(host) = first(&list) {
                prop_assert!(!host.is_empty() && !host.contains(['[', ']', ',']));
            }
        }
    }
}
