//! May this user do this? Roles and bindings are indexed as they change; `system:masters` may do everything.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, PoisonError, RwLock},
};

use cache::{Change, ChangeKind, Observer};
use http::{Extensions, HeaderMap, Method};
use identity::nodes::Nodes;
use identity::rbac::{Roles, Rule};
use identity::signing::{EDGES, SYNCTARGETS, edge_of};
use identity::{Attributes, Authorizer, Decision, ITSELF, User, impersonate, node_authorizer, nodes, policy};
use request::{Query, ROOT, Target, Verb};
use schema::selector::FieldSelector;
use schema::status::{Result, Status};

use crate::{Server, workspaces, workspaces::wildcard::EVERYWHERE};

/// The roles of every workspace.
#[derive(Default)]
pub struct Authorization {
    roles: RwLock<HashMap<Box<str>, Arc<RwLock<Roles>>>>,
    nodes: Arc<RwLock<HashMap<Box<str>, Nodes>>>,
}

impl Authorization {
    pub fn observer(self: &Arc<Self>) -> Observer {
        let authorization = self.clone();
        Box::new(move |collection: &str, change: &Arc<Change>| authorization.observe(collection, change))
    }

    fn observe(&self, collection: &str, change: &Change) {
        if nodes::concerns(collection) {
            return self.observe_nodes(collection, change);
        }
        let Some(resource) = collection.strip_prefix("rbac.authorization.k8s.io/") else { return };
        let object = &change.object;
        let acts = change.kind != ChangeKind::Deleted && object.acts_here();
        let value = acts.then(|| object.value());
        let of_workspace = {
            let mut all = self.roles.write().unwrap_or_else(PoisonError::into_inner);
            all.entry(object.cluster().into()).or_insert_with(|| first_roles(object.cluster())).clone()
        };
        let mut roles = of_workspace.write().unwrap_or_else(PoisonError::into_inner);
        match resource {
            "roles" | "clusterroles" => roles.set_role(object.namespace(), object.name(), value.as_ref()),
            _ => roles.set_binding(object.namespace(), object.name(), value.as_ref()),
        }
        if roles.is_empty() {
            drop(roles);
            self.roles.write().unwrap_or_else(PoisonError::into_inner).remove(object.cluster());
        }
    }

    fn observe_nodes(&self, collection: &str, change: &Change) {
        let object = &change.object;
        let gone = change.kind == ChangeKind::Deleted;
        if let (false, Some(old)) = (gone, &change.previous)
            && !nodes::is_news(collection, &old.json, &object.json)
        {
            return;
        }
        let value = (!gone).then(|| object.value());
        let mut all = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        let nodes = match all.get_mut(object.cluster()) {
            Some(nodes) => nodes,
            None => all.entry(object.cluster().into()).or_default(),
        };
        nodes.set(collection, object.namespace(), object.name(), value.as_ref());
    }

    /// The roles of a workspace; one without any has those that all workspaces share. Nothing is kept for who only asks.
    pub fn roles(&self, cluster: &str) -> Arc<RwLock<Roles>> {
        let roles = self.roles.read().unwrap_or_else(PoisonError::into_inner);
        roles.get(cluster).unwrap_or_else(|| &NONE).clone()
    }

    /// The authorizer of one workspace. It takes users to be those of the workspace; [`Server::authorize`] does not.
    pub fn in_workspace(&self, cluster: &str) -> Workspace {
        Workspace { roles: self.roles(cluster), nodes: self.nodes.clone(), cluster: cluster.to_owned() }
    }
}

/// What holds in every workspace but `root`, which has upstream's defaults as objects that can be changed.
static SHARED: LazyLock<Arc<Roles>> = LazyLock::new(|| Arc::new(policy::shared()));
/// The roles of a workspace that has none.
static NONE: LazyLock<Arc<RwLock<Roles>>> = LazyLock::new(|| Arc::new(RwLock::new(Roles::over(SHARED.clone()))));

fn first_roles(cluster: &str) -> Arc<RwLock<Roles>> {
    let roles = if cluster == ROOT { Roles::default() } else { Roles::over(SHARED.clone()) };
    Arc::new(RwLock::new(roles))
}

pub struct Workspace {
    pub roles: Arc<RwLock<Roles>>,
    nodes: Arc<RwLock<HashMap<Box<str>, Nodes>>>,
    cluster: String,
}

impl Workspace {
    /// Nodes are somebody only in the workspace whose nodes they are.
    fn authorize_node(&self, user: &User, attributes: &Attributes) -> Option<Decision> {
        node_authorizer::node_of(user).filter(|_| user.home() == self.cluster)?;
        let all = self.nodes.read().unwrap_or_else(PoisonError::into_inner);
        match all.get(self.cluster.as_str()) {
            Some(nodes) => node_authorizer::authorize(user, attributes, nodes),
            None => node_authorizer::authorize(user, attributes, &Nodes::default()),
        }
    }
}

impl Workspace {
    /// What is decided before anybody looks at roles.
    fn decided(&self, user: &User, attributes: &Attributes) -> Option<bool> {
        if user.is_confined_elsewhere(&self.cluster) {
            return Some(false);
        }
        if self.cluster == EVERYWHERE {
            let reads = matches!(attributes.verb.as_str(), "list" | "watch") || !attributes.path.is_empty();
            return Some(user.rules(EVERYWHERE) || workspaces::reaches_all(user) && reads);
        }
        None
    }

    /// Nobody may give others what they do not have here: checks the rules of a role that a user wants to write or to
    /// bind.
    pub fn check_escalation(&self, user: &User, namespace: &str, rules: &[Rule]) -> std::result::Result<(), String> {
        let user = workspaces::seen_from(user, &self.cluster);
        self.roles.read().unwrap_or_else(PoisonError::into_inner).check_escalation(&user, namespace, rules)
    }
}

impl Authorizer for Workspace {
    fn authorize(&self, user: &User, attributes: &Attributes) -> Decision {
        if let Some(allowed) = self.decided(user, attributes) {
            return Decision { allowed, ..Decision::default() };
        }
        let of_node = self.authorize_node(user, attributes);
        if let Some(decision) = of_node.as_ref().filter(|decision| decision.allowed) {
            return decision.clone();
        }
        let mut decision = self.roles.read().unwrap_or_else(PoisonError::into_inner).authorize(user, attributes);
        if let Some(of_node) = of_node.filter(|of_node| !decision.allowed && !of_node.reason.is_empty()) {
            let reasons = [of_node.reason, decision.reason];
            decision.reason = reasons.into_iter().filter(|r| !r.is_empty()).collect::<Vec<_>>().join("\n");
        }
        decision
    }

    fn verdict(&self, user: &User, attributes: &Attributes) -> std::result::Result<(), String> {
        if self.decided(user, attributes).is_some() || node_authorizer::node_of(user).is_some() {
            let decision = self.authorize(user, attributes);
            return if decision.allowed { Ok(()) } else { Err(decision.reason) };
        }
        self.roles.read().unwrap_or_else(PoisonError::into_inner).verdict(user, attributes)
    }
}

impl Server {
    /// The user that a request is made as: the sender, or whom the sender may impersonate. The audit log is told of the
    /// latter.
    pub fn act_as(
        &self,
        sender: User,
        (headers, extensions): (&HeaderMap, &Extensions),
        cluster: &str,
        attributes: &Attributes,
    ) -> Result<User> {
        let sender = workspaces::seen_from(&sender, cluster).into_owned();
        let wanted = impersonate::wanted(headers)?;
        // An administrator in another's name sees what that one sees, also of workspaces that are not there.
        if wanted.is_none() || !sender.rules(cluster) {
            self.enter(&sender, cluster)?;
        }
        let Some(wanted) = wanted else { return Ok(sender) };
        if wanted.name == ITSELF && cluster != ROOT {
            let why = "nobody but the server itself has this name outside the workspace root";
            return Err(Status::forbidden("", "users", ITSELF, why));
        }
        let here = self.authorization.in_workspace(cluster);
        let mut user = impersonate::become_user(&sender, &wanted, attributes, &here, self.identity.modes())?;
        workspaces::confine(&mut user, &sender, cluster);
        if let Some(trail) = audit::of(extensions) {
            trail.became(&user);
        }
        self.enter(&user, cluster)?;
        Ok(user)
    }

    /// The same by name alone: may they do that, as whoever they ask to be? Nobody is told.
    pub fn may(&self, sender: &User, headers: &HeaderMap, cluster: &str, attributes: &Attributes) -> bool {
        let user = self.act_as(sender.clone(), (headers, &Extensions::new()), cluster, attributes);
        user.is_ok_and(|user| self.authorize(&user, cluster, attributes).is_ok())
    }

    /// Somebody shows the certificate of an edge that was revoked, whose SyncTarget is gone, or in whose name another
    /// machine has joined.
    pub fn is_shut_out(&self, user: &User) -> bool {
        let edge = Some(user).filter(|user| user.is_in(EDGES)).and_then(|user| edge_of(&user.name));
        let Some((workspace, name)) = edge else { return false };
        let target = self.cache.get(SYNCTARGETS, &format!("{workspace}//{name}"));
        let credential = target.and_then(|target| ::kinds::join::credential_of(&target.value()));
        credential.is_none_or(|credential| credential != user.uid)
    }

    /// May a user, of whichever workspace, do that in this one? Accounts of others are not its own of that name.
    pub fn authorize(&self, user: &User, cluster: &str, attributes: &Attributes) -> Result<()> {
        self.authorization.in_workspace(cluster).check(&workspaces::seen_from(user, cluster), attributes)
    }
}

pub fn of_path(method: &Method, path: &str) -> Attributes {
    Attributes::path(&method.as_str().to_ascii_lowercase(), path)
}

pub fn of_target(verb: Verb, target: &Target) -> Attributes {
    // A namespace is within itself: rights that one has in it are enough to look at it.
    let itself = target.group.is_empty() && target.resource == "namespaces" && target.namespace.is_empty();
    let namespace = if itself { &target.name } else { &target.namespace };
    Attributes {
        verb: verb.name().to_owned(),
        group: target.group.clone(),
        version: target.version.clone(),
        resource: target.resource.clone(),
        subresource: target.subresource.clone(),
        namespace: namespace.clone(),
        name: target.name.clone(),
        ..Attributes::default()
    }
}

/// The same with what the query adds: whoever lists or watches by an exact name or field asks for less than everything.
pub fn of_request(verb: Verb, target: &Target, query: &Query) -> Attributes {
    let mut attributes = of_target(verb, target);
    if !matches!(verb, Verb::List | Verb::Watch | Verb::DeleteCollection) {
        return attributes;
    }
    // A selector that cannot be read narrows nothing, and the verb will say what is wrong with it.
    let Ok(selector) = FieldSelector::parse(query.get("fieldSelector")) else { return attributes };
    if verb != Verb::DeleteCollection
        && attributes.name.is_empty()
        && let Some(name) = selector.exact("metadata.name").filter(|name| schema::names::path_segment(name).is_empty())
    {
        attributes.name = name.to_owned();
    }
    attributes.exact_fields = selector.equalities();
    attributes
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use serde_json::json;

    use super::*;
    use identity::authenticate::MASTERS;

    /// Rights on single objects are enough to list and watch just them, but never to delete a collection.
    #[test]
    fn a_selector_by_name_is_a_name() {
        let pods = Target { resource: "pods".into(), namespace: "ns".into(), ..Target::default() };
        for (verb, query, name) in [
            (Verb::List, "fieldSelector=metadata.name%3Da", "a"),
            (Verb::Watch, "watch=1&fieldSelector=spec.nodeName=n,metadata.name==a", "a"),
            (Verb::List, "fieldSelector=metadata.name!=a", ""),
            (Verb::List, "fieldSelector=metadata.name=a%252fb", ""),
            (Verb::List, "fieldSelector=metadata.name=..", ""),
            (Verb::List, "fieldSelector=metadata.namespace=a", ""),
            (Verb::List, "fieldSelector=nonsense&fieldSelector=metadata.name=a", ""),
            (Verb::DeleteCollection, "fieldSelector=metadata.name=a", ""),
        ] {
            let asked = of_request(verb, &pods, &Query::parse(Some(query)));
            assert_eq!((asked.name.as_str(), asked.verb.as_str()), (name, verb.name()), "{query}");
        }
    }

    /// With and without a reason, the decision is the same.
    #[test]
    fn verdicts_are_decisions() {
        let authorization = Authorization::default();
        let user = |name: &str, group: &str| User { name: name.into(), groups: vec![group.into()], ..User::default() };
        let mut confined = user("jane", MASTERS);
        confined.confine("root:a");
        let pods = Target { resource: "pods".into(), namespace: "ns".into(), ..Target::default() };
        for cluster in [ROOT, "root:a", "root:b", EVERYWHERE] {
            let here = authorization.in_workspace(cluster);
            for user in [
                user("x", MASTERS),
                user("c", workspaces::CONTROLLERS),
                user("j", "system:authenticated"),
                user("system:node:n", "system:nodes"),
                confined.clone(),
                User::anonymous(),
            ] {
                for asked in [
                    Attributes::path("get", "/version"),
                    Attributes::path("get", "/api"),
                    Attributes::path("get", "/metrics"),
                    of_target(Verb::List, &pods),
                    of_target(Verb::Delete, &pods),
                ] {
                    let decision = here.authorize(&user, &asked);
                    let verdict = if decision.allowed { Ok(()) } else { Err(decision.reason) };
                    assert_eq!(here.verdict(&user, &asked), verdict, "{cluster} {user:?} {asked:?}");
                }
            }
            assert_eq!(here.allows(&confined, &of_target(Verb::List, &pods)), cluster == "root:a");
            let controller = user("c", workspaces::CONTROLLERS);
            assert_eq!(here.allows(&controller, &of_target(Verb::List, &pods)), cluster == EVERYWHERE);
            assert!(!here.allows(&controller, &of_target(Verb::Delete, &pods)));
        }
    }

    /// A user from impersonation in another workspace has no rights to give here: neither those of the group, nor those
    /// of the name.
    #[test]
    fn nobody_gives_away_what_they_are_elsewhere() {
        let authorization = Authorization::default();
        let roles = first_roles("root:v");
        let binding = json!({"roleRef": {"kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "User", "name": "victor"}]});
        roles.write().unwrap().set_binding("", "victor", Some(&binding));
        authorization.roles.write().unwrap().insert("root:v".into(), roles);
        let here = authorization.in_workspace("root:v");
        let everything = [Rule {
            verbs: vec!["*".into()],
            groups: vec!["*".into()],
            resources: vec!["*".into()],
            ..Rule::default()
        }];
        for (name, group, has) in [("victor", "devs", true), ("x", MASTERS, true), ("bob", "devs", false)] {
            let mut user = User { name: name.into(), groups: vec![group.into()], ..User::default() };
            assert_eq!(here.check_escalation(&user, "", &everything).is_ok(), has, "{name}");
            user.confine("root:v");
            assert_eq!(here.check_escalation(&user, "", &everything).is_ok(), has, "{name}, here");
            user.confine("root:p");
            assert!(here.check_escalation(&user, "", &everything).is_err(), "{name}, elsewhere");
        }
    }

    const SPACES: [&str; 4] = ["root:t0", "root:t1", "root:t2", "root:t1:inside"];
    const NAMES: [&str; 8] = [
        "x",
        "t0",
        "t1",
        "t2",
        "system:apiserver",
        "system:node:n",
        "system:serviceaccount:ns:robot",
        "system:anonymous",
    ];
    const GROUPS: [&str; 4] = [MASTERS, workspaces::CONTROLLERS, "system:nodes", "devs"];

    /// Each tenant administers the workspace of their name.
    fn town() -> Authorization {
        let authorization = Authorization::default();
        for tenant in ["t0", "t1", "t2"] {
            let binding = json!({"roleRef": {"kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [{"kind": "User", "name": tenant}]});
            let cluster = format!("root:{tenant}");
            let roles = first_roles(&cluster);
            roles.write().unwrap().set_binding("", tenant, Some(&binding));
            authorization.roles.write().unwrap().insert(cluster.into(), roles);
        }
        authorization
    }

    proptest::proptest! {
        /// A user whom a tenant impersonates counts in the tenant's workspace and nowhere else, for every way to ask
        /// about rights and whatever the headers say. A user whom an administrator of the server impersonates counts
        /// everywhere.
        #[test]
        fn impersonation_counts_where_it_was_allowed(
            by_admin: bool, home in 0..3usize, name in 0..NAMES.len(), groups in vec(0..GROUPS.len(), 0..4),
            forged in vec((0..3usize, 0..SPACES.len()), 0..3),
        ) {
            let authorization = town();
            let (tenant, place) = (["t0", "t1", "t2"][home], SPACES[home]);
            let mut sender = User { name: tenant.into(), ..User::default() };
            if by_admin {
                sender.groups.push(MASTERS.into());
            }
            let groups = groups.iter().map(|group| GROUPS[*group].to_owned()).collect();
            let mut user = User { name: NAMES[name].into(), groups, ..User::default() };
            for (key, space) in forged {
                let key = ["scopes", "cluster-name", "else"][key];
                user.extra.insert(format!("authentication.kcp.io/{key}"), vec![format!("cluster:{}", SPACES[space])]);
            }
            workspaces::confine(&mut user, &sender, place);
            let (masters, controller) = (user.is_in(MASTERS), user.is_in(workspaces::CONTROLLERS));
            proptest::prop_assert!(!user.is_itself());
            proptest::prop_assert_eq!(user.rules_everywhere(), by_admin && masters);
            proptest::prop_assert_eq!(workspaces::reaches_all(&user), by_admin && (masters || controller));
            let all = || vec!["*".to_owned()];
            let everything = [Rule { verbs: all(), groups: all(), resources: all(), ..Rule::default() }];
            let secrets = Target { resource: "secrets".into(), namespace: "ns".into(), ..Target::default() };
            let delete = of_target(Verb::Delete, &secrets);
            for cluster in SPACES.into_iter().chain([ROOT, EVERYWHERE]) {
                let there = cluster == place || by_admin;
                let is_account = user.name.starts_with("system:serviceaccount:");
                let counts = masters && there && (!is_account || cluster == place);
                let expected = counts || there && cluster == format!("root:{}", user.name);
                let here = authorization.in_workspace(cluster);
                let seen = workspaces::seen_from(&user, cluster);
                proptest::prop_assert_eq!(here.allows(&seen, &delete), expected, "{} {:?}", cluster, seen);
                let gives = here.check_escalation(&user, "ns", &everything).is_ok();
                proptest::prop_assert_eq!(gives, expected, "{} {:?}", cluster, seen);
                proptest::prop_assert_eq!(seen.rules(cluster), counts, "{} {:?}", cluster, seen);
                // Also without looking at who they are there.
                proptest::prop_assert!(there || !here.allows(&user, &delete), "{} {:?}", cluster, user);
            }
        }
    }

    /// Somebody who tries out names of workspaces must not fill our memory.
    #[test]
    fn asking_about_unknown_workspaces_leaves_no_trace() {
        let authorization = Authorization::default();
        assert!(!authorization.in_workspace("root:x").allows(&User::anonymous(), &Attributes::path("get", "/metrics")));
        assert!(authorization.roles.read().unwrap().is_empty());
    }
}
