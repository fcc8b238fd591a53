//! What a request asks for, read off its method, path and query, as upstream's RequestInfo does it. Pure.

use http::Method;
use schema::status::{Result, Status};

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// The workspace: `root` unless the path begins with `/clusters/<path>`.
    pub cluster: String,
    pub route: Route,
    /// Seen as the provider of an export sees it.
    pub view: Option<Door>,
    /// It says nothing of workspaces: whoever asks so wants Kubernetes, and is told of nothing else.
    pub bare: bool,
}

/// What a path is an alias of: clients append the path of a workspace to that of `root`, where their kubeconfig points.
pub fn aliased(path: &str) -> Option<&str> {
    path.strip_prefix("/clusters/root").filter(|rest| rest.starts_with("/clusters/"))
}

/// The address that is meant by an alias of it.
pub fn meant(uri: &http::Uri) -> Option<http::Uri> {
    let path = aliased(uri.path())?;
    let with_query = uri.query().map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(with_query.parse().ok()?);
    http::Uri::from_parts(parts).ok()
}

/// A path without its workspace.
pub fn behind(path: &str) -> &str {
    let Some(rest) = path.strip_prefix("/clusters/") else { return path };
    rest.find('/').map_or("/", |at| &rest[at..])
}

/// `/services/apiexport/<workspace>/<export>`: where a provider looks into the workspaces that bind its export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Door {
    pub provider: String,
    pub export: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// `/api/…` or `/apis/<group>/<version>/…` down to a resource.
    Resource(Target),
    /// `/apis/<group>/<version>` and above; `group` is empty for core. Missing parts are empty.
    Discovery { core: bool, group: String, version: String },
    /// Anything else, without the cluster part: `/healthz`, `/openapi/v3`, …
    Other(String),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    pub group: String,
    pub version: String,
    pub resource: String,
    /// Empty for cluster-scoped resources and for requests over all namespaces.
    pub namespace: String,
    pub name: String,
    pub subresource: String,
    /// Parts behind the subresource (`proxy/…`).
    pub rest: Vec<String>,
    /// The old `/watch/` form of the path.
    pub watch: bool,
}

pub const ROOT: &str = "root";

/// All keys in a workspace, or in one of its namespaces, begin with this; `*` are all workspaces.
pub fn prefix(cluster: &str, namespace: &str) -> String {
    match (cluster, namespace) {
        ("*", _) => String::new(),
        (cluster, "") => format!("{cluster}/"),
        (cluster, namespace) => format!("{cluster}/{namespace}/"),
    }
}

impl Path {
    pub fn parse(path: &str) -> Result<Self> {
        let segments = segments(path)?;
        let mut parts: &[String] = &segments;
        let mut cluster = ROOT.to_owned();
        let mut view = None;
        let mut bare = true;
        if let [services, apiexport, provider, export, rest @ ..] = parts
            && (services == "services" && apiexport == "apiexport")
        {
            // Behind the door nothing is to be seen without saying in which workspace.
            if provider == "*" || !is_cluster(provider) || rest.first().is_none_or(|next| next != "clusters") {
                let what = "expected /services/apiexport/<workspace>/<export>/clusters/<workspace or *>/...";
                return Err(Status::bad_request(what));
            }
            view = Some(Door { provider: provider.clone(), export: export.clone() });
            parts = rest;
        }
        if view.is_some() && parts.len() < 2 {
            return Err(Status::bad_request(
                "which workspace? Expected clusters/<workspace or *> at the end of the path",
            ));
        }
        if let [first, name, rest @ ..] = parts
            && first == "clusters"
        {
            if !is_cluster(name) {
                return Err(Status::bad_request(format!(
                    "\"{name}\" is not a workspace path: expected something like root:org:team"
                )));
            }
            cluster.clone_from(name);
            bare = false;
            parts = rest;
        }
        let route = match parts {
            [api, rest @ ..] if api == "api" => route_in(rest, true),
            [apis, rest @ ..] if apis == "apis" => route_in(rest, false),
            rest => Route::Other(format!("/{}", rest.join("/"))),
        };
        Ok(Self { cluster, route, view, bare })
    }
}

/// Splits and decodes a path. Nothing that could lead elsewhere is let through.
fn segments(path: &str) -> Result<Vec<String>> {
    let trimmed = path.strip_prefix('/').unwrap_or(path);
    let trimmed = trimmed.strip_suffix('/').unwrap_or(trimmed);
    if trimmed.is_empty() {
        return Ok(Vec::new());
    }
    trimmed
        .split('/')
        .map(|raw| {
            let text = percent_decode(raw).ok_or_else(|| {
                Status::bad_request("the path is not valid: it holds a broken %-sequence or bytes that are not UTF-8")
            })?;
            if text.is_empty() || text == "." || text == ".." || text.contains(['/', '%', '\0']) {
                let what =
                    "the path is not valid: its segments may not be empty, \".\", \"..\", or hold \"/\" or \"%\"";
                return Err(Status::bad_request(what));
            }
            Ok(text)
        })
        .collect()
}

pub fn percent_decode(text: &str) -> Option<String> {
    if !text.contains('%') {
        return Some(text.to_owned());
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let high = char::from(bytes.next()?).to_digit(16)?;
        let low = char::from(bytes.next()?).to_digit(16)?;
        out.push((high * 16 + low) as u8);
    }
    String::from_utf8(out).ok()
}

pub fn is_cluster(name: &str) -> bool {
    let part = |p: &str| !p.is_empty() && p.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    name == "*" || (name.len() <= 512 && name.split(':').all(part))
}

fn route_in(parts: &[String], core: bool) -> Route {
    let (group, rest) = match (core, parts) {
        (true, rest) => (String::new(), rest),
        (false, [group, rest @ ..]) => (group.clone(), rest),
        (false, []) => return Route::Discovery { core, group: String::new(), version: String::new() },
    };
    let [version, rest @ ..] = rest else {
        return Route::Discovery { core, group, version: String::new() };
    };
    if rest.is_empty() {
        return Route::Discovery { core, group, version: version.clone() };
    }
    let mut target = Target { group, version: version.clone(), ..Target::default() };
    let mut rest = rest;
    if rest.len() > 1 && rest[0] == "watch" {
        target.watch = true;
        rest = &rest[1..];
    }
    // Namespaces are a resource of their own: `namespaces/x` is one, and so are its subresources.
    let rest = match rest {
        [namespaces, name, tail @ ..] if namespaces == "namespaces" && is_in_namespace(tail) => {
            target.namespace.clone_from(name);
            tail
        }
        all => all,
    };
    let mut rest = rest.iter();
    target.resource = rest.next().cloned().unwrap_or_default();
    target.name = rest.next().cloned().unwrap_or_default();
    target.subresource = rest.next().cloned().unwrap_or_default();
    target.rest = rest.cloned().collect();
    Route::Resource(target)
}

fn is_in_namespace(tail: &[String]) -> bool {
    match tail {
        [] => false,
        [one] => one != "status" && one != "finalize",
        _ => true,
    }
}

/// The query, in order.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    pub fn parse(query: Option<&str>) -> Self {
        let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let decode = |text: &str| percent_decode(&text.replace('+', " ")).unwrap_or_else(|| text.to_owned());
        Self(
            pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).map(|(k, v)| (decode(k), decode(v))).collect(),
        )
    }

    /// The first value of that name; empty if there is none.
    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(k, _)| k == name).map_or("", |(_, v)| v)
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(k, _)| k == name)
    }

    /// The same without one of the parameters.
    pub fn without(&self, name: &str) -> Self {
        Self(self.0.iter().filter(|(k, _)| k != name).cloned().collect())
    }

    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(k, _)| k == name).map(|(_, v)| v.as_str())
    }

    /// As upstream reads booleans in queries: present and neither `false` nor `0` is true.
    pub fn flag(&self, name: &str) -> bool {
        self.has(name) && !matches!(self.get(name).to_ascii_lowercase().as_str(), "false" | "0")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
    /// OPTIONS, which only what is behind a proxy answers. It has no name: a role has to allow every verb.
    Options,
}

impl Verb {
    /// `None` for a method that no resource takes.
    pub fn of(method: &Method, target: &Target, query: &Query) -> Option<Self> {
        let named = !target.name.is_empty();
        Some(match method.as_str() {
            "GET" | "HEAD" if target.watch => Self::Watch,
            // The old form of a watch is that and nothing else.
            _ if target.watch => return None,
            "GET" | "HEAD" if named => Self::Get,
            "GET" | "HEAD" if query.flag("watch") => Self::Watch,
            "GET" | "HEAD" => Self::List,
            "POST" => Self::Create,
            "PUT" => Self::Update,
            "PATCH" => Self::Patch,
            "DELETE" if named => Self::Delete,
            "DELETE" => Self::DeleteCollection,
            "OPTIONS" if named && target.subresource == "proxy" => Self::Options,
            _ => return None,
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Options => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &str) -> Target {
        match Path::parse(path).unwrap().route {
            Route::Resource(target) => target,
            other => panic!("{path}: {other:?}"),
        }
    }

    #[test]
    fn paths_lead_where_upstream_says() {
        for (path, want) in [
            ("/api/v1/pods", "|v1||pods||"),
            ("/api/v1/namespaces", "|v1||namespaces||"),
            ("/api/v1/namespaces/a", "|v1||namespaces|a|"),
            ("/api/v1/namespaces/a/status", "|v1||namespaces|a|status"),
            ("/api/v1/namespaces/a/finalize", "|v1||namespaces|a|finalize"),
            ("/api/v1/namespaces/a/pods", "|v1|a|pods||"),
            ("/api/v1/namespaces/a/pods/b/log", "|v1|a|pods|b|log"),
            ("/apis/apps/v1/namespaces/a/deployments/d/scale", "apps|v1|a|deployments|d|scale"),
            (
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node",
                "rbac.authorization.k8s.io|v1||clusterroles|system:node|",
            ),
        ] {
            let t = target(path);
            let got = [t.group, t.version, t.namespace, t.resource, t.name, t.subresource].join("|");
            assert_eq!(got, want, "{path}");
        }
        let watch = target("/api/v1/watch/namespaces/a/pods/b");
        assert!(watch.watch && watch.name == "b" && watch.namespace == "a");
        let nothing = Query::parse(None);
        assert_eq!(Verb::of(&Method::GET, &watch, &nothing), Some(Verb::Watch));
        assert_eq!(Verb::of(&Method::DELETE, &watch, &nothing), None);
    }

    #[test]
    fn clusters_come_first() {
        let path = Path::parse("/clusters/root:org:team/api/v1/pods").unwrap();
        assert_eq!(path.cluster, "root:org:team");
        assert!(!path.bare);
        let bare = Path::parse("/api/v1/pods").unwrap();
        assert!(bare.cluster == "root" && bare.bare && !Path::parse("/clusters/root/api").unwrap().bare);
        assert_eq!(aliased("/clusters/root/clusters/root:a/api"), Some("/clusters/root:a/api"));
        for plain in
            ["/clusters/root", "/clusters/root/api", "/clusters/root:a/clusters/root:b/api", "/clusters/rootclusters/a"]
        {
            assert_eq!(aliased(plain), None, "{plain}");
        }
        for bad in ["/clusters/a..b/api", "/clusters/Root/api", "/clusters/root:/api"] {
            assert!(Path::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn doors_lead_to_workspaces_only() {
        let path = Path::parse("/services/apiexport/root:p/x/clusters/root:a/api/v1/pods").unwrap();
        let door = path.view.unwrap();
        assert_eq!((door.provider.as_str(), door.export.as_str(), path.cluster.as_str()), ("root:p", "x", "root:a"));
        assert!(Path::parse("/services/apiexport/root:p/x/clusters/*/apis").unwrap().view.is_some());
        for bad in [
            "/services/apiexport/root:p/x",
            "/services/apiexport/root:p/x/api/v1/secrets",
            "/services/apiexport/root:p/x/clusters",
            "/services/apiexport/*/x/clusters/*/api",
            "/services/apiexport/root:p/x/clusters/a..b/api",
            "/services/apiexport/root:p/x/clusters/%2e%2e/api",
            "/services/apiexport/root:p/x%2fy/clusters/*/api",
        ] {
            assert!(Path::parse(bad).is_err(), "{bad}");
        }
        // Doors do not stand in workspaces, nor behind each other.
        for other in [
            "/clusters/root:a/services/apiexport/root:p/x/clusters/*/api/v1/secrets",
            "/services/apiexport/root:p/x/clusters/*/services/apiexport/root:q/y/clusters/*/api/v1/secrets",
            "/services/apiexport/root:p/x/clusters/root:a/clusters/root:b/api/v1/secrets",
            "/services/other/root:p/x/clusters/root:a/api/v1/secrets",
            "/services/apiexport/root:p",
        ] {
            assert!(matches!(Path::parse(other).unwrap().route, Route::Other(_)), "{other}");
        }
    }

    #[test]
    fn tricks_are_refused() {
        for bad in [
            "/api/v1/namespaces/../secrets",
            "/api/v1/namespaces/a%2fb/secrets",
            "/api/v1//pods",
            "/api/v1/namespaces/%2e%2e/pods",
            "/api/v1/pods/%zz",
            "/api/v1/pods/%ff",
            "/api/v1/pods/a%00b",
            "/clusters/root/../x/api/v1/pods",
        ] {
            assert!(Path::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn query_values() {
        let query = Query::parse(Some("watch=1&labelSelector=a%3Db%2Cc&x=a+b&flag&dryRun=All&off=false"));
        assert!(query.flag("watch") && query.flag("flag") && !query.flag("off") && !query.flag("none"));
        assert_eq!(query.get("labelSelector"), "a=b,c");
        assert_eq!(query.get("x"), "a b");
    }
}
