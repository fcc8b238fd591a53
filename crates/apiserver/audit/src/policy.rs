//! What is written down: the rules of `audit.k8s.io/v1` Policy, the first that matches decides. Pure.

use identity::{Attributes, ITSELF, User};
use serde::Deserialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum Level {
    None,
    Metadata,
    Request,
    RequestResponse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Stage {
    RequestReceived,
    ResponseStarted,
    ResponseComplete,
    Panic,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Policy {
    #[serde(rename = "apiVersion")]
    api_version: String,
    kind: String,
    #[serde(default)]
    #[allow(dead_code, reason = "a policy may have a name, which means nothing")]
    metadata: serde_json::Value,
    rules: Vec<Rule>,
    #[serde(default)]
    omit_stages: Vec<Stage>,
    #[serde(default)]
    omit_managed_fields: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Rule {
    level: Option<Level>,
    users: Vec<String>,
    user_groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    omit_stages: Vec<Stage>,
    omit_managed_fields: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct GroupResources {
    group: String,
    resources: Vec<String>,
    resource_names: Vec<String>,
}

/// What the policy says about one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub level: Level,
    omitted: Vec<Stage>,
    pub omit_managed_fields: bool,
}

/// Their bodies are secrets: they are written down only if a rule names them.
const DELICATE: [(&str, &str, &str); 4] = [
    ("", "secrets", ""),
    ("", "serviceaccounts", "token"),
    ("authentication.k8s.io", "tokenreviews", ""),
    ("certificates.k8s.io", "certificatesigningrequests", ""),
];

/// Without a file: who wrote what, without bodies and without what machines write all day.
const USUAL: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, resources: [{group: coordination.k8s.io, resources: [leases]}, {group: "", resources: [events]}, {group: events.k8s.io, resources: [events]}]}
- {level: None, users: ["system:apiserver"]}
- {level: Metadata, verbs: [create, update, patch, delete, deletecollection]}
- {level: Metadata, resources: [{group: "", resources: [pods/exec, pods/attach, pods/portforward, pods/proxy, services/proxy, nodes/proxy]}]}
"#;

impl Policy {
    pub fn parse(text: &str) -> Result<Self, String> {
        let policy: Self = yaml_serde::from_str(text).map_err(|error| error.to_string())?;
        if (policy.api_version.as_str(), policy.kind.as_str()) != ("audit.k8s.io/v1", "Policy") {
            let found = format!("{} {}", policy.api_version, policy.kind);
            return Err(format!("it is a {found}, and should be an audit.k8s.io/v1 Policy"));
        }
        for (n, rule) in policy.rules.iter().enumerate() {
            if rule.level.is_none() {
                return Err(format!("rules[{n}] has no level: None, Metadata, Request or RequestResponse"));
            }
            let about_resources = !rule.resources.is_empty() || !rule.namespaces.is_empty();
            if about_resources && !rule.non_resource_urls.is_empty() {
                return Err(format!("rules[{n}] is about resources and about other paths: make it two rules"));
            }
        }
        Ok(policy)
    }

    pub fn usual() -> Result<Self, String> {
        Self::parse(USUAL)
    }

    /// What is written down of a request. `user` is who sent it, not whom it is made as.
    pub fn verdict(&self, user: &User, attributes: &Attributes) -> Verdict {
        let Some(rule) = self.rules.iter().find(|rule| rule.matches(user, attributes)) else {
            return Verdict { level: Level::None, omitted: Vec::new(), omit_managed_fields: false };
        };
        let mut level = rule.level.unwrap_or(Level::None);
        if level > Level::Metadata && is_delicate(attributes) && !rule.names(attributes) {
            level = Level::Metadata;
        }
        Verdict {
            level,
            omitted: [self.omit_stages.as_slice(), &rule.omit_stages].concat(),
            omit_managed_fields: rule.omit_managed_fields.unwrap_or(self.omit_managed_fields),
        }
    }
}

impl Verdict {
    pub fn shows(&self, stage: Stage) -> bool {
        self.level != Level::None && !self.omitted.contains(&stage)
    }
}

impl Rule {
    fn matches(&self, user: &User, attributes: &Attributes) -> bool {
        let has = |list: &[String], value: &str| list.iter().any(|item| item == value);
        // The server's own name is nobody else's: whoever bears it is written down as everybody is.
        let named = has(&self.users, &user.name) && (user.name != ITSELF || user.is_itself());
        if !self.users.is_empty() && !named
            || !self.user_groups.is_empty() && !self.user_groups.iter().any(|group| user.is_in(group))
            || !self.verbs.is_empty() && !has(&self.verbs, &attributes.verb)
        {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return attributes.path.is_empty()
                && (self.namespaces.is_empty() || has(&self.namespaces, &attributes.namespace))
                && (self.resources.is_empty() || self.resources.iter().any(|group| group.matches(attributes)));
        }
        self.non_resource_urls.is_empty()
            || !attributes.path.is_empty() && self.non_resource_urls.iter().any(|url| covers(url, &attributes.path))
    }

    /// The resource is named in the rule, not covered by an asterisk or by nothing at all.
    fn names(&self, attributes: &Attributes) -> bool {
        let named = |group: &&GroupResources| group.group == attributes.group;
        let of_group = self.resources.iter().filter(named);
        of_group.flat_map(|group| &group.resources).any(|name| name.split('/').next() == Some(&attributes.resource))
    }
}

impl GroupResources {
    fn matches(&self, attributes: &Attributes) -> bool {
        if self.group != attributes.group {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        let combined = attributes.combined_resource();
        let named = self.resource_names.is_empty() || self.resource_names.contains(&attributes.name);
        named
            && self.resources.iter().any(|resource| {
                *resource == combined
                    || resource == "*"
                    || (!attributes.subresource.is_empty()
                        && resource.strip_prefix("*/") == Some(attributes.subresource.as_str()))
                    || resource.strip_suffix("/*") == Some(attributes.resource.as_str())
            })
    }
}

fn covers(url: &str, path: &str) -> bool {
    match url.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => url == path,
    }
}

fn is_delicate(attributes: &Attributes) -> bool {
    DELICATE.iter().any(|(group, resource, subresource)| {
        (*group, *resource) == (attributes.group.as_str(), attributes.resource.as_str())
            && (subresource.is_empty() || *subresource == attributes.subresource)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(verb: &str, group: &str, resource: &str) -> Attributes {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        Attributes {
            verb: verb.into(),
            group: group.into(),
            resource: resource.into(),
            subresource: subresource.into(),
            namespace: "default".into(),
            name: "x".into(),
            ..Attributes::default()
        }
    }

    fn level(rules: &str, user: &str, attributes: &Attributes) -> Level {
        let policy = Policy::parse(&format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: {rules}\n")).unwrap();
        let user = User { name: user.into(), groups: vec!["devs".into()], ..User::default() };
        policy.verdict(&user, attributes).level
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let pods = of("create", "", "pods");
        for (rules, attributes, expected) in [
            ("[{level: Metadata}, {level: None}]", &pods, Level::Metadata),
            ("[]", &pods, Level::None),
            ("[{level: Request, users: [bob]}, {level: Metadata, users: [alice]}]", &pods, Level::Metadata),
            ("[{level: Request, userGroups: [ops]}]", &pods, Level::None),
            ("[{level: Request, userGroups: [ops, devs]}]", &pods, Level::Request),
            ("[{level: Request, verbs: [get]}, {level: Metadata, verbs: [create]}]", &pods, Level::Metadata),
            ("[{level: Request, namespaces: [other]}]", &pods, Level::None),
            ("[{level: Request, namespaces: [default]}]", &pods, Level::Request),
            ("[{level: Request, resources: [{group: apps}]}]", &pods, Level::None),
            ("[{level: Request, resources: [{group: ''}]}]", &pods, Level::Request),
            ("[{level: Request, resources: [{resources: [pods], resourceNames: [y]}]}]", &pods, Level::None),
            ("[{level: Request, resources: [{resources: [pods]}]}]", &of("get", "", "pods/log"), Level::None),
            ("[{level: Request, resources: [{resources: ['pods/*']}]}]", &of("get", "", "pods/log"), Level::Request),
            ("[{level: Request, resources: [{resources: ['*/log']}]}]", &of("get", "", "pods/log"), Level::Request),
            ("[{level: Request, nonResourceURLs: ['/api*']}]", &pods, Level::None),
            ("[{level: Metadata, nonResourceURLs: ['/heal*']}]", &Attributes::path("get", "/healthz"), Level::Metadata),
            ("[{level: Request, resources: [{group: ''}]}]", &Attributes::path("get", "/healthz"), Level::None),
        ] {
            assert_eq!(level(rules, "alice", attributes), expected, "{rules}");
        }
    }

    #[test]
    fn secrets_are_shown_only_by_name() {
        let all = "[{level: RequestResponse}]";
        for resource in ["secrets", "serviceaccounts/token"] {
            assert_eq!(level(all, "a", &of("create", "", resource)), Level::Metadata, "{resource}");
            let stars = "[{level: RequestResponse, resources: [{resources: ['*']}]}]";
            assert_eq!(level(stars, "a", &of("create", "", resource)), Level::Metadata, "{resource}");
        }
        let named = "[{level: RequestResponse, resources: [{resources: [secrets]}]}]";
        assert_eq!(level(named, "a", &of("create", "", "secrets")), Level::RequestResponse);
        assert_eq!(level(all, "a", &of("create", "", "configmaps")), Level::RequestResponse);
    }

    #[test]
    fn the_usual_policy_is_quiet() {
        let usual = Policy::usual().unwrap();
        let user = User::default();
        let level = |attributes: &Attributes| usual.verdict(&user, attributes).level;
        assert_eq!(level(&of("create", "", "pods")), Level::Metadata);
        assert_eq!(level(&of("list", "", "pods")), Level::None);
        // A WebSocket is opened with GET, and much can be done through it.
        assert_eq!(level(&of("get", "", "pods/exec")), Level::Metadata);
        assert_eq!(level(&of("update", "coordination.k8s.io", "leases")), Level::None);
        assert_eq!(level(&Attributes::path("get", "/livez")), Level::None);
        assert!(!usual.verdict(&user, &of("create", "", "pods")).shows(Stage::RequestReceived));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, why) in [
            ("kind: Policy\napiVersion: audit.k8s.io/v2\nrules: []", "should be an audit.k8s.io/v1 Policy"),
            ("kind: Policy\napiVersion: audit.k8s.io/v1\nrules: [{users: [a]}]", "rules[0] has no level"),
            ("kind: Policy\napiVersion: audit.k8s.io/v1\nrules: [{level: Some}]", "Some"),
            ("kind: Policy\napiVersion: audit.k8s.io/v1\nrules: [{level: None, verb: [get]}]", "verb"),
            (
                "kind: Policy\napiVersion: audit.k8s.io/v1\nrules: [{level: None, namespaces: [a], nonResourceURLs: [/x]}]",
                "two rules",
            ),
        ] {
            let said = Policy::parse(text).unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
