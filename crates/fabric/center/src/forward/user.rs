//! Who somebody of an edge is at the center. An edge vouches for its own users only, so all of them have names that begin with its own.

use identity::User;
use kinds::{EdgeId, forward::LocalUser};
use schema::status::{Result, Status};
use server::Server;

use crate::target;

/// What an edge may say of a user: so many groups and other things, each so long.
const MOST_SAID: usize = 256;
const LONGEST: usize = 1024;

/// Who somebody of an edge is here.
pub fn user_of(server: &Server, edge: &EdgeId, local: &LocalUser) -> Result<User> {
    let said = || [&local.name, &local.uid].into_iter().chain(&local.groups).chain(local.extra.values().flatten());
    let count = local.groups.len() + local.extra.values().map(Vec::len).sum::<usize>();
    let long = said().chain(local.extra.keys()).any(|text| text.len() > LONGEST || text.chars().any(char::is_control));
    if local.name.is_empty() || count > MOST_SAID || local.extra.len() > MOST_SAID || long {
        return Err(Status::bad_request("an edge says who made a write, in words of reasonable number and length"));
    }
    let is_target =
        |workspace: &str, name: &str| server.cache.get(target::COLLECTION, &format!("{workspace}//{name}")).is_some();
    for name in [&local.name].into_iter().chain(&local.groups) {
        if let Some(other) = another_reading(edge, name, is_target) {
            return Err(Status::new(
                403,
                "Forbidden",
                format!(
                    "{:?} of the edge {edge} would have the same name here as somebody of the edge {other}: rename one of the edges, \
                     or the workspace",
                    name
                ),
            ));
        }
    }
    let uid = if local.uid.is_empty() { String::new() } else { edge.local(&local.uid) };
    let extra = local.extra.iter();
    let extra = extra.map(|(key, values)| (format!("edge.selvedge.dev/{}", key.to_lowercase()), values.clone()));
    Ok(User {
        name: edge.local(&local.name),
        uid,
        groups: local.groups.iter().map(|group| edge.local(group)).collect(),
        extra: extra.collect(),
        ..User::default()
    })
}

/// `edge:root:a:b:c` may be `b:c` of the edge `a` in `root`, or `c` of the edge `b` in `root:a`. If both edges exist, neither may
/// use a name that could be the other's.
fn another_reading(edge: &EdgeId, name: &str, is_target: impl Fn(&str, &str) -> bool) -> Option<EdgeId> {
    let whole = format!("{edge}:{name}");
    let parts: Vec<&str> = whole.split(':').collect();
    let own = edge.workspace.split(':').count();
    // The last part at least is the user's, the first at least the workspace's.
    (1..parts.len().saturating_sub(1))
        .filter(|at| *at != own)
        .map(|at| EdgeId::new(&parts[..at].join(":"), parts[at]))
        .find(|other| is_target(&other.workspace, &other.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_two_edges_could_mean_are_nobodys() {
        let targets = [("root", "a"), ("root:a", "b"), ("root", "florin")];
        let is_target = |workspace: &str, name: &str| targets.contains(&(workspace, name));
        let read = |edge: (&str, &str), name: &str| another_reading(&EdgeId::new(edge.0, edge.1), name, is_target);
        assert_eq!(read(("root", "florin"), "alice"), None);
        assert_eq!(read(("root", "florin"), "system:serviceaccount:shop:bob"), None);
        assert_eq!(read(("root", "a"), "alice"), None);
        assert_eq!(read(("root", "a"), "b:alice"), Some(EdgeId::new("root:a", "b")));
        assert_eq!(read(("root", "a"), "b"), None, "nobody of the edge b has no name");
        assert_eq!(read(("root:a", "b"), "alice"), Some(EdgeId::new("root", "a")));
    }
}
