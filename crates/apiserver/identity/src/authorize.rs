//! Authorisation: the question (who wants to do what), the answer, and how a client is told no.

use schema::status::Status;

use super::authenticate::User;

/// What somebody wants to do. A path instead of a resource makes it a non-resource request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    pub verb: String,
    pub group: String,
    pub version: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    pub path: String,
    /// What a list, watch or collection delete demands of fields: name and value of each that must be equal.
    pub exact_fields: Vec<(String, String)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    pub allowed: bool,
    pub reason: String,
    /// What went wrong on the way to the decision, for example a binding to a role that does not exist.
    pub error: String,
}

impl Decision {
    pub fn allowed(reason: impl Into<String>) -> Self {
        Self { allowed: true, reason: reason.into(), error: String::new() }
    }
}

/// Decides what users may do in one workspace.
pub trait Authorizer {
    fn authorize(&self, user: &User, attributes: &Attributes) -> Decision;

    /// Allowed, or why not: the same decision without the reason for what is allowed, which takes longer to write than to find.
    fn verdict(&self, user: &User, attributes: &Attributes) -> Result<(), String> {
        let decision = self.authorize(user, attributes);
        if decision.allowed { Ok(()) } else { Err(decision.reason) }
    }

    fn allows(&self, user: &User, attributes: &Attributes) -> bool {
        self.verdict(user, attributes).is_ok()
    }

    /// Allowed, or the Status that says that it is not.
    fn check(&self, user: &User, attributes: &Attributes) -> Result<(), Status> {
        self.verdict(user, attributes).map_err(|reason| forbidden(user, attributes, &reason))
    }
}

impl Attributes {
    pub fn path(verb: &str, path: &str) -> Self {
        Self { verb: verb.to_owned(), path: path.to_owned(), ..Self::default() }
    }

    /// `pods/log`
    pub fn combined_resource(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }
}

/// How a client is told that it may not.
pub fn forbidden(user: &User, attributes: &Attributes, reason: &str) -> Status {
    let Attributes { verb, group, resource, namespace, name, path, .. } = attributes;
    let user = &user.name;
    let mut why = if resource.is_empty() {
        format!("User {user:?} cannot {verb} path {path:?}")
    } else {
        let combined = attributes.combined_resource();
        let scope = match namespace.as_str() {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {namespace:?}"),
        };
        format!("User {user:?} cannot {verb} resource {combined:?} in API group {group:?} {scope}")
    };
    if !reason.is_empty() {
        why = format!("{why}: {reason}");
    }
    Status::forbidden(group, resource, name, &why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals() {
        let jane = User { name: "jane".to_owned(), ..User::default() };
        let log = Attributes {
            verb: "get".to_owned(),
            resource: "pods".to_owned(),
            subresource: "log".to_owned(),
            namespace: "n".to_owned(),
            name: "x".to_owned(),
            ..Attributes::default()
        };
        assert_eq!(
            forbidden(&jane, &log, "").message,
            r#"pods "x" is forbidden: User "jane" cannot get resource "pods/log" in API group "" in the namespace "n""#
        );
        let deployments = Attributes {
            verb: "list".to_owned(),
            group: "apps".to_owned(),
            resource: "deployments".to_owned(),
            ..Attributes::default()
        };
        assert_eq!(
            forbidden(&jane, &deployments, "because").message,
            r#"deployments.apps is forbidden: User "jane" cannot list resource "deployments" in API group "apps" at the cluster scope: because"#
        );
        assert_eq!(
            forbidden(&jane, &Attributes::path("get", "/metrics"), "").message,
            r#"forbidden: User "jane" cannot get path "/metrics""#
        );
    }
}
