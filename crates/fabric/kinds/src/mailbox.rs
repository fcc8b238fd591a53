//! How mailboxes are called: the workspaces, one for each edge, that show what it shall hold and what it reported.

/// The workspace that mailboxes are in, and from which the kinds of placement are exported: the edge service provider's.
pub const PROVIDER: &str = "root:espw";
/// On the Workspace object of a mailbox: the name of its SyncTarget.
pub const SYNC_TARGET: &str = "edge.kcp.io/sync-target-name";
/// The same: the workspace of its SyncTarget.
pub const INVENTORY: &str = "edge.selvedge.dev/sync-target-workspace";

const BETWEEN: &str = "-mb-";

/// The name of a SyncTarget's mailbox in [`PROVIDER`]: `<inventory workspace id>-mb-<SyncTarget uid>`.
pub fn name(inventory: &str, uid: &str) -> String {
    format!("{}{BETWEEN}{uid}", workspace_id(inventory))
}

/// Its whole path.
pub fn path(inventory: &str, uid: &str) -> String {
    format!("{PROVIDER}:{}", name(inventory, uid))
}

/// The name of the mailbox that a path leads to; `None` if it leads elsewhere.
pub fn of_path(path: &str) -> Option<&str> {
    let name = path.strip_prefix(PROVIDER)?.strip_prefix(':')?;
    uid(name).map(|_| name)
}

/// The uid of the SyncTarget that a mailbox's name tells.
pub fn uid(name: &str) -> Option<&str> {
    let (id, uid) = name.split_once(BETWEEN)?;
    (id.len() == ID && !uid.is_empty() && !uid.contains(':')).then_some(uid)
}

const ID: usize = 13;

/// A short name for a workspace that stays the same for as long as its path does: 64 bits, five in each letter. Two workspaces with the
/// same one would do no harm, as uids tell their SyncTargets apart.
pub fn workspace_id(path: &str) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for byte in path.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let letter = |at: usize| {
        let five = (hash >> (5 * at)) & 31;
        char::from(b"0123456789abcdefghjkmnpqrstvwxyz"[five as usize])
    };
    (0..ID).map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        let made = name("root:imw-1", "0a1b");
        assert_eq!(made, "6w7y8fs5caty1-mb-0a1b", "it is written down in stores");
        assert_eq!(uid(&made), Some("0a1b"));
        assert_eq!(of_path(&path("root:imw-1", "0a1b")), Some(made.as_str()));
        assert_ne!(workspace_id("root"), workspace_id("root:a"));
        let long = name(&"a".repeat(500), "00000000-0000-4000-8000-000000000000");
        assert!(long.len() <= 63, "{long}");
        for other in
            ["root:espw", "root:espw:florin", "root:espw:x-mb-u", "root:6w7y8fs5caty1-mb-0a1b", "root:espw:florin-mb"]
        {
            assert_eq!(of_path(other), None, "{other}");
        }
        assert_eq!(of_path(&format!("{}:inside", path("root", "u"))), None);
    }
}
