//! Entering a workspace: who is who there, and who may come in at all.
//!
//! Without a right to enter, nothing else that somebody may do in a workspace counts, and nobody learns whether it exists.

use std::borrow::Cow;

use identity::authenticate::{AUTHENTICATED, HOME, MASTERS, UNAUTHENTICATED};
use identity::{Attributes, Authorizer, Mark, User};
use request::ROOT;
use schema::status::{Result, Status};
use serde_json::Value;

use super::{GROUP, path, wildcard::EVERYWHERE};
use crate::Server;

/// May list and watch across workspaces, as `system:masters` may.
pub const CONTROLLERS: &str = "system:selvedge:controllers";

const ACCOUNT: &str = "system:serviceaccount:";
/// What the names of confined users begin with in workspaces where they do not count.
const STRANGER: &str = "system:kcp:scoped:";

/// The workspace in which a ServiceAccount lives; `None` for everybody else.
fn home(user: &User) -> Option<&str> {
    user.name.starts_with(ACCOUNT).then(|| user.home())
}

/// A user as a workspace knows them. Two kinds of users are strangers in other workspaces than their own: they have a
/// longer name there, to which nothing is bound unless somebody meant it, and none of their groups. These are
/// ServiceAccounts, which are not the accounts of the same name, and users whom somebody became by impersonation.
pub fn seen_from<'a>(user: &'a User, cluster: &str) -> Cow<'a, User> {
    if !user.is_confined_elsewhere(cluster) {
        return named_in(user, cluster);
    }
    let prefix = format!("{STRANGER}{}:", user.scope().unwrap_or_default());
    let name = if user.name.starts_with(&prefix) { user.name.clone() } else { format!("{prefix}{}", user.name) };
    let group = if user.is_in(UNAUTHENTICATED) { UNAUTHENTICATED } else { AUTHENTICATED };
    let (groups, extra) = (vec![group.to_owned()], user.extra.clone());
    Cow::Owned(User { name, groups, extra, ..User::default() })
}

/// The same as far as ServiceAccounts are concerned.
pub fn named_in<'a>(user: &'a User, cluster: &str) -> Cow<'a, User> {
    match home(user) {
        Some(home) if home != cluster => {
            let name = format!("system:kcp:serviceaccount:{home}:{}", &user.name[ACCOUNT.len()..]);
            let groups = vec![AUTHENTICATED.to_owned()];
            Cow::Owned(User { name, groups, mark: Mark::default(), ..user.clone() })
        }
        _ => Cow::Borrowed(user),
    }
}

/// A TokenReview's answer as a workspace should hear it.
pub fn review_from(mut review: Value, cluster: &str) -> Value {
    let told = &review["status"]["user"];
    let user = User {
        name: told["username"].as_str().unwrap_or_default().to_owned(),
        extra: serde_json::from_value(told["extra"].clone()).unwrap_or_default(),
        ..User::default()
    };
    if let Cow::Owned(seen) = seen_from(&user, cluster) {
        review["status"]["user"]["username"] = seen.name.into();
        review["status"]["user"]["groups"] = seen.groups.into();
    }
    review
}

/// Whoever somebody becomes in a workspace by impersonation, they are it only there.
pub fn confine(user: &mut User, sender: &User, cluster: &str) {
    // Where somebody counts is not for clients to say.
    user.forget_place();
    if cluster == ROOT {
        return;
    }
    if user.name.starts_with(ACCOUNT) || user.name.starts_with("system:node:") {
        user.extra.insert(HOME.to_owned(), vec![cluster.to_owned()]);
    }
    if !sender.rules_everywhere() {
        user.confine(cluster);
    }
}

impl Server {
    /// Lets a user into a workspace, or says why not. `root` is open: what somebody may do there, roles say.
    pub fn enter(&self, user: &User, cluster: &str) -> Result<()> {
        let there = match cluster {
            ROOT => return Ok(()),
            EVERYWHERE if reaches_all(user) => return Ok(()),
            EVERYWHERE => {
                let why = format!("only {MASTERS} and {CONTROLLERS} list and watch across workspaces");
                return Err(refused(user, cluster, &why));
            }
            _ => self.workspaces.exists(cluster),
        };
        if there && self.may_enter(user, cluster) {
            return Ok(());
        }
        if !there && self.may_know(user, cluster) {
            let (parent, name) = (path::parent(cluster).unwrap_or_default(), path::name(cluster));
            let what = match parent {
                "" => format!("workspace {cluster:?} not found: the path of every workspace begins with {ROOT:?}"),
                parent => format!("workspace {cluster:?} not found: there is no Workspace {name:?} in {parent:?}"),
            };
            return Err(Status::new(404, "NotFound", what).about(GROUP, "workspaces", name));
        }
        let why = "ask somebody who administers it to bind the ClusterRole system:kcp:workspace:access, or more, to you there";
        Err(refused(user, cluster, why))
    }

    /// Whether somebody whom a review asks about could enter. An account of no named workspace is one of this.
    pub fn could_enter(&self, user: &User, cluster: &str) -> bool {
        let is_own = user.name.starts_with(ACCOUNT) && !user.extra.contains_key(HOME);
        cluster == ROOT || is_own || self.may_enter(user, cluster)
    }

    fn may_enter(&self, user: &User, cluster: &str) -> bool {
        // What a workspace's own accounts may do there, its roles say.
        user.rules(cluster)
            || home(user) == Some(cluster)
            || self.authorize(user, cluster, &Attributes::path("access", "/")).is_ok()
    }

    /// Whoever may look a workspace up may know that it is not there.
    fn may_know(&self, user: &User, cluster: &str) -> bool {
        if user.rules(cluster) {
            return true;
        }
        let Some(parent) = path::parent(cluster) else { return false };
        let get = Attributes {
            verb: "get".to_owned(),
            group: GROUP.to_owned(),
            version: super::VERSION.to_owned(),
            resource: "workspaces".to_owned(),
            name: path::name(cluster).to_owned(),
            ..Attributes::default()
        };
        let user = seen_from(user, parent);
        (parent == ROOT || self.workspaces.exists(parent) && self.may_enter(&user, parent))
            && self.authorization.in_workspace(parent).authorize(&user, &get).allowed
    }
}

/// May look into all workspaces at once.
pub fn reaches_all(user: &User) -> bool {
    user.rules(EVERYWHERE) || user.is_in(CONTROLLERS) && !user.is_confined()
}

/// The same words whether the workspace exists or not.
fn refused(user: &User, cluster: &str, why: &str) -> Status {
    let message = format!("workspaces.{GROUP} {cluster:?} is forbidden: User {:?} may not enter it: {why}", user.name);
    Status::new(403, "Forbidden", message).about(GROUP, "workspaces", path::name(cluster))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(cluster: Option<&str>) -> User {
        let extra = cluster.map(|c| (HOME.to_owned(), vec![c.to_owned()])).into_iter().collect();
        let groups = ["system:serviceaccounts", "system:serviceaccounts:ns", AUTHENTICATED].map(str::to_owned).to_vec();
        User { name: "system:serviceaccount:ns:robot".into(), groups, extra, ..User::default() }
    }

    #[test]
    fn accounts_are_strangers_elsewhere() {
        let (of_root, of_a) = (account(None), account(Some("root:a")));
        assert_eq!(*seen_from(&of_root, "root"), of_root);
        assert_eq!(*seen_from(&of_a, "root:a"), of_a);
        for (user, cluster, name) in [
            (&of_root, "root:a", "system:kcp:serviceaccount:root:ns:robot"),
            (&of_a, "root", "system:kcp:serviceaccount:root:a:ns:robot"),
            (&of_a, "root:a:b", "system:kcp:serviceaccount:root:a:ns:robot"),
            (&of_a, EVERYWHERE, "system:kcp:serviceaccount:root:a:ns:robot"),
        ] {
            let seen = seen_from(user, cluster);
            assert_eq!((seen.name.as_str(), seen.groups.as_slice()), (name, &[AUTHENTICATED.to_owned()][..]));
            assert_eq!(seen_from(&seen, "root:z").name, name, "once is enough");
        }
        let jane = User { name: "jane".into(), ..User::default() };
        assert_eq!(*seen_from(&jane, "root:a"), jane);
    }

    #[test]
    fn whom_one_becomes_one_is_only_there() {
        let (admin, jane) = (User { groups: vec![MASTERS.into()], ..User::default() }, User::default());
        let mut user = account(Some("root:other"));
        user.confine("root:other");
        confine(&mut user, &jane, "root:a");
        assert_eq!((home(&user), user.is_confined_elsewhere("root:a")), (Some("root:a"), false));
        assert!(user.is_confined_elsewhere("root:other") && user.is_confined_elsewhere("root"));
        let mut user = User { name: "x".into(), groups: vec![MASTERS.into()], ..User::default() };
        confine(&mut user, &admin, "root:a");
        assert!(user.extra.is_empty(), "an administrator is one everywhere");
        confine(&mut user, &jane, "root");
        assert!(user.extra.is_empty(), "root is the whole server's");
        user.extra.insert(HOME.into(), vec!["root:b".into()]);
        user.extra.insert("example.io/team".into(), vec!["blue".into()]);
        confine(&mut user, &jane, "root");
        assert_eq!(user.extra.keys().collect::<Vec<_>>(), ["example.io/team"], "where they count is not theirs to say");
    }

    /// What somebody has become in one workspace is worth nothing in another, whatever the name and the groups.
    #[test]
    fn whom_one_becomes_is_a_stranger_elsewhere() {
        let sender = User { name: "bob".into(), groups: vec![AUTHENTICATED.into()], ..User::default() };
        for name in ["x", "victor", "system:apiserver", "system:node:n1", "system:serviceaccount:ns:robot"] {
            let groups = [MASTERS, CONTROLLERS, "system:nodes", "devs", AUTHENTICATED].map(str::to_owned).to_vec();
            let mut user = User { name: name.into(), uid: "u".into(), groups, ..User::default() };
            confine(&mut user, &sender, "root:p");
            assert!(user.rules("root:p") && !reaches_all(&user), "{name}");
            assert_eq!(*seen_from(&user, "root:p"), user);
            for cluster in ["root", "root:v", "root:p:inside", EVERYWHERE] {
                let seen = seen_from(&user, cluster);
                assert_eq!(seen.name, format!("system:kcp:scoped:root:p:{name}"));
                assert_eq!((seen.groups.as_slice(), seen.uid.as_str()), (&[AUTHENTICATED.to_owned()][..], ""));
                assert!(!seen.rules(cluster) && !seen.rules_everywhere() && !seen.is_itself());
                assert!(seen.is_confined_elsewhere(cluster), "what is asked later knows it too");
                assert_eq!(seen_from(&seen, "root:z").name, seen.name, "once is enough");
            }
        }
        let mut nobody = User::anonymous();
        confine(&mut nobody, &sender, "root:p");
        assert_eq!(seen_from(&nobody, "root").groups, [UNAUTHENTICATED]);
    }
}
