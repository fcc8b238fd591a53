//! Sets of completion indexes, written as Jobs write them: `1,3-5,7`. Pure.

use std::collections::BTreeSet;

pub type Indexes = BTreeSet<i32>;

/// What is no index, or none below `completions`, is left out.
pub fn parse(text: &str, completions: i32) -> Indexes {
    let mut all = Indexes::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.trim().parse::<i32>(), last.trim().parse::<i32>()) {
            all.extend(first.max(0)..=last.min(completions - 1));
        }
    }
    all
}

pub fn write(indexes: &Indexes) -> String {
    let mut text = String::new();
    let mut all = indexes.iter().copied().peekable();
    while let Some(first) = all.next() {
        let mut last = first;
        while let Some(next) = all.next_if(|next| *next == last + 1) {
            last = next;
        }
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&first.to_string());
        if last > first {
            // Two that are neighbours are written as two.
            text.push(if last == first + 1 { ',' } else { '-' });
            text.push_str(&last.to_string());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn as_jobs_write_them() {
        for (indexes, text) in [(&[][..], ""), (&[0], "0"), (&[0, 1], "0,1"), (&[1, 3, 4, 5, 7], "1,3-5,7")] {
            assert_eq!(write(&indexes.iter().copied().collect()), text);
        }
        assert_eq!(parse("0,2-9999999,x,-4,7-", 5), [0, 2, 3, 4].into());
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(indexes in proptest::collection::btree_set(0..200, 0..60)) {
            prop_assert_eq!(parse(&write(&indexes), 200), indexes);
        }
    }
}
