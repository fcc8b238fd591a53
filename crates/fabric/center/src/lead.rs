//! Which of several centers on one store does what only one may do: whoever holds a Lease, `selvedge-center` in `kube-system` of `root`.
//!
//! Nobody trusts another's clock. The holder writes the Lease again every few seconds; who has seen it unchanged for long enough takes it. A
//! holder that could not write it for a while stops leading before anybody may have taken it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use server::Server;
use server::internal::Internal;

const NAME: &str = "selvedge-center";
const NAMESPACE: &str = "kube-system";
const RENEW: Duration = Duration::from_secs(2);
/// One that did not change for so long is up.
const LONG: Duration = Duration::from_secs(12);
/// Who could not write it for so long does not lead any more.
const GIVE_UP: Duration = Duration::from_secs(8);

#[derive(Default)]
pub struct Lead {
    /// Of a center that is alone there is nothing to ask.
    shared: bool,
    /// When the Lease was last written as one's own.
    renewed: Mutex<Option<Instant>>,
}

/// What a Lease says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Said {
    holder: String,
    renewed: String,
    transitions: i64,
}

/// What to do about it.
#[derive(Debug, PartialEq, Eq)]
enum Act {
    Make,
    /// It is free, or up: to be taken, if it still says this.
    Take(Said),
    Renew,
    Wait,
}

/// Follows the Lease without I/O.
struct Candidate {
    me: String,
    seen: Option<(Said, Instant)>,
}

impl Candidate {
    fn look(&mut self, lease: Option<Said>, now: Instant) -> Act {
        let Some(lease) = lease else {
            self.seen = None;
            return Act::Make;
        };
        if lease.holder == self.me {
            return Act::Renew;
        }
        let since = match &self.seen {
            Some((said, since)) if *said == lease => *since,
            _ => now,
        };
        self.seen = Some((lease.clone(), since));
        let up = lease.holder.is_empty() || now.duration_since(since) >= LONG;
        if up { Act::Take(lease) } else { Act::Wait }
    }
}

impl Said {
    fn read(lease: &Value) -> Self {
        let text = |field: &str| lease["spec"][field].as_str().unwrap_or_default().to_owned();
        let transitions = lease["spec"]["leaseTransitions"].as_i64().unwrap_or_default();
        Self { holder: text("holderIdentity"), renewed: text("renewTime"), transitions }
    }
}

impl Lead {
    pub fn new(shared: bool) -> Self {
        Self { shared, renewed: Mutex::default() }
    }

    /// Whether this center does what only one may do, at this moment.
    pub fn is_here(&self) -> bool {
        !self.shared || self.renewed().is_some_and(|at| at.elapsed() < GIVE_UP)
    }

    fn renewed(&self) -> Option<Instant> {
        *self.renewed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, renewed: Option<Instant>) {
        *self.renewed.lock().unwrap_or_else(PoisonError::into_inner) = renewed;
    }

    /// Tries to lead until the server stops; then others need not wait.
    pub async fn run(&self, server: Arc<Server>, me: String) {
        let mut candidate = Candidate { me, seen: None };
        let hand = Internal::new(&server, "root", NAME);
        let mut shutdown = server.shutdown.clone();
        while !*shutdown.borrow() {
            let began = Instant::now();
            match tokio::time::timeout(RENEW * 2, attempt(&hand, &mut candidate)).await {
                Ok(Ok(true)) => {
                    if self.renewed().is_none() {
                        tracing::info!("this center leads: it drives rollouts and keeps accounts");
                    }
                    self.set(Some(began));
                }
                Ok(Ok(false)) => self.set(None),
                // Nobody knows: what was so stays so for a while.
                Ok(Err(error)) => {
                    tracing::warn!(error = error.message, "the Lease of the leading center could not be written")
                }
                Err(_) => tracing::warn!("the store is slow to take the Lease of the leading center"),
            }
            tokio::select! {
                () = tokio::time::sleep(RENEW) => {}
                _ = shutdown.wait_for(|down| *down) => {}
            }
        }
        if self.is_here() {
            self.set(None);
            let me = candidate.me.clone();
            let free = |lease: &mut Value| {
                if lease["spec"]["holderIdentity"] == *me {
                    lease["spec"]["holderIdentity"] = "".into();
                }
            };
            if let Ok(kind) = hand.kind("coordination.k8s.io", "v1", "leases") {
                let _ = tokio::time::timeout(RENEW, hand.change(&kind, NAMESPACE, NAME, "", free)).await;
            }
        }
    }
}

/// Whether the Lease is this center's after it.
async fn attempt(hand: &Internal, candidate: &mut Candidate) -> schema::status::Result<bool> {
    let kind = hand.kind("coordination.k8s.io", "v1", "leases")?;
    let lease = hand.get(&kind, NAMESPACE, NAME).map(|object| Said::read(&object.value()));
    let act = candidate.look(lease, Instant::now());
    let (me, now) = (candidate.me.clone(), clock::precise());
    let seconds = LONG.as_secs();
    match act {
        Act::Wait => Ok(false),
        Act::Make => {
            let spec = json!({"holderIdentity": me, "acquireTime": now, "renewTime": now, "leaseDurationSeconds": seconds,
                "leaseTransitions": 0});
            hand.ensure(&kind, NAMESPACE, json!({"metadata": {"name": NAME, "namespace": NAMESPACE}, "spec": spec}))
                .await?;
            // Somebody else may have been faster.
            Ok(hand.get(&kind, NAMESPACE, NAME).is_some_and(|object| Said::read(&object.value()).holder == me))
        }
        Act::Renew | Act::Take(_) => {
            let edit = |lease: &mut Value| {
                let said = Said::read(lease);
                let spec = &mut lease["spec"];
                match &act {
                    Act::Take(free) if *free == said => {
                        spec["holderIdentity"] = me.clone().into();
                        spec["acquireTime"] = now.clone().into();
                        spec["leaseTransitions"] = (said.transitions + 1).into();
                    }
                    Act::Renew if said.holder == me => {}
                    _ => return,
                }
                spec["renewTime"] = now.clone().into();
                spec["leaseDurationSeconds"] = seconds.into();
            };
            let object = hand.change(&kind, NAMESPACE, NAME, "", edit).await?;
            Ok(object.is_some_and(|object| Said::read(&object.value()).holder == me))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_taken_only_when_nobody_writes_it_any_more() {
        let said =
            |holder: &str, renewed: &str| Said { holder: holder.into(), renewed: renewed.into(), transitions: 0 };
        let mut me = Candidate { me: "me".into(), seen: None };
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let long = LONG.as_secs();
        assert_eq!(me.look(None, at(0)), Act::Make);
        assert_eq!(me.look(Some(said("other", "1")), at(1)), Act::Wait);
        assert_eq!(me.look(Some(said("other", "1")), at(long)), Act::Wait);
        assert_eq!(me.look(Some(said("other", "2")), at(long + 1)), Act::Wait, "it lives");
        assert_eq!(me.look(Some(said("other", "2")), at(2 * long)), Act::Wait);
        assert_eq!(me.look(Some(said("other", "2")), at(2 * long + 1)), Act::Take(said("other", "2")));
        assert_eq!(me.look(Some(said("me", "3")), at(2 * long + 2)), Act::Renew);
        assert_eq!(
            me.look(Some(said("", "3")), at(2 * long + 3)),
            Act::Take(said("", "3")),
            "given up, so nobody waits"
        );
        assert!(GIVE_UP < LONG, "who cannot write stops before others begin");
    }

    #[test]
    fn who_is_alone_leads() {
        assert!(Lead::new(false).is_here());
        let shared = Lead::new(true);
        assert!(!shared.is_here());
        shared.set(Some(Instant::now()));
        assert!(shared.is_here());
        shared.set(Instant::now().checked_sub(GIVE_UP));
        assert!(!shared.is_here());
    }
}
