//! Who asks, as the edge is told. Pure.

use http::{HeaderMap, HeaderName, Method};
use identity::{Attributes, Mark, User};
use kinds::EdgeId;
use schema::status::{Result, Status};

const ACCOUNT: &str = "system:serviceaccount:";

/// What somebody must be allowed in the workspace of a SyncTarget to do this to its edge: `synctargets/proxy` by its name.
pub fn right(edge: &EdgeId, method: &Method, upgrade: bool) -> Attributes {
    let verb = match *method {
        // Whoever may look is not yet somebody who may do, and exec is opened with GET.
        Method::GET | Method::HEAD if upgrade => "create",
        Method::GET | Method::HEAD => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
    };
    Attributes {
        verb: verb.to_owned(),
        group: "workload.kcp.io".to_owned(),
        version: "v1alpha1".to_owned(),
        resource: "synctargets".to_owned(),
        subresource: "proxy".to_owned(),
        name: edge.name.clone(),
        ..Attributes::default()
    }
}

/// Of these, somebody must be allowed one there to know that the edge exists: to see its SyncTarget, or to ask the edge
/// for anything.
pub fn knowing(edge: &EdgeId) -> impl Iterator<Item = Attributes> {
    let seeing = Attributes { subresource: String::new(), ..right(edge, &Method::GET, false) };
    let methods = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
    std::iter::once(seeing).chain(methods.into_iter().map(|method| right(edge, &method, false)))
}

/// A user of the center as an edge knows them. People and their groups are the same everywhere. Accounts and nodes of the center are not
/// those of the same name at the edge. A user whom somebody became by impersonation in one workspace counts in
/// that workspace only, so the edge is not told of such users.
pub fn abroad(mut user: User, edge: &EdgeId) -> Result<User> {
    if let Some(workspace) = user.scope() {
        let why = format!(
            "User {:?} counts in the workspace {workspace} only, and the edge {edge} decides by itself whom it lets do \
             what: ask in your own name, without impersonation",
            user.name
        );
        return Err(Status::forbidden("workload.kcp.io", "synctargets", &edge.name, &why));
    }
    user.mark = Mark::default();
    if let Some(account) = user.name.strip_prefix(ACCOUNT) {
        user.name = format!("system:kcp:serviceaccount:{}:{account}", user.home());
    }
    let only_here = |group: &String| {
        group == "system:nodes" || group == "system:serviceaccounts" || group.starts_with("system:serviceaccounts:")
    };
    user.groups.retain(|group| !only_here(group));
    // In which of the center's workspaces they are at home, or may go, means nothing there.
    user.forget_place();
    Ok(user)
}

/// Takes out of a request what it was let in by: the edge is told who asks, and by nobody else.
pub fn undress(headers: &mut HeaderMap) {
    let is_ours = |name: &HeaderName| {
        let name = name.as_str();
        name == "authorization" || name.starts_with("impersonate-") || name.starts_with("x-remote-")
    };
    server::onward::strip(headers, is_ours);
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn user(name: &str, groups: &[&str]) -> User {
        User { name: name.into(), groups: groups.iter().map(|g| (*g).to_owned()).collect(), ..User::default() }
    }

    #[test]
    fn people_are_the_same_everywhere_and_accounts_are_not() {
        let edge = EdgeId::new("root:a", "thief");
        for (here, there) in [
            (user("alice", &["devs", "system:authenticated"]), user("alice", &["devs", "system:authenticated"])),
            (user("root", &["system:masters"]), user("root", &["system:masters"])),
            (
                user("system:serviceaccount:ns:robot", &["system:serviceaccounts", "system:serviceaccounts:ns"]),
                user("system:kcp:serviceaccount:root:ns:robot", &[]),
            ),
            (user("system:node:n1", &["system:nodes"]), user("system:node:n1", &[])),
        ] {
            assert_eq!(abroad(here, &edge), Ok(there));
        }
        let mut tenant = user("system:serviceaccount:ns:robot", &[]);
        tenant.extra.insert("authentication.kcp.io/cluster-name".into(), vec!["root:a".into()]);
        assert_eq!(abroad(tenant, &edge), Ok(user("system:kcp:serviceaccount:root:a:ns:robot", &[])));
        // The server itself is nobody in particular at another server.
        assert!(!abroad(User::itself(), &edge).unwrap().is_itself());
    }

    #[test]
    fn nobody_goes_abroad_as_whom_they_became_at_home() {
        let edge = EdgeId::new("root:a", "thief");
        for (name, group) in [
            ("x", "system:masters"),
            ("victor", "devs"),
            ("system:node:n1", "system:nodes"),
            ("system:serviceaccount:kube-system:admin", "system:serviceaccounts"),
            ("system:kube-controller-manager", "system:authenticated"),
        ] {
            for scope in ["root:a", "root", "root:espw", ""] {
                let mut became = user(name, &[group]);
                became.confine(scope);
                assert_eq!(abroad(became, &edge).unwrap_err().code, 403, "{name} of {scope:?}");
            }
        }
    }

    #[test]
    fn rights_follow_the_method_and_an_upgrade_is_a_deed() {
        let edge = EdgeId::new("root", "florin");
        for (method, upgrade, verb) in [
            (Method::GET, false, "get"),
            (Method::GET, true, "create"),
            (Method::POST, false, "create"),
            (Method::PUT, false, "update"),
            (Method::PATCH, false, "patch"),
            (Method::DELETE, false, "delete"),
            (Method::OPTIONS, false, ""),
        ] {
            let right = right(&edge, &method, upgrade);
            assert_eq!((right.verb.as_str(), right.name.as_str()), (verb, "florin"), "{method} {upgrade}");
        }
    }

    #[test]
    fn nobody_says_themselves_who_they_are() {
        let mut headers = HeaderMap::new();
        for name in ["x-remote-user", "x-remote-extra-a", "impersonate-group", "authorization", "accept", "upgrade"] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static("x"));
        }
        undress(&mut headers);
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["accept", "upgrade"]);
    }
}
