//! TokenRequest: a short-lived token for a ServiceAccount.

use identity::token_request;
use identity::token_request::Objects;
use schema::status::Result;
use serde_json::Value;

use crate::{admission, call::Call, reply::Reply, verbs::write};

pub async fn request(call: &Call) -> Result<Reply> {
    call.check_write_options("CreateOptions")?;
    let mut request = write::receive_kind(call, "authentication.k8s.io/v1", "TokenRequest")?;
    rules::defaults::apply("authentication.k8s.io", "v1", "TokenRequest", &mut request);
    // A namespace that is ending gives out nothing new, whether or not the account is still there.
    let account = serde_json::json!({"metadata": {"name": call.target.name}});
    admission::namespace(call, &account)?;
    admission::restrict_token(call, &request)?;
    admission::review(call, admission::Operation::Create, &mut request, None).await?;
    shorten(call, &mut request);
    let (namespace, name) = (&call.target.namespace, &call.target.name);
    let tokens = call.server.identity.tokens();
    let objects = InWorkspace(call);
    let value = token_request::answer(&request, &call.cluster, namespace, name, &objects, tokens, clock::unix())?;
    Ok(Reply::Value { code: 201, value })
}

/// No token outlives the keys: what is asked for beyond that is given less, and told so.
fn shorten(call: &Call, request: &mut Value) {
    let most = call.server.identity.lifetimes().token;
    let asked = request["spec"]["expirationSeconds"].as_i64().unwrap_or_default();
    if asked > most && asked <= token_request::LONGEST {
        call.warn(format!("requested expiration of {asked} seconds shortened to {most} seconds"));
        request["spec"]["expirationSeconds"] = most.into();
    }
}

struct InWorkspace<'a>(&'a Call);

impl Objects for InWorkspace<'_> {
    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let key = format!("{}/{namespace}/{name}", self.0.cluster);
        Some(self.0.server.cache.get(&format!("core/{resource}"), &key)?.value())
    }
}
