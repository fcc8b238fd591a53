//! Tokens of ServiceAccounts for one pod, each renewed well before it ends.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::{Pod, ServiceAccount},
};
use kube::{Api, Client, api::PostParams};

use crate::{
    spec,
    volumes::{TokenAsk, Tokens},
};

/// However long it lasts, a token is renewed once a day.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

#[derive(Default)]
pub struct Held {
    /// With when to renew it.
    tokens: BTreeMap<TokenAsk, (String, Duration)>,
}

/// The tokens that the volumes of a pod are made of.
fn asked(pod: &Pod) -> impl Iterator<Item = TokenAsk> {
    let volumes = pod.spec.iter().filter_map(|spec| spec.volumes.as_ref()).flatten();
    let sources = volumes.filter_map(|volume| volume.projected.as_ref()?.sources.as_ref()).flatten();
    sources.filter_map(|source| source.service_account_token.as_ref()).map(TokenAsk::from)
}

/// When a token that was got now is renewed: well before it ends, so that there is time if that does not work at once.
fn renew_at(now: Duration, lasts: Duration) -> Duration {
    now + (lasts * 4 / 5).min(LONGEST)
}

impl Held {
    /// When the first of them has to be renewed.
    pub fn due(&self) -> Option<Duration> {
        self.tokens.values().map(|(_, due)| *due).min()
    }

    /// All that the pod needs, with new ones for those that are due.
    pub async fn get(&mut self, client: &Client, pod: &Pod, now: Duration) -> Result<Tokens, String> {
        let mut found = Tokens::new();
        for ask in asked(pod) {
            let known = self.tokens.get(&ask);
            if let Some((text, _)) = known.filter(|(_, due)| now < *due) {
                found.insert(ask, text.clone());
                continue;
            }
            match request(client, pod, &ask).await {
                Ok((text, lasts)) => {
                    self.tokens.insert(ask.clone(), (text.clone(), renew_at(now, lasts)));
                    found.insert(ask, text);
                }
                Err(error) => match self.tokens.get_mut(&ask) {
                    // The old one is good for a while: tried again soon.
                    Some((text, due)) => {
                        tracing::warn!(%error, pod = spec::name(pod), "a token could not be renewed");
                        *due = now + Duration::from_secs(30);
                        found.insert(ask, text.clone());
                    }
                    None => return Err(error),
                },
            }
        }
        Ok(found)
    }
}

async fn request(client: &Client, pod: &Pod, ask: &TokenAsk) -> Result<(String, Duration), String> {
    let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref());
    let account = account.filter(|name| !name.is_empty()).unwrap_or("default");
    let wanted = TokenRequestSpec {
        audiences: (!ask.audience.is_empty()).then(|| vec![ask.audience.clone()]),
        expiration_seconds: Some(ask.seconds),
        bound_object_ref: Some(BoundObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
        }),
    };
    let request = TokenRequest { spec: Some(wanted), ..TokenRequest::default() };
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), spec::namespace(pod));
    let made = accounts.create_token_request(account, &PostParams::default(), &request).await;
    let made = made.map_err(|error| format!("failed to fetch token: {error}"))?;
    let token = made.status.and_then(|status| status.token).ok_or("failed to fetch token: the answer has no token")?;
    let seconds = made.spec.and_then(|spec| spec.expiration_seconds).unwrap_or(ask.seconds).max(60).unsigned_abs();
    Ok((token, Duration::from_secs(seconds)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tokens_are_renewed_before_they_end() {
        let at = Duration::from_secs;
        assert_eq!(renew_at(at(100), at(3600)), at(100 + 2880));
        assert_eq!(renew_at(at(0), at(10 * 24 * 3600)), at(24 * 3600));
    }

    #[test]
    fn what_a_pod_asks_for() {
        let token = |seconds: i64| json!({"serviceAccountToken": {"audience": "api", "expirationSeconds": seconds, "path": "token"}});
        let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [], "volumes": [
            {"name": "a", "projected": {"sources": [token(3607), {"configMap": {"name": "c"}}]}},
            {"name": "b", "emptyDir": {}},
            {"name": "c", "projected": {"sources": [token(7200)]}},
        ]}}))
        .unwrap();
        let seconds: Vec<i64> = asked(&pod).map(|ask| ask.seconds).collect();
        assert_eq!(seconds, [3607, 7200]);
        // The first to be renewed says when to look again.
        let mut held = Held::default();
        for (ask, due) in asked(&pod).zip([50, 20]) {
            held.tokens.insert(ask, (String::new(), Duration::from_secs(due)));
        }
        assert_eq!(held.due(), Some(Duration::from_secs(20)));
    }
}
