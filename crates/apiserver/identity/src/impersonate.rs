//! Impersonation: a request made in another user's name, by somebody who may do that.
//!
//! Upstream knows several modes, from the most constrained to the oldest, and takes the first that allows it. If none does,
//! the client is told why the first one that applied did not; the one that last allowed this client something comes first.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Mutex, PoisonError},
};

use http::HeaderMap;
use schema::field::FieldError;
use schema::names;
use schema::status::{Result, Status};

use super::{
    authenticate::{ANONYMOUS, AUTHENTICATED, MASTERS, UNAUTHENTICATED, User, account_groups},
    authorize::{Attributes, Authorizer, forbidden},
};

const AUTHENTICATION: &str = "authentication.k8s.io";
const EXTRA: &str = "impersonate-extra-";
/// From this many checks on, permission for everything is tried first.
const MANY: usize = 4;

/// Whom a request wants to be; `None` if it is made in its sender's own name.
pub fn wanted(headers: &HeaderMap) -> Result<Option<User>> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let first = |name: &str| headers.get(name).map(text).unwrap_or_default();
    let mut user = User {
        name: first("impersonate-user"),
        uid: first("impersonate-uid"),
        groups: headers.get_all("impersonate-group").iter().map(text).collect(),
        ..User::default()
    };
    for (name, value) in headers {
        if let Some(key) = name.as_str().strip_prefix(EXTRA) {
            user.extra.entry(unescape(key)).or_default().push(text(value));
        }
    }
    if !user.name.is_empty() {
        return Ok(Some(user));
    }
    if user.uid.is_empty() && user.groups.is_empty() && user.extra.is_empty() {
        return Ok(None);
    }
    let message = format!("requested {} without impersonating a user name", as_go_prints(&user));
    Err(Status::bad_request(message))
}

/// Percent-decodes a key; one that is not well escaped is taken as it is.
pub(super) fn unescape(key: &str) -> String {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        if byte != b'%' {
            bytes.push(byte);
            rest = after;
            continue;
        }
        let digits = after.get(..2).and_then(|d| std::str::from_utf8(d).ok());
        let Some(decoded) = digits.and_then(|d| u8::from_str_radix(d, 16).ok()) else { return key.to_owned() };
        bytes.push(decoded);
        rest = &after[2..];
    }
    String::from_utf8(bytes).unwrap_or_else(|_| key.to_owned())
}

fn as_go_prints(user: &User) -> String {
    let list = |items: &[String]| {
        let items: Vec<String> = items.iter().map(|item| format!("{item:?}")).collect();
        format!("[]string{{{}}}", items.join(", "))
    };
    let groups = if user.groups.is_empty() { "[]string(nil)".to_owned() } else { list(&user.groups) };
    let extra: Vec<String> = user.extra.iter().map(|(key, values)| format!("{key:?}:{}", list(values))).collect();
    let extra = match extra.is_empty() {
        true => "map[string][]string(nil)".to_owned(),
        false => format!("map[string][]string{{{}}}", extra.join(", ")),
    };
    format!("&user.DefaultInfo{{Name:{:?}, UID:{:?}, Groups:{groups}, Extra:{extra}}}", user.name, user.uid)
}

/// Which mode last allowed somebody something: it is tried first the next time, and told about if none allows it.
#[derive(Default)]
pub struct Modes(Mutex<HashMap<u64, Mode>>);

impl Modes {
    /// So many requestors are remembered, and then all forgotten: nothing but the order depends on it.
    const MOST: usize = 1_000;

    fn last(&self, requestor: &User) -> Option<Mode> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&Self::key(requestor)).copied()
    }

    fn remember(&self, requestor: &User, mode: Mode) {
        let mut modes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if modes.len() >= Self::MOST {
            modes.clear();
        }
        modes.insert(Self::key(requestor), mode);
    }

    fn key(requestor: &User) -> u64 {
        let mut hasher = DefaultHasher::new();
        requestor.name.hash(&mut hasher);
        hasher.finish()
    }
}

/// The user that `requestor` becomes for the request described by `attributes`.
pub fn become_user(
    requestor: &User,
    wanted: &User,
    attributes: &Attributes,
    authorizer: &dyn Authorizer,
    modes: &Modes,
) -> Result<User> {
    let last = modes.last(requestor);
    let order = last.into_iter().chain(Mode::ALL.into_iter().filter(|mode| Some(*mode) != last));
    let mut first_refusal = None;
    for mode in order.filter(|mode| mode.applies(requestor, wanted)) {
        match mode.check(requestor, wanted, attributes, authorizer) {
            Ok(user) => {
                if last != Some(mode) {
                    modes.remember(requestor, mode);
                }
                return Ok(user);
            }
            Err(refusal) => first_refusal = first_refusal.or(Some(refusal)),
        }
    }
    // The oldest mode always applies, so there is a refusal.
    Err(first_refusal.unwrap_or_else(|| Status::internal("all impersonation modes failed")))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    UserInfo,
    Legacy,
}

impl Mode {
    const ALL: [Self; 5] =
        [Self::AssociatedNode, Self::ArbitraryNode, Self::ServiceAccount, Self::UserInfo, Self::Legacy];

    fn name(self) -> &'static str {
        match self {
            Self::AssociatedNode => "associated-node",
            Self::ArbitraryNode => "arbitrary-node",
            Self::ServiceAccount => "serviceaccount",
            Self::UserInfo => "user-info",
            Self::Legacy => "",
        }
    }

    fn applies(self, requestor: &User, wanted: &User) -> bool {
        let only_name = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let node = node_name(&wanted.name);
        let account = account_name(&wanted.name);
        match self {
            Self::AssociatedNode => {
                let own = requestor.extra.get("authentication.kubernetes.io/node-name");
                let own = own.filter(|names| names.len() == 1).map(|names| names[0].as_str());
                only_name && node.is_some() && account_name(&requestor.name).is_some() && own == node
            }
            Self::ArbitraryNode => only_name && node.is_some(),
            Self::ServiceAccount => only_name && account.is_some(),
            Self::UserInfo => node.is_none() && account.is_none(),
            Self::Legacy => true,
        }
    }

    fn check(self, requestor: &User, wanted: &User, request: &Attributes, authorizer: &dyn Authorizer) -> Result<User> {
        let legacy = self == Self::Legacy;
        // What a node's agents are allowed holds for all nodes they may run on.
        let asking = &if self == Self::AssociatedNode {
            let keys = requestor.extra.keys().cloned().collect();
            let known = "authentication.kubernetes.io/associated-node-keys".to_owned();
            User { extra: [(known, keys)].into(), ..requestor.clone() }
        } else {
            requestor.clone()
        };
        let verb = if legacy { "impersonate".to_owned() } else { format!("impersonate:{}", self.name()) };
        if !legacy {
            let on = format!("impersonate-on:{}:{}", self.name(), request.verb);
            authorizer.check(asking, &Attributes { verb: on, ..request.clone() })?;
        }
        let about = |group: &str, resource: &str, name: &str| Attributes {
            verb: verb.clone(),
            group: group.to_owned(),
            version: "v1".to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            ..Attributes::default()
        };
        let group = if legacy { "" } else { AUTHENTICATION };

        let mut user = wanted.clone();
        let mut by_name = about(group, "users", &wanted.name);
        if let Some(node) = node_name(&wanted.name).filter(|_| !legacy) {
            by_name = about(group, "nodes", if self == Self::AssociatedNode { "*" } else { node });
            user.groups = vec!["system:nodes".to_owned()];
        }
        if let Some((namespace, name)) = account_name(&wanted.name) {
            by_name = Attributes { namespace: namespace.to_owned(), ..about(group, "serviceaccounts", name) };
            if wanted.groups.is_empty() {
                user.groups = account_groups(namespace);
            }
        }
        authorizer.check(asking, &by_name)?;
        if !wanted.uid.is_empty() {
            authorizer.check(asking, &about(AUTHENTICATION, "uids", &wanted.uid))?;
        }
        check_groups(asking, &wanted.groups, legacy, authorizer, |name| about(group, "groups", name))?;
        check_extra(asking, wanted, legacy, authorizer, |name| about(AUTHENTICATION, "userextras", name))?;

        if user.name == ANONYMOUS {
            user.join(UNAUTHENTICATED);
        } else if !user.is_in(UNAUTHENTICATED) {
            user.join(AUTHENTICATED);
        }
        Ok(user)
    }
}

fn check_groups(
    asking: &User,
    groups: &[String],
    legacy: bool,
    authorizer: &dyn Authorizer,
    about: impl Fn(&str) -> Attributes,
) -> Result<()> {
    if !legacy {
        if groups.iter().any(String::is_empty) {
            return Err(forbidden(asking, &about(""), "impersonating the empty string group is not allowed"));
        }
        if groups.iter().any(|group| group == MASTERS) {
            return Err(forbidden(asking, &about(MASTERS), "impersonating the system:masters group is not allowed"));
        }
        if groups.len() >= MANY && authorizer.check(asking, &about("*")).is_ok() {
            return Ok(());
        }
    }
    groups.iter().try_for_each(|group| authorizer.check(asking, &about(group)))
}

fn check_extra(
    asking: &User,
    wanted: &User,
    legacy: bool,
    authorizer: &dyn Authorizer,
    about: impl Fn(&str) -> Attributes,
) -> Result<()> {
    let about = |key: &str, value: &str| Attributes { subresource: key.to_owned(), ..about(value) };
    if !legacy {
        if let Some(problem) = wanted.extra.iter().find_map(|(key, values)| bad_extra(key, values)) {
            return Err(forbidden(asking, &about("", ""), &problem));
        }
        let count: usize = wanted.extra.values().map(Vec::len).sum();
        if count >= MANY && authorizer.check(asking, &about("*", "*")).is_ok() {
            return Ok(());
        }
    }
    for (key, values) in &wanted.extra {
        values.iter().try_for_each(|value| authorizer.check(asking, &about(key, value)))?;
    }
    Ok(())
}

fn bad_extra(key: &str, values: &[String]) -> Option<String> {
    if key.is_empty() {
        return Some("impersonating the empty string key in extra is not allowed".to_owned());
    }
    let path = "extra.key";
    let error = match key.split_once('/') {
        None => {
            Some(FieldError::invalid(path, &key.into(), "must be a domain-prefixed path (such as \"acme.io/foo\")"))
        }
        Some((_, "")) => Some(FieldError::invalid(path, &key.into(), "must specify a non-empty path")),
        Some(_) => None,
    };
    if let Some(error) = error {
        return Some(format!("impersonating an invalid key in extra is not allowed: {error}"));
    }
    if key.chars().any(char::is_uppercase) {
        return Some(format!("impersonating a non-lowercase key in extra is not allowed: {key:?}"));
    }
    let empty = values.iter().any(String::is_empty);
    empty.then(|| "impersonating the empty string value in extra is not allowed".to_owned())
}

/// The node of a node's user name.
fn node_name(user: &str) -> Option<&str> {
    let name = user.strip_prefix("system:node:")?;
    names::dns1123_subdomain(name).is_empty().then_some(name)
}

/// Namespace and name of a ServiceAccount's user name.
fn account_name(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        rbac::Roles,
        rbac::tests::{attributes, user},
    };

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn headers_say_who() {
        assert_eq!(wanted(&headers(&[("accept", "x")])), Ok(None));
        let jane = wanted(&headers(&[
            ("impersonate-user", "jane"),
            ("impersonate-group", "a"),
            ("impersonate-group", "b"),
            ("impersonate-uid", "u-1"),
            ("impersonate-extra-scope", "s1"),
            ("impersonate-extra-acme.io%2fproject", "p"),
        ]));
        let jane = jane.unwrap().unwrap();
        assert_eq!((jane.name.as_str(), jane.uid.as_str(), jane.groups.concat()), ("jane", "u-1", "ab".to_owned()));
        assert_eq!(jane.extra.keys().collect::<Vec<_>>(), ["acme.io/project", "scope"]);
        assert_eq!(
            wanted(&headers(&[("impersonate-group", "x")])).unwrap_err().message,
            "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"x\"}, Extra:map[string][]string(nil)} \
             without impersonating a user name"
        );
    }

    #[test]
    fn masters_may_be_anybody() {
        let admin = user("admin", &[MASTERS]);
        let request = attributes("list", "configmaps", "ns", "");
        let becoming = |name: &str, groups: &[&str]| {
            become_user(&admin, &user(name, groups), &request, &Roles::default(), &Modes::default())
                .unwrap()
                .groups
                .join(" ")
        };
        assert_eq!(becoming("jane", &[]), "system:authenticated");
        assert_eq!(becoming("jane", &[MASTERS]), "system:masters system:authenticated");
        assert_eq!(becoming("jane", &["system:unauthenticated"]), "system:unauthenticated");
        assert_eq!(becoming(ANONYMOUS, &[]), "system:unauthenticated");
        assert_eq!(
            becoming("system:serviceaccount:ns:robot", &[]),
            "system:serviceaccounts system:serviceaccounts:ns system:authenticated"
        );
        assert_eq!(becoming("system:serviceaccount:ns:robot", &["a"]), "a system:authenticated");
        assert_eq!(becoming("system:node:n1", &[]), "system:nodes system:authenticated");
    }

    #[test]
    fn others_are_told_why_not() {
        let robot = user("system:serviceaccount:ns:robot", &[]);
        let request = attributes("list", "configmaps", "ns", "");
        let refusal = |wanted: &User| {
            become_user(&robot, wanted, &request, &Roles::default(), &Modes::default()).unwrap_err().message
        };
        assert_eq!(
            refusal(&user("jane", &[])),
            "configmaps is forbidden: User \"system:serviceaccount:ns:robot\" cannot impersonate-on:user-info:list resource \
             \"configmaps\" in API group \"\" in the namespace \"ns\""
        );
        assert_eq!(
            refusal(&user("system:serviceaccount:ns:robot", &[MASTERS])),
            "serviceaccounts \"robot\" is forbidden: User \"system:serviceaccount:ns:robot\" cannot impersonate resource \
             \"serviceaccounts\" in API group \"\" in the namespace \"ns\""
        );
    }

    #[test]
    fn roles_can_allow_it() {
        let mut roles = Roles::default();
        roles.set_role(
            "",
            "i",
            Some(&json!({"rules": [
            {"apiGroups": [""], "resources": ["users"], "resourceNames": ["jane"], "verbs": ["impersonate"]}]})),
        );
        roles.set_binding(
            "",
            "i",
            Some(&json!({"roleRef": {"kind": "ClusterRole", "name": "i"},
            "subjects": [{"kind": "User", "name": "bob"}]})),
        );
        let bob = user("bob", &[]);
        let request = attributes("list", "configmaps", "ns", "");
        let modes = Modes::default();
        let become_who = |wanted: &User| become_user(&bob, wanted, &request, &roles, &modes);
        assert!(become_who(&user("eve", &[])).unwrap_err().message.contains("impersonate-on:user-info:list"));
        assert_eq!(become_who(&user("jane", &[])).unwrap().name, "jane");
        assert!(become_who(&user("jane", &["g"])).is_err());
        // What helped once is what is told about when it does not.
        let refusal = become_who(&user("eve", &[])).unwrap_err().message;
        assert_eq!(
            refusal,
            "users \"eve\" is forbidden: User \"bob\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope"
        );
    }
}
