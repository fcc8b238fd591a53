//! The `/etc/resolv.conf` of a pod, by its `dnsPolicy` and `dnsConfig`. Pure.

use std::net::SocketAddr;

use k8s_openapi::api::core::v1::{Pod, PodDNSConfig};

use crate::spec;

/// The only port that such a file can mean.
const PORT: u16 = 53;
const DOMAIN: &str = "cluster.local";
/// What the libraries of C take.
const MOST_SERVERS: usize = 3;
const MOST_DOMAINS: usize = 32;
const LONGEST_DOMAIN: usize = 253;
const LONGEST_SEARCH: usize = 2048;

/// What such a file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Config {
    servers: Vec<String>,
    searches: Vec<String>,
    options: Vec<String>,
}

/// The file of a pod, and what to warn of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolv {
    pub text: String,
    pub warnings: Vec<String>,
}

/// None: the machine's own file is the right one. `resolver` answers for the names of Services, `machine` is the machine's file.
pub fn of(pod: &Pod, resolver: Option<SocketAddr>, machine: &str) -> Option<Resolv> {
    let asked = pod.spec.as_ref()?;
    let resolver = resolver.filter(|resolver| resolver.port() == PORT);
    let policy = match asked.dns_policy.as_deref() {
        Some("ClusterFirst") | None if spec::is_on_host_network(pod) => "Default",
        Some(policy @ ("Default" | "None")) => policy,
        _ => "ClusterFirst",
    };
    let mut config = match (policy, resolver) {
        ("None", _) => Config::default(),
        ("ClusterFirst", Some(resolver)) => {
            let namespace = spec::namespace(pod);
            let mut searches = vec![format!("{namespace}.svc.{DOMAIN}"), format!("svc.{DOMAIN}"), DOMAIN.to_owned()];
            searches.extend(parse(machine).searches);
            Config {
                servers: vec![resolver.ip().to_string()],
                searches: once_each(searches),
                options: vec!["ndots:5".to_owned()],
            }
        }
        _ if asked.dns_config.is_none() => return None,
        _ => parse(machine),
    };
    if let Some(more) = &asked.dns_config {
        add(&mut config, more);
    }
    let warnings = hold(&mut config);
    Some(Resolv { text: written(&config), warnings })
}

fn parse(text: &str) -> Config {
    let mut found = Config::default();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => found.servers.extend(words.next().map(str::to_owned)),
            // The last one counts.
            Some("search") => {
                let domains = words.filter(|domain| *domain != ".");
                found.searches = domains.map(|domain| domain.strip_suffix('.').unwrap_or(domain).to_owned()).collect();
            }
            Some("options") => words.for_each(|option| set(&mut found.options, option.to_owned())),
            _ => {}
        }
    }
    found
}

fn add(config: &mut Config, more: &PodDNSConfig) {
    config.servers.extend(more.nameservers.iter().flatten().cloned());
    config.servers = once_each(std::mem::take(&mut config.servers));
    config.searches.extend(more.searches.iter().flatten().cloned());
    config.searches = once_each(std::mem::take(&mut config.searches));
    for option in more.options.iter().flatten() {
        let name = option.name.as_deref().unwrap_or_default();
        let value = option.value.as_deref().filter(|value| !value.is_empty());
        set(&mut config.options, value.map_or_else(|| name.to_owned(), |value| format!("{name}:{value}")));
    }
}

/// Instead of what was said of the same option before.
fn set(options: &mut Vec<String>, option: String) {
    let name = |option: &str| option.split(':').next().unwrap_or_default().to_owned();
    match options.iter_mut().find(|known| name(known) == name(&option)) {
        Some(known) => *known = option,
        None => options.push(option),
    }
}

fn once_each(all: Vec<String>) -> Vec<String> {
    let mut found: Vec<String> = Vec::with_capacity(all.len());
    for one in all {
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}

/// Leaves out what is too much, and says so.
fn hold(config: &mut Config) -> Vec<String> {
    let mut warnings = Vec::new();
    if config.servers.len() > MOST_SERVERS {
        config.servers.truncate(MOST_SERVERS);
        warnings.push(format!(
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: {}",
            config.servers.join(" ")
        ));
    }
    let asked = config.searches.len();
    config.searches.truncate(MOST_DOMAINS);
    config.searches.retain(|domain| domain.len() <= LONGEST_DOMAIN);
    while config.searches.join(" ").len() > LONGEST_SEARCH {
        config.searches.pop();
    }
    if config.searches.len() < asked {
        warnings.push(format!(
            "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {}",
            config.searches.join(" ")
        ));
    }
    warnings
}

fn written(config: &Config) -> String {
    let mut text = String::new();
    let mut line = |word: &str, what: &str| text.extend([word, " ", what, "\n"]);
    if !config.searches.is_empty() {
        line("search", &config.searches.join(" "));
    }
    config.servers.iter().for_each(|server| line("nameserver", server));
    if !config.options.is_empty() {
        line("options", &config.options.join(" "));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const MACHINE: &str = "# ours\nnameserver 9.9.9.9\nnameserver 8.8.8.8\nsearch old\nsearch corp.example. . cluster.local\n\
                           options timeout:1 rotate timeout:2\n";

    fn pod(more: &Value) -> Pod {
        let mut spec = json!({"containers": []});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": spec})).unwrap()
    }

    #[test]
    fn by_policy_and_config() {
        let cluster = "search shop.svc.cluster.local svc.cluster.local cluster.local corp.example\nnameserver 127.9.128.10\noptions ndots:5\n";
        let own = json!({"nameservers": ["1.1.1.1", "9.9.9.9"], "searches": ["mine", "corp.example"],
            "options": [{"name": "ndots", "value": "2"}, {"name": "rotate"}, {"name": "timeout", "value": "3"}]});
        let at = |port: u16| Some(SocketAddr::from(([127, 9, 128, 10], port)));
        for (more, resolver, expected) in [
            (json!({}), at(53), Some(cluster)),
            (json!({"dnsPolicy": "ClusterFirst"}), at(53), Some(cluster)),
            (json!({"dnsPolicy": "ClusterFirst"}), at(5353), None),
            (json!({"dnsPolicy": "ClusterFirst"}), None, None),
            (json!({"dnsPolicy": "ClusterFirst", "hostNetwork": true}), at(53), None),
            (json!({"dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": true}), at(53), Some(cluster)),
            (json!({"dnsPolicy": "Default"}), at(53), None),
            (
                json!({"dnsPolicy": "Default", "dnsConfig": own}),
                at(53),
                Some(
                    "search corp.example cluster.local mine\nnameserver 9.9.9.9\nnameserver 8.8.8.8\nnameserver 1.1.1.1\noptions timeout:3 rotate ndots:2\n",
                ),
            ),
            (
                json!({"dnsPolicy": "ClusterFirst", "dnsConfig": own}),
                at(53),
                Some(
                    "search shop.svc.cluster.local svc.cluster.local cluster.local corp.example mine\nnameserver 127.9.128.10\n\
                      nameserver 1.1.1.1\nnameserver 9.9.9.9\noptions ndots:2 rotate timeout:3\n",
                ),
            ),
            (
                json!({"dnsPolicy": "None", "dnsConfig": own}),
                at(53),
                Some(
                    "search mine corp.example\nnameserver 1.1.1.1\nnameserver 9.9.9.9\noptions ndots:2 rotate timeout:3\n",
                ),
            ),
            // Where the resolver cannot be named, the machine's are asked, and the pod's.
            (
                json!({"dnsConfig": {"nameservers": ["1.1.1.1"]}}),
                at(5353),
                Some(
                    "search corp.example cluster.local\nnameserver 9.9.9.9\nnameserver 8.8.8.8\nnameserver 1.1.1.1\noptions timeout:2 rotate\n",
                ),
            ),
        ] {
            let found = of(&pod(&more), resolver, MACHINE);
            assert_eq!(found.as_ref().map(|found| found.text.as_str()), expected, "{more}");
            assert!(found.is_none_or(|found| found.warnings.is_empty()));
        }
    }

    #[test]
    fn what_is_too_much_is_left_out_and_said() {
        let servers = |count: usize| (0..count).map(|at| format!("10.0.0.{at}")).collect::<Vec<_>>();
        let named = |count: usize, length: usize| (0..count).map(|at| format!("{at:0length$}")).collect::<Vec<_>>();
        for (nameservers, searches, kept, warned) in [
            (servers(3), named(32, 60), (3, 32), 0),
            (servers(4), named(1, 5), (3, 1), 1),
            (servers(1), named(33, 5), (1, 32), 1),
            (servers(1), [named(1, 253), named(1, 254)].concat(), (1, 1), 1),
            // 8 × 253, with blanks between them, are 2,031 characters.
            (servers(5), named(9, 253), (3, 8), 2),
        ] {
            let config = json!({"nameservers": nameservers, "searches": searches});
            let found = of(&pod(&json!({"dnsPolicy": "None", "dnsConfig": config})), None, "").unwrap();
            let of_text = parse(&found.text);
            assert_eq!((of_text.servers.len(), of_text.searches.len()), kept);
            assert_eq!(found.warnings.len(), warned, "{:?}", found.warnings);
        }
    }
}
