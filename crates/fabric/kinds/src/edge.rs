//! Which edge.

use std::fmt;

/// An edge by its SyncTarget: the workspace that holds it, and its name there. Unique in a center.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EdgeId {
    pub workspace: String,
    pub name: String,
}

/// What the common names of edges' certificates begin with.
const USER: &str = "system:edge:";
const MAILBOX: &str = "-mb";

impl EdgeId {
    pub fn new(workspace: &str, name: &str) -> Self {
        Self { workspace: workspace.to_owned(), name: name.to_owned() }
    }

    /// The edge's own user name: `system:edge:root:org:florin`.
    pub fn user(&self) -> String {
        format!("{USER}{self}")
    }

    pub fn of_user(user: &str) -> Option<Self> {
        user.strip_prefix(USER)?.parse().ok()
    }

    /// The virtual workspace through which the edge is reached: `root:org:florin-mb`.
    pub fn mailbox(&self) -> String {
        format!("{self}{MAILBOX}")
    }

    pub fn of_mailbox(workspace: &str) -> Option<Self> {
        workspace.strip_suffix(MAILBOX)?.parse().ok()
    }

    /// A user or group of the edge's own, as the center knows it: an edge vouches for nobody else.
    pub fn local(&self, name: &str) -> String {
        format!("edge:{self}:{name}")
    }
}

impl fmt::Display for EdgeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.workspace, self.name)
    }
}

impl std::str::FromStr for EdgeId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.rsplit_once(':') {
            Some((workspace, name)) if !workspace.is_empty() && !name.is_empty() => Ok(Self::new(workspace, name)),
            _ => Err("expected a workspace and a name, like root:org:florin"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        let edge = EdgeId::new("root:org", "florin");
        assert_eq!(edge.user(), "system:edge:root:org:florin");
        assert_eq!(EdgeId::of_user(&edge.user()), Some(edge.clone()));
        assert_eq!(edge.mailbox(), "root:org:florin-mb");
        assert_eq!(EdgeId::of_mailbox(&edge.mailbox()), Some(edge.clone()));
        assert_eq!((EdgeId::of_mailbox("florin-mb"), EdgeId::of_mailbox("root:florin")), (None, None));
        assert_eq!(edge.local("alice"), "edge:root:org:florin:alice");
        for other in
            ["system:edge:florin", "system:edge::florin", "system:edge:root:", "florin", "system:node:root:florin"]
        {
            assert_eq!(EdgeId::of_user(other), None, "{other}");
        }
    }
}
