//! From what a connection and a request bring along to the user behind them.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use aws_lc_rs::digest::{SHA256, digest};
use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderMap, header::AUTHORIZATION};
use rustls::{
    pki_types::{CertificateDer, UnixTime},
    server::danger::ClientCertVerifier,
};
use schema::status::{Result, Status};
use serde_json::Value;

pub use super::user::{ANONYMOUS, AUTHENTICATED, HOME, MASTERS, UNAUTHENTICATED, User};
use super::{
    bootstrap_token, pki,
    proxy::{self, Proxies},
    token::{Claims, LEEWAY, ROOT, Reference, Refused, Tokens, Verified},
    token_file::FixedTokens,
};

/// The other end of a connection: the certificates that it showed, if any. That it has the key is known from TLS; whether
/// anybody vouches for them is looked at here.
#[derive(Default)]
pub struct Peer {
    chain: Vec<CertificateDer<'static>>,
    seen: OnceLock<Seen>,
    /// It is believed what its headers say of users.
    vouches: bool,
    /// A request of it had credentials that are valid.
    proved: AtomicBool,
}

/// What the authorities say of a certificate.
#[derive(Default)]
struct Seen {
    /// By the authority of clients.
    user: Option<User>,
    /// By the authority of proxies: the common name.
    proxy: Option<String>,
    ends: i64,
}

impl Peer {
    pub fn new(chain: Vec<CertificateDer<'static>>) -> Self {
        Self { chain, ..Self::default() }
    }

    /// Somebody who has authenticated users and says in headers who they are, as a proxy does. Who that is, the caller knows: for
    /// nothing else on the connection is looked at.
    pub fn vouching() -> Self {
        Self { vouches: true, ..Self::default() }
    }

    /// A request of this peer came from this user.
    pub fn sent(&self, user: &User) {
        if !self.has_proved() && user.is_in(AUTHENTICATED) {
            self.proved.store(true, Relaxed);
        }
    }

    pub fn has_proved(&self) -> bool {
        self.proved.load(Relaxed)
    }

    /// Looked at once for each connection; only its end comes later.
    fn seen(&self, authenticator: &Authenticator, now: i64) -> &Seen {
        self.seen.get_or_init(|| {
            let Some((certificate, rest)) = self.chain.split_first() else { return Seen::default() };
            let at = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now).unwrap_or_default()));
            let vouches = |verifier: &Arc<dyn ClientCertVerifier>| {
                let verified = verifier.verify_client_cert(certificate, rest, at);
                verified.inspect_err(|why| tracing::debug!(%why, "nobody vouches for a client's certificate")).is_ok()
            };
            let name = || certificate_user(certificate).map(|user| user.name);
            let by_clients = authenticator.clients.as_ref().is_some_and(vouches);
            let by_proxies = authenticator.proxies.as_ref().is_some_and(|proxies| vouches(proxies.verifier()));
            Seen {
                user: by_clients.then(|| certificate_user(certificate)).flatten(),
                proxy: by_proxies.then(name).flatten(),
                ends: pki::ends_der(certificate).unwrap_or_default(),
            }
        })
    }
}

/// The common name is the user, organizations are the groups; the uid has a place of its own.
pub(super) fn certificate_user(certificate: &CertificateDer<'_>) -> Option<User> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let subject = parsed.subject();
    let name = subject.iter_common_name().last()?.as_str().ok()?;
    if name.is_empty() {
        return None;
    }
    let groups = subject.iter_organization().filter_map(|o| o.as_str().ok()).map(str::to_owned).collect();
    let print: String = digest(&SHA256, certificate).as_ref().iter().map(|b| format!("{b:02x}")).collect();
    let uid = subject
        .iter()
        .flat_map(|rdn| rdn.iter())
        .find(|part| part.attr_type().iter().is_some_and(|numbers| numbers.eq(super::signing::UID)));
    let uid = uid.and_then(|part| part.as_str().ok()).unwrap_or_default().to_owned();
    let mut user = User { name: name.to_owned(), uid, groups, ..User::default() };
    user.extra.insert(CREDENTIAL.to_owned(), vec![format!("X509SHA256={print}")]);
    user.join(AUTHENTICATED);
    Some(user)
}

const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

/// What a token can be bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    ServiceAccount,
    Pod,
    Secret,
    Node,
}

/// An object that exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub uid: String,
    /// When it was or will be deleted, in seconds since 1970.
    pub deletion: Option<i64>,
}

/// How the objects that tokens name are found. The namespace of a node is empty.
pub trait Lookup {
    fn find(&self, cluster: &str, kind: Bound, namespace: &str, name: &str) -> Option<Found>;

    /// A Secret with its content.
    fn secret(&self, _cluster: &str, _namespace: &str, _name: &str) -> Option<Value> {
        None
    }
}

/// Knows who requests come from.
pub struct Authenticator {
    tokens: Tokens,
    admin_token: String,
    pub(super) fixed: FixedTokens,
    pub(super) clients: Option<Arc<dyn ClientCertVerifier>>,
    pub(super) proxies: Option<Proxies>,
    pub(super) anonymous: bool,
}

impl Authenticator {
    pub fn new(tokens: Tokens, admin_token: String) -> Self {
        Self { tokens, admin_token, fixed: FixedTokens::default(), clients: None, proxies: None, anonymous: true }
    }

    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// The proxies that are believed, if any.
    pub fn proxies(&self) -> Option<&Proxies> {
        self.proxies.as_ref()
    }

    /// The user behind a request, before any impersonation: by a proxy's word, a certificate, or a token, in this order. What
    /// is shown and not good is refused, even where nobody would have asked for it.
    pub fn authenticate(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        cluster: &str,
        lookup: &dyn Lookup,
        now: i64,
    ) -> Result<User> {
        if peer.vouches {
            return proxy::user(headers).ok_or_else(Status::unauthorized);
        }
        let seen = peer.seen(self, now);
        let valid = seen.ends > now;
        if let (Some(proxies), Some(name)) = (&self.proxies, &seen.proxy)
            && valid
            && proxies.knows(name)
            && let Some(user) = proxy::user(headers)
        {
            return Ok(user);
        }
        if let Some(user) = seen.user.as_ref().filter(|_| valid) {
            return Ok(user.clone());
        }
        match bearer(headers) {
            Some(token) => match self.token_user(token, cluster, self.tokens.audiences(), lookup, now) {
                Ok((user, _)) => Ok(user),
                Err(refused) => {
                    tracing::debug!(%refused, "refused a bearer token");
                    Err(Status::unauthorized())
                }
            },
            None if peer.chain.is_empty() && self.anonymous => Ok(User::anonymous()),
            None => Err(Status::unauthorized()),
        }
    }

    /// Who a token stands for, and for which of the audiences it is good. `cluster` is where it is shown.
    pub fn token_user(
        &self,
        token: &str,
        cluster: &str,
        audiences: &[String],
        lookup: &dyn Lookup,
        now: i64,
    ) -> Result<(User, Vec<String>), Refused> {
        if let Some(user) = self.fixed_user(token) {
            return self.for_this_server(user, audiences);
        }
        match self.tokens.verify(token, audiences, now) {
            Ok(Verified::Bound(claims)) => {
                still_there(&claims, lookup, now)?;
                let good_for = claims.audiences.iter().filter(|a| audiences.contains(a)).cloned().collect();
                Ok((account_user(&claims), good_for))
            }
            Ok(Verified::Legacy(claims)) => {
                still_there(&claims, lookup, now)?;
                is_stored(token, &claims, lookup)?;
                self.for_this_server(account_user(&claims), audiences)
            }
            Err(Refused::Foreign) => {
                let (id, given) = bootstrap_token::parse(token).ok_or(Refused::Foreign)?;
                let name = format!("{}{id}", bootstrap_token::PREFIX);
                let secret = lookup.secret(cluster, bootstrap_token::HOME, &name).ok_or(Refused::Foreign)?;
                let mut user = bootstrap_token::user(&secret, id, given, now).ok_or(Refused::Foreign)?;
                // The administrators of a workspace make such tokens there, so they count there only.
                if cluster != ROOT {
                    user.confine(cluster);
                }
                self.for_this_server(user, audiences)
            }
            Err(refused) => Err(refused),
        }
    }

    fn fixed_user(&self, token: &str) -> Option<User> {
        if aws_lc_rs::constant_time::verify_slices_are_equal(token.as_bytes(), self.admin_token.as_bytes()).is_ok() {
            let groups = vec![MASTERS.to_owned(), AUTHENTICATED.to_owned()];
            return Some(User { name: pki::ADMIN.to_owned(), groups, ..User::default() });
        }
        self.fixed.user(token).cloned()
    }

    /// Tokens that name no audience are good for this server and nobody else.
    fn for_this_server(&self, user: User, asked: &[String]) -> Result<(User, Vec<String>), Refused> {
        let own = self.tokens.audiences();
        let good_for: Vec<String> = asked.iter().filter(|a| own.contains(a)).cloned().collect();
        if good_for.is_empty() {
            return Err(Refused::Foreign);
        }
        Ok((user, good_for))
    }
}

/// The token of an `Authorization: Bearer` header. Other schemes are not known and say nothing, and neither does a second
/// space before the token: that is how upstream reads it.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut parts = headers.get(AUTHORIZATION)?.to_str().ok()?.trim().splitn(3, ' ');
    let is_bearer = parts.next()?.eq_ignore_ascii_case("bearer");
    parts.next().filter(|token| is_bearer && !token.is_empty())
}

/// A token without an end is good only while it is what its Secret holds.
fn is_stored(token: &str, claims: &Claims, lookup: &dyn Lookup) -> Result<(), Refused> {
    let name = claims.secret.as_ref().map(|secret| secret.name.as_str()).unwrap_or_default();
    let secret = lookup.secret(&claims.cluster, &claims.namespace, name).ok_or(Refused::Invalidated)?;
    let stored = STANDARD.decode(secret["data"]["token"].as_str().unwrap_or_default()).unwrap_or_default();
    let same = aws_lc_rs::constant_time::verify_slices_are_equal(&stored, token.as_bytes());
    same.map_err(|_| Refused::Invalidated)
}

/// A token dies with its account, and with what it is bound to.
fn still_there(claims: &Claims, lookup: &dyn Lookup, now: i64) -> Result<(), Refused> {
    let check = |kind: Bound, namespace: &str, reference: &Reference| {
        let found = lookup.find(&claims.cluster, kind, namespace, &reference.name).ok_or(Refused::Invalidated)?;
        let gone = found.deletion.is_some_and(|at| at < now - LEEWAY);
        // Tokens from before there were bound ones name their Secret without its uid.
        let same = found.uid == reference.uid || reference.uid.is_empty() && kind == Bound::Secret;
        if gone || !same { Err(Refused::Invalidated) } else { Ok(()) }
    };
    check(Bound::ServiceAccount, &claims.namespace, &claims.account)?;
    if let Some(secret) = &claims.secret {
        check(Bound::Secret, &claims.namespace, secret)?;
    }
    match (&claims.pod, &claims.node) {
        (Some(pod), _) => check(Bound::Pod, &claims.namespace, pod),
        (None, Some(node)) => check(Bound::Node, "", node),
        (None, None) => Ok(()),
    }
}

/// The groups of every ServiceAccount of a namespace.
pub(super) fn account_groups(namespace: &str) -> Vec<String> {
    vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
}

fn account_user(claims: &Claims) -> User {
    let mut user = User {
        name: claims.user_name(),
        uid: claims.account.uid.clone(),
        groups: account_groups(&claims.namespace),
        ..User::default()
    };
    user.join(AUTHENTICATED);
    let mut extra = |key: &str, value: &str| {
        if !value.is_empty() {
            user.extra.insert(format!("authentication.{key}"), vec![value.to_owned()]);
        }
    };
    if !claims.id.is_empty() {
        extra("kubernetes.io/credential-id", &format!("JTI={}", claims.id));
    }
    if let Some(pod) = &claims.pod {
        extra("kubernetes.io/pod-name", &pod.name);
        extra("kubernetes.io/pod-uid", &pod.uid);
    }
    if let Some(node) = &claims.node {
        extra("kubernetes.io/node-name", &node.name);
        extra("kubernetes.io/node-uid", &node.uid);
    }
    // An account is somebody only in its own workspace; authorisation elsewhere has to know.
    if claims.cluster != "root" {
        extra("kcp.io/cluster-name", &claims.cluster);
    }
    user
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::token::tests::{claims, tokens};

    /// Finds every object under the uid it was given.
    struct Objects(Vec<(Bound, &'static str, Found)>);

    impl Lookup for Objects {
        fn find(&self, cluster: &str, kind: Bound, _: &str, name: &str) -> Option<Found> {
            assert_eq!(cluster, "root");
            self.0.iter().find(|(k, n, _)| *k == kind && *n == name).map(|(_, _, found)| found.clone())
        }
    }

    fn found(uid: &str) -> Found {
        Found { uid: uid.to_owned(), deletion: None }
    }

    fn with_header(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())])
    }

    #[test]
    fn users_behind_requests() {
        let dir = tempfile::tempdir().unwrap();
        let authenticator = Authenticator::new(tokens(dir.path()), "admin-token".to_owned());
        let mut pod_claims = claims();
        pod_claims.pod = Some(Reference { name: "p".to_owned(), uid: "u2".to_owned() });
        let plain = authenticator.tokens().issue(&claims()).unwrap();
        let bound = authenticator.tokens().issue(&pod_claims).unwrap();
        let all = Objects(vec![(Bound::ServiceAccount, "robot", found("u1")), (Bound::Pod, "p", found("u2"))]);
        let user = |header: &str, objects: &Objects| {
            authenticator.authenticate(&Peer::default(), &with_header(header), "root", objects, 1000)
        };

        assert_eq!(
            authenticator.authenticate(&Peer::default(), &HeaderMap::new(), "root", &all, 1000),
            Ok(User::anonymous())
        );
        assert_eq!(user("Basic YTpi", &all), Ok(User::anonymous()));
        assert_eq!(user("Bearer ", &all), Ok(User::anonymous()));
        assert!(user("bearer admin-token", &all).unwrap().is_in(MASTERS));
        assert_eq!(user("Bearer not-a-token", &all).unwrap_err().code, 401);

        let robot = user(&format!("Bearer {plain}"), &all).unwrap();
        assert_eq!(
            robot.info(),
            json!({"username": "system:serviceaccount:ns:robot", "uid": "u1",
                "groups": ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"],
                "extra": {"authentication.kubernetes.io/credential-id": ["JTI=j1"]}})
        );
        let in_pod = user(&format!("Bearer {bound}"), &all).unwrap();
        assert_eq!(in_pod.extra["authentication.kubernetes.io/pod-uid"], ["u2"]);

        let gone = Objects(vec![]);
        assert_eq!(user(&format!("Bearer {plain}"), &gone).unwrap_err().code, 401);
        let another = Objects(vec![(Bound::ServiceAccount, "robot", found("u9"))]);
        assert_eq!(user(&format!("Bearer {plain}"), &another).unwrap_err().code, 401);
        let without_pod = Objects(vec![(Bound::ServiceAccount, "robot", found("u1"))]);
        assert!(user(&format!("Bearer {plain}"), &without_pod).is_ok());
        assert!(user(&format!("Bearer {bound}"), &without_pod).is_err());
        let going = |at| {
            let deleted = Found { deletion: Some(at), ..found("u1") };
            user(&format!("Bearer {plain}"), &Objects(vec![(Bound::ServiceAccount, "robot", deleted)]))
        };
        assert!(going(1000 - LEEWAY).is_ok());
        assert!(going(1000 - LEEWAY - 1).is_err());
    }
}
