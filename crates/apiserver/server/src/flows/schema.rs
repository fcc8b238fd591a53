//! One FlowSchema: which requests it matches, and what tells their flows apart. Pure.

use http::HeaderValue;
use identity::{Attributes, User};
use serde_json::Value;

const ALL: &str = "*";

#[derive(Clone, Debug)]
pub struct Schema {
    pub name: Box<str>,
    pub uid: HeaderValue,
    /// The name of its PriorityLevelConfiguration.
    pub level: Box<str>,
    /// Lower numbers are tried first.
    pub precedence: i64,
    by: Distinguisher,
    rules: Vec<Rule>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Distinguisher {
    Nothing,
    User,
    Namespace,
}

#[derive(Clone, Debug)]
struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<ResourceRule>,
    paths: Vec<PathRule>,
}

#[derive(Clone, Debug)]
enum Subject {
    User(String),
    Group(String),
    Account { namespace: String, name: String },
}

#[derive(Clone, Debug)]
struct ResourceRule {
    verbs: Vec<String>,
    groups: Vec<String>,
    resources: Vec<String>,
    namespaces: Vec<String>,
    cluster_scope: bool,
}

#[derive(Clone, Debug)]
struct PathRule {
    verbs: Vec<String>,
    paths: Vec<String>,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(text).collect()
}

fn each<T>(value: &Value, read: impl Fn(&Value) -> T) -> Vec<T> {
    value.as_array().into_iter().flatten().map(read).collect()
}

impl Schema {
    pub fn read(name: &str, value: &Value) -> Self {
        let spec = &value["spec"];
        let by = match spec["distinguisherMethod"]["type"].as_str() {
            Some("ByUser") => Distinguisher::User,
            Some("ByNamespace") => Distinguisher::Namespace,
            _ => Distinguisher::Nothing,
        };
        Self {
            name: name.into(),
            uid: super::uid(value),
            level: text(&spec["priorityLevelConfiguration"]["name"]).into(),
            precedence: spec["matchingPrecedence"].as_i64().unwrap_or(1000),
            by,
            rules: each(&spec["rules"], Rule::read),
        }
    }

    pub fn matches(&self, user: &User, attributes: &Attributes) -> bool {
        self.rules.iter().any(|rule| rule.matches(user, attributes))
    }

    /// Requests with the same answer are one flow.
    pub fn distinguish<'a>(&self, user: &'a User, attributes: &'a Attributes) -> &'a str {
        match self.by {
            Distinguisher::Nothing => "",
            Distinguisher::User => &user.name,
            Distinguisher::Namespace => &attributes.namespace,
        }
    }
}

impl Rule {
    fn read(value: &Value) -> Self {
        Self {
            subjects: value["subjects"].as_array().into_iter().flatten().filter_map(Subject::read).collect(),
            resources: each(&value["resourceRules"], |rule| ResourceRule {
                verbs: texts(&rule["verbs"]),
                groups: texts(&rule["apiGroups"]),
                resources: texts(&rule["resources"]),
                namespaces: texts(&rule["namespaces"]),
                cluster_scope: rule["clusterScope"] == true,
            }),
            paths: each(&value["nonResourceRules"], |rule| PathRule {
                verbs: texts(&rule["verbs"]),
                paths: texts(&rule["nonResourceURLs"]),
            }),
        }
    }

    fn matches(&self, user: &User, attributes: &Attributes) -> bool {
        if !self.subjects.iter().any(|subject| subject.is(user)) {
            return false;
        }
        match attributes.path.is_empty() {
            true => self.resources.iter().any(|rule| rule.matches(attributes)),
            false => self.paths.iter().any(|rule| rule.matches(attributes)),
        }
    }
}

impl Subject {
    fn read(value: &Value) -> Option<Self> {
        Some(match value["kind"].as_str()? {
            "User" => Self::User(text(&value["user"]["name"])),
            "Group" => Self::Group(text(&value["group"]["name"])),
            "ServiceAccount" => Self::Account {
                namespace: text(&value["serviceAccount"]["namespace"]),
                name: text(&value["serviceAccount"]["name"]),
            },
            _ => return None,
        })
    }

    fn is(&self, user: &User) -> bool {
        match self {
            Self::User(name) => name == ALL || *name == user.name,
            Self::Group(name) => name == ALL || user.is_in(name),
            Self::Account { namespace, name } => {
                let account = user.name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
                account.is_some_and(|(home, called)| home == namespace && (name == ALL || called == name))
            }
        }
    }
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|one| one == ALL || one == wanted)
}

impl ResourceRule {
    fn matches(&self, attributes: &Attributes) -> bool {
        let of_resource = || match attributes.subresource.as_str() {
            "" => has(&self.resources, &attributes.resource),
            sub => self.resources.iter().any(|one| {
                one == ALL || one.split_once('/').is_some_and(|pair| pair == (attributes.resource.as_str(), sub))
            }),
        };
        let in_place = || match attributes.namespace.as_str() {
            "" => self.cluster_scope,
            namespace => has(&self.namespaces, namespace),
        };
        has(&self.verbs, &attributes.verb) && has(&self.groups, &attributes.group) && of_resource() && in_place()
    }
}

impl PathRule {
    fn matches(&self, attributes: &Attributes) -> bool {
        let path = attributes.path.as_str();
        let of_path = |wanted: &String| match wanted.strip_suffix('*') {
            Some("") => true,
            Some(prefix) if prefix.ends_with('/') => path.starts_with(prefix),
            _ => wanted == path,
        };
        has(&self.verbs, &attributes.verb) && self.paths.iter().any(of_path)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema(subject: Value, rule: Value) -> Schema {
        let rules = json!([{"subjects": [subject], "resourceRules": [rule]}]);
        Schema::read("s", &json!({"spec": {"priorityLevelConfiguration": {"name": "l"}, "rules": rules}}))
    }

    fn asked(verb: &str, resource: &str, subresource: &str, namespace: &str) -> Attributes {
        let own = str::to_owned;
        Attributes {
            verb: own(verb),
            resource: own(resource),
            subresource: own(subresource),
            namespace: own(namespace),
            ..Attributes::default()
        }
    }

    #[test]
    fn subjects_are_users_groups_and_accounts() {
        let everything =
            json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true});
        let user = |name: &str, group: &str| User { name: name.into(), groups: vec![group.into()], ..User::default() };
        let list = asked("list", "pods", "", "");
        let account = |name: &str| json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": "kube-system", "name": name}});
        for (subject, who, matches) in [
            (json!({"kind": "User", "user": {"name": "noxu"}}), user("noxu", ""), true),
            (json!({"kind": "User", "user": {"name": "noxu"}}), user("foo", ""), false),
            (json!({"kind": "User", "user": {"name": "*"}}), user("foo", ""), true),
            (json!({"kind": "Group", "group": {"name": "devs"}}), user("foo", "devs"), true),
            (json!({"kind": "Group", "group": {"name": "devs"}}), user("devs", "ops"), false),
            (account("*"), user("system:serviceaccount:kube-system:x", ""), true),
            (account("y"), user("system:serviceaccount:kube-system:x", ""), false),
            (account("*"), user("system:serviceaccount:default:x", ""), false),
        ] {
            assert_eq!(schema(subject.clone(), everything.clone()).matches(&who, &list), matches, "{subject} {who:?}");
        }
    }

    #[test]
    fn rules_name_verbs_resources_and_places() {
        let anybody = json!({"kind": "User", "user": {"name": "*"}});
        let rule = |resources: Value, cluster_scope: bool| {
            json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": resources, "namespaces": ["a"],
                "clusterScope": cluster_scope})
        };
        for (resources, cluster_scope, request, matches) in [
            (json!(["pods"]), false, asked("get", "pods", "", "a"), true),
            (json!(["pods"]), false, asked("create", "pods", "", "a"), false),
            (json!(["pods"]), false, asked("get", "pods", "", "b"), false),
            (json!(["pods"]), false, asked("list", "pods", "", ""), false),
            (json!(["pods"]), true, asked("list", "pods", "", ""), true),
            (json!(["pods"]), false, asked("get", "pods", "status", "a"), false),
            (json!(["pods/status"]), false, asked("get", "pods", "status", "a"), true),
            (json!(["*"]), false, asked("get", "pods", "status", "a"), true),
        ] {
            let schema = schema(anybody.clone(), rule(resources.clone(), cluster_scope));
            assert_eq!(schema.matches(&User::default(), &request), matches, "{resources} {request:?}");
        }
        let paths = json!({"spec": {"rules": [{"subjects": [anybody], "nonResourceRules": [
            {"verbs": ["get"], "nonResourceURLs": ["/healthz", "/apis/*"]}]}]}});
        let paths = Schema::read("p", &paths);
        for (path, matches) in [("/healthz", true), ("/healthz/x", false), ("/apis/apps", true), ("/api", false)] {
            let request = Attributes { verb: "get".into(), path: path.into(), ..Attributes::default() };
            assert_eq!(paths.matches(&User::default(), &request), matches, "{path}");
        }
    }
}
