//! Paths of workspaces, `root:org:team`, and where the objects lie that stand for them. Pure.

/// A path is part of every key of the store.
pub const LONGEST: usize = 512;

pub fn parent(path: &str) -> Option<&str> {
    path.rsplit_once(':').map(|(parent, _)| parent)
}

pub fn name(path: &str) -> &str {
    path.rsplit_once(':').map_or(path, |(_, name)| name)
}

pub fn child(parent: &str, name: &str) -> String {
    format!("{parent}:{name}")
}

/// Where the Workspace object lies in its collection; `root` has none.
pub fn object_key(path: &str) -> Option<String> {
    let (parent, name) = path.rsplit_once(':')?;
    Some(format!("{parent}//{name}"))
}

/// The way round: the path of the workspace that the object of this key stands for.
pub fn of_object(key: &str) -> Option<String> {
    let (parent, name) = key.split_once("//")?;
    Some(child(parent, name))
}

/// Whether a workspace lies in another one, at any depth.
pub fn is_inside(path: &str, outer: &str) -> bool {
    path.strip_prefix(outer).is_some_and(|rest| rest.starts_with(':'))
}

/// A DNS label: what may stand between two colons.
pub fn is_name(name: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !name.is_empty() && name.len() <= 63 && name.bytes().all(inner) && !name.starts_with('-') && !name.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_keys() {
        assert_eq!((parent("root:a:b"), name("root:a:b")), (Some("root:a"), "b"));
        assert_eq!((parent("root"), name("root"), object_key("root")), (None, "root", None));
        assert_eq!(object_key("root:a:b").unwrap(), "root:a//b");
        assert_eq!(of_object("root:a//b").unwrap(), "root:a:b");
        assert_eq!(of_object("root/ns/b"), None);
        assert!(is_inside("root:a", "root") && is_inside("root:a:b", "root"));
        assert!(!is_inside("root", "root") && !is_inside("root:ab", "root:a") && !is_inside("root", "root:a"));
        for (name, good) in [
            ("a", true),
            ("a-1", true),
            ("", false),
            ("-a", false),
            ("a-", false),
            ("A", false),
            ("a.b", false),
            ("a:b", false),
        ] {
            assert_eq!(is_name(name), good, "{name}");
        }
        assert!(is_name(&"a".repeat(63)) && !is_name(&"a".repeat(64)));
    }
}
