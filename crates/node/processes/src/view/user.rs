//! As whom a container runs, and as whom it can.

use pods::runtime::User;
use rustix::{
    process::{Gid, Uid},
    thread::{set_thread_gid, set_thread_groups, set_thread_uid},
};
use serde::{Deserialize, Serialize};

/// Who asks not to be root, and does not say who to be, is nobody.
const NOBODY: u32 = 65534;

/// Whoever is not said stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub user: Option<u32>,
    pub group: Option<u32>,
    pub groups: Vec<u32>,
}

impl Identity {
    /// What a container asks for, on an edge that runs as `own`.
    pub fn of(asked: &User, own: u32) -> Self {
        let user = asked.id.or_else(|| (asked.is_not_root && own == 0).then_some(NOBODY));
        // As with images that say nothing of groups.
        let group = asked.group.or_else(|| user.map(|user| if user == NOBODY { NOBODY } else { 0 }));
        Self { user, group, groups: asked.groups.clone() }
    }

    /// Root becomes it. There is no way back.
    pub fn assume(&self) -> rustix::io::Result<()> {
        if self == &Self::default() {
            return Ok(());
        }
        let groups: Vec<Gid> = self.groups.iter().map(|group| Gid::from_raw(*group)).collect();
        set_thread_groups(&groups)?;
        if let Some(group) = self.group {
            set_thread_gid(Gid::from_raw(group))?;
        }
        self.user.map_or(Ok(()), |user| set_thread_uid(Uid::from_raw(user)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_it_is() {
        let asked = |id, group, is_not_root| User { id, group, groups: vec![7], is_not_root };
        for (asked, own, user, group) in [
            (asked(None, None, false), 0, None, None),
            (asked(None, None, true), 0, Some(NOBODY), Some(NOBODY)),
            (asked(None, None, true), 1000, None, None),
            (asked(Some(1000), None, true), 0, Some(1000), Some(0)),
            (asked(Some(1000), Some(2000), false), 0, Some(1000), Some(2000)),
            (asked(None, Some(2000), false), 0, None, Some(2000)),
        ] {
            assert_eq!(Identity::of(&asked, own), Identity { user, group, groups: vec![7] }, "{asked:?} {own}");
        }
    }
}
