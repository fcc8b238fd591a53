//! Users: what is known of whoever asks, and where it counts.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::token::ROOT;

pub const AUTHENTICATED: &str = "system:authenticated";
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
pub const ANONYMOUS: &str = "system:anonymous";
pub const MASTERS: &str = "system:masters";
/// The name of a server that acts by itself. The name alone means nothing: see [`Mark`].
pub const ITSELF: &str = "system:apiserver";
/// The extra fields that say where a user counts. They are the server's to set.
const RESERVED: &str = "authentication.kcp.io/";
/// Says where a user belongs that does not belong to the root workspace.
pub const HOME: &str = "authentication.kcp.io/cluster-name";
/// Names the only workspaces in which a user counts.
const SCOPES: &str = "authentication.kcp.io/scopes";
const SCOPE: &str = "cluster:";

/// The user behind a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
    pub mark: Mark,
}

/// Tells this server itself from everybody else. Only [`User::itself`] makes one that is set: no name, group, header,
/// certificate or stored object does, and it is never written down or sent anywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark(bool);

impl User {
    pub fn anonymous() -> Self {
        Self { name: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..Self::default() }
    }

    /// This server itself, for calls within the process. As upstream's, it may do anything.
    pub fn itself() -> Self {
        Self { name: ITSELF.to_owned(), groups: vec![MASTERS.to_owned()], mark: Mark(true), ..Self::default() }
    }

    /// Whether the server itself asks, and nobody who only has its name and group.
    pub fn is_itself(&self) -> bool {
        self.mark.0
    }

    /// A controller that is part of this process: its account in `kube-system`, with that account's rights.
    pub fn controller(account: &str) -> Self {
        let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system", AUTHENTICATED];
        Self {
            name: format!("system:serviceaccount:kube-system:{account}"),
            groups: groups.map(str::to_owned).into(),
            ..Self::default()
        }
    }

    /// The node that is part of this process.
    pub fn node(name: &str) -> Self {
        let groups = ["system:nodes", AUTHENTICATED].map(str::to_owned).into();
        Self { name: format!("system:node:{name}"), groups, ..Self::default() }
    }

    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }

    /// The user may do everything in this workspace. The group alone does not say so: whoever administers a workspace
    /// can become a member there, and is one only there.
    pub fn rules(&self, cluster: &str) -> bool {
        self.is_in(MASTERS) && !self.is_confined_elsewhere(cluster)
    }

    /// The user may do everything in all workspaces, as the administrators of the server may.
    pub fn rules_everywhere(&self) -> bool {
        self.is_in(MASTERS) && !self.is_confined()
    }

    /// The workspace in which this user is somebody by what they are (a node, a ServiceAccount) rather than by their
    /// name.
    pub fn home(&self) -> &str {
        self.extra.get(HOME).and_then(|values| values.first()).map_or(ROOT, String::as_str)
    }

    /// The user counts in some workspace only.
    pub fn is_confined(&self) -> bool {
        self.extra.contains_key(SCOPES)
    }

    /// The user counts in other workspaces only.
    pub fn is_confined_elsewhere(&self, cluster: &str) -> bool {
        let is_here = |scope: &String| scope.strip_prefix(SCOPE) == Some(cluster);
        self.extra.get(SCOPES).is_some_and(|scopes| !scopes.iter().any(is_here))
    }

    /// The workspace in which a confined user counts: the first, if there are several.
    pub fn scope(&self) -> Option<&str> {
        let scopes = self.extra.get(SCOPES)?;
        Some(scopes.first().and_then(|scope| scope.strip_prefix(SCOPE)).unwrap_or_default())
    }

    /// From now on the user counts in this workspace only.
    pub fn confine(&mut self, cluster: &str) {
        self.extra.insert(SCOPES.to_owned(), vec![format!("{SCOPE}{cluster}")]);
    }

    /// Takes away what only the server says of users. For users whom a client describes.
    pub fn forget_place(&mut self) {
        self.extra.retain(|key, _| !key.starts_with(RESERVED));
    }

    pub(super) fn join(&mut self, group: &str) {
        if !self.is_in(group) {
            self.groups.push(group.to_owned());
        }
    }

    /// `authentication.k8s.io` `UserInfo`.
    pub fn info(&self) -> Value {
        let mut info = json!({"username": self.name});
        if !self.uid.is_empty() {
            info["uid"] = self.uid.as_str().into();
        }
        if !self.groups.is_empty() {
            info["groups"] = json!(self.groups);
        }
        if !self.extra.is_empty() {
            info["extra"] = json!(self.extra);
        }
        info
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_the_server_by_name() {
        let named = User { name: ITSELF.into(), groups: vec![MASTERS.into()], ..User::default() };
        assert!(!named.is_itself() && named != User::itself() && User::itself().is_itself());
        assert_eq!(named.info(), User::itself().info(), "the mark is nothing that anybody is told");
    }

    #[test]
    fn masters_rule_where_they_count() {
        let mut user = User { name: "x".into(), groups: vec![MASTERS.into()], ..User::default() };
        let rules = |user: &User| ["root", "root:a", "root:a:b", "*"].map(|cluster| user.rules(cluster));
        assert_eq!((rules(&user), user.rules_everywhere()), ([true; 4], true));
        user.confine("root:a");
        assert_eq!((rules(&user), user.rules_everywhere()), ([false, true, false, false], false));
        assert_eq!(user.scope(), Some("root:a"));
        // A scope that names no workspace is no way out of one.
        for scopes in [vec![], vec!["root:a".to_owned()], vec![String::new()]] {
            user.extra.insert(SCOPES.into(), scopes);
            assert_eq!((rules(&user), user.rules_everywhere()), ([false; 4], false));
        }
        user.groups = vec!["devs".into()];
        user.forget_place();
        assert_eq!((rules(&user), user.rules_everywhere(), user.is_confined()), ([false; 4], false, false));
    }
}
