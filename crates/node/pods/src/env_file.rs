//! Variables in a file that a container of the pod wrote: lines of `NAME='value'`. Pure.

/// The value of a variable, if the file has it. What a shell would understand otherwise is an error, wherever it stands before it.
pub fn value(text: &str, key: &str) -> Result<Option<String>, String> {
    let mut lines = text.lines().zip(1_u32..);
    while let Some((line, number)) = lines.next() {
        let wrong = |what: &str| Err(format!("line {number}: {what}"));
        let line = line.trim_start_matches([' ', '\t']);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((name, rest)) = line.split_once('=') else { return wrong("it has no '='") };
        if name.is_empty() || name.ends_with([' ', '\t']) {
            return wrong("there has to be a name right before '='");
        }
        // As in a shell, what comes after a blank is not the value.
        if rest.starts_with([' ', '\t']) {
            if name == key {
                return Ok(None);
            }
            continue;
        }
        let Some(mut rest) = rest.strip_prefix('\'') else { return wrong("a value has to be in single quotes") };
        let mut value = String::new();
        let after = loop {
            if let Some((end, after)) = rest.split_once('\'') {
                value.push_str(end);
                break after;
            }
            value.push_str(rest);
            value.push('\n');
            let Some((next, _)) = lines.next() else { return wrong("its value does not end") };
            rest = next;
        };
        let after = after.trim_start_matches([' ', '\t']);
        if !after.is_empty() && !after.starts_with('#') {
            return wrong("only a comment may come after a value");
        }
        if name == key {
            return Ok(Some(value).filter(|value| !value.is_empty()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_a_kubelet_reads_it() {
        let text = "# first\n\n  A='1'  # one\nB='two\nlines'\nC= 'no'\nD=''\nE='e'\n";
        for (key, expected) in
            [("A", Some("1")), ("B", Some("two\nlines")), ("C", None), ("D", None), ("E", Some("e")), ("F", None)]
        {
            assert_eq!(value(text, key), Ok(expected.map(str::to_owned)), "{key}");
        }
        for text in ["A", "A ='1'", "='1'", "A=1", "A=\"1\"", "A='1", "A='1' 2"] {
            assert!(value(text, "A").is_err(), "{text}");
        }
        // What comes after it does not matter.
        assert_eq!(value("A='1'\nB", "A"), Ok(Some("1".to_owned())));
    }
}
