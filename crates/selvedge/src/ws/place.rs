//! Where one is and where one wants to go: paths of workspaces, as a person types them. Pure.

use anyhow::{Result, bail};

pub const ROOT: &str = "root";

/// Where the API is, and the workspace that a server address points into.
pub fn split_server(server: &str) -> (&str, &str) {
    let (base, rest) = server.split_once("/clusters/").unwrap_or((server, ROOT));
    let workspace = rest.split('/').next().unwrap_or_default();
    (base.trim_end_matches('/'), if workspace.is_empty() { ROOT } else { workspace })
}

pub fn server_in(base: &str, workspace: &str) -> String {
    format!("{base}/clusters/{workspace}")
}

/// The path that somebody who is in `current` means: absolute (`root:org`), relative (`team`, `..`, `..:other`) or the `previous`
/// one (`-`).
pub fn resolve(current: &str, previous: Option<&str>, wanted: &str) -> Result<String> {
    if wanted == "-" {
        let Some(previous) = previous else {
            bail!("there is no previous workspace yet: `ws use` remembers where you come from")
        };
        return Ok(previous.to_owned());
    }
    let parts: Vec<&str> = wanted.trim_start_matches(':').split([':', '/']).collect();
    let mut path: Vec<&str> = if parts.first() == Some(&ROOT) { Vec::new() } else { current.split(':').collect() };
    for part in parts {
        match part {
            "." => {}
            ".." if path.len() > 1 => {
                path.pop();
            }
            ".." => bail!("{ROOT} is the topmost workspace: there is nothing above it"),
            name => {
                check_name(name, wanted)?;
                path.push(name);
            }
        }
    }
    Ok(path.join(":"))
}

fn check_name(name: &str, wanted: &str) -> Result<()> {
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if name.is_empty() || name.len() > 63 || !name.bytes().all(good) || name.starts_with('-') || name.ends_with('-') {
        bail!(
            "{wanted:?} is no workspace: names between colons are lower-case letters, digits and dashes, as in root:org:team"
        );
    }
    Ok(())
}

/// A workspace's parent and its name there.
pub fn split(path: &str) -> Result<(&str, &str)> {
    match path.rsplit_once(':') {
        Some(parts) => Ok(parts),
        None => bail!("{path} has no parent: it can neither be created nor deleted"),
    }
}

/// Whether one is in a workspace, or in one below it.
pub fn is_within(current: &str, path: &str) -> bool {
    current.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers() {
        for (server, base, workspace) in [
            ("https://h:6443", "https://h:6443", "root"),
            ("https://h:6443/", "https://h:6443", "root"),
            ("https://h:6443/clusters/root:a", "https://h:6443", "root:a"),
            ("https://h/behind/clusters/root:a:b/", "https://h/behind", "root:a:b"),
        ] {
            assert_eq!(split_server(server), (base, workspace), "{server}");
        }
        assert_eq!(server_in("https://h/behind", "root:a"), "https://h/behind/clusters/root:a");
    }

    #[test]
    fn where_somebody_goes() {
        for (wanted, path) in [
            ("root", "root"),
            ("root:x:y", "root:x:y"),
            (":root:x", "root:x"),
            ("c", "root:a:b:c"),
            ("c:d", "root:a:b:c:d"),
            ("..", "root:a"),
            ("../..", "root"),
            ("..:c", "root:a:c"),
            (".", "root:a:b"),
            ("-", "root:z"),
        ] {
            assert_eq!(resolve("root:a:b", Some("root:z"), wanted).unwrap(), path, "{wanted}");
        }
        for bad in ["", "A", "a_b", "root:", "root::a", "../../..", "a/../../../../..", "*", "-a"] {
            assert!(resolve("root:a:b", None, bad).is_err(), "{bad}");
        }
        assert!(resolve("root", None, "-").unwrap_err().to_string().contains("no previous"));
    }

    #[test]
    fn inside() {
        assert!(is_within("root:a:b", "root:a") && is_within("root:a", "root:a"));
        assert!(!is_within("root:ab", "root:a") && !is_within("root", "root:a"));
    }
}
