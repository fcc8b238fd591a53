//! The maximal permission policy: what an export's provider lets binders do with its kinds, whatever their own roles say.

use identity::authorize::forbidden;
use identity::{Attributes, Authorizer, User};
use schema::status::Result;

use crate::{Server, kinds::Kind, workspaces::seen_from};

const PREFIX: &str = "apis.kcp.io:binding:";

/// Whoever uses a bound kind in a workspace needs the provider's leave too, if the provider has a policy.
pub fn check(server: &Server, user: &User, cluster: &str, kind: &Kind, attributes: &Attributes) -> Result<()> {
    if kind.identity.is_empty() || user.rules_everywhere() {
        return Ok(());
    }
    let provider = {
        let index = server.exports.read();
        match index.provider(cluster, kind.group(), kind.plural(), &kind.identity) {
            Some((key, export)) if export.has_policy => key.split("//").next().unwrap_or_default().to_owned(),
            Some(_) => return Ok(()),
            // Nobody is left who could allow anything: what there is can be saved and removed.
            None if matches!(attributes.verb.as_str(), "get" | "list" | "watch" | "delete" | "deletecollection") => {
                return Ok(());
            }
            None => return Err(forbidden(user, attributes, "its APIExport is gone")),
        }
    };
    check_in(server, user, &provider, attributes)
}

/// The same, asked of the provider itself. Administrators of the provider's workspace are exempt. A user from
/// impersonation in another workspace is a stranger to the provider.
pub fn check_in(server: &Server, user: &User, provider: &str, attributes: &Attributes) -> Result<()> {
    if user.rules(provider) {
        return Ok(());
    }
    let decision =
        server.authorization.in_workspace(provider).authorize(&bound(&seen_from(user, provider)), attributes);
    if decision.allowed {
        return Ok(());
    }
    Err(forbidden(user, attributes, "the APIExport's maximalPermissionPolicy does not allow it"))
}

/// A user as the provider's roles name them.
fn bound(user: &User) -> User {
    let prefixed = |name: &String| format!("{PREFIX}{name}");
    User { name: prefixed(&user.name), groups: user.groups.iter().map(prefixed).collect(), ..User::default() }
}
