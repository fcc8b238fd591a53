//! A class: what edges have in common that shall hold the same. Pure.

use std::sync::Arc;

use crate::{Id, Parameters};

/// One placement that reaches the edges of a class.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    pub placement: Id,
    /// Of its rollout; 0 is what is declared now.
    pub revision: u64,
    /// The values of those parameters that are in use.
    pub parameters: Parameters,
    /// The owner of the edge lets its workspace place what concerns the whole edge.
    pub trusted: bool,
    /// It did not reach the edge when its claims to namespaces were recorded.
    pub fresh: bool,
}

/// In order of the placements' names. Equal edges have equal ones.
pub type Class = Arc<[Member]>;

/// The plain set of a workspace is placed by nobody: this stands for whoever would.
pub fn plain(workspace: &str) -> Id {
    Id::new(workspace, "")
}

pub fn is_plain(placement: &Id) -> bool {
    placement.name.is_empty()
}
