//! Webhooks that change or refuse requests: compiled from their configurations, asked in upstream's order.

mod mutate;
mod review;
mod validate;

use std::{sync::Arc, time::Duration};

use clock::rarely::Rarely;
use schema::status::{Result, Status};
use serde_json::Value;

use super::{
    expressions::{Conditions, Scope, unmatched},
    matching::Constraints,
    question::Question,
};
use crate::{kinds::Kind, webhooks::Endpoint};

pub use mutate::{Rounds, mutate};
pub use validate::validate;

/// An answer may hold a patch as large as an object.
const ANSWER: usize = 8 << 20;

pub struct Hook {
    name: String,
    endpoint: Endpoint,
    constraints: Constraints,
    conditions: Conditions,
    /// `failurePolicy: Ignore`.
    fails_open: bool,
    timeout: Duration,
    /// `sideEffects` allow a call that shall have none.
    dry_run: bool,
    /// `reinvocationPolicy: IfNeeded`.
    again: bool,
    review_version: Option<&'static str>,
    passed_over: Rarely,
}

impl Hook {
    /// All webhooks of a configuration.
    pub fn all(cluster: &str, configuration: &Value) -> Vec<Arc<Self>> {
        let hooks = configuration["webhooks"].as_array().into_iter().flatten();
        hooks.map(|hook| Arc::new(Self::read(cluster, hook))).collect()
    }

    fn read(cluster: &str, hook: &Value) -> Self {
        let spoken = |version: &Value| match version.as_str() {
            Some("v1") => Some("v1"),
            Some("v1beta1") => Some("v1beta1"),
            _ => None,
        };
        Self {
            name: hook["name"].as_str().unwrap_or_default().to_owned(),
            endpoint: Endpoint::new(cluster, &hook["clientConfig"]),
            constraints: Constraints::read(hook, "rules"),
            conditions: Conditions::read(&hook["matchConditions"]),
            fails_open: hook["failurePolicy"] == "Ignore",
            timeout: Duration::from_secs(hook["timeoutSeconds"].as_u64().unwrap_or(10).clamp(1, 30)),
            dry_run: matches!(hook["sideEffects"].as_str(), Some("None" | "NoneOnDryRun")),
            again: hook["reinvocationPolicy"] == "IfNeeded",
            review_version: hook["admissionReviewVersions"].as_array().into_iter().flatten().find_map(spoken),
            passed_over: Rarely::new(),
        }
    }

    /// Whether this webhook is to be asked, and in which form of the resource.
    async fn concerns(&self, question: &Question<'_>) -> Result<Option<Form>> {
        let Some(kind) = self.constraints.find(question)? else { return Ok(None) };
        let form = Form::of(question, kind).await?;
        if self.conditions.is_empty() {
            return Ok(Some(form));
        }
        let scope = Scope::new(question, &form.kind, form.object.as_ref(), form.old.as_ref());
        match self.conditions.hold(&scope, &scope.host) {
            Ok(true) => Ok(Some(form)),
            Ok(false) => Ok(None),
            Err(_) if self.fails_open => Ok(None),
            Err(why) => Err(unmatched(question, &why)),
        }
    }

    /// Asks, and holds the answer against the rules. `Err` in the outer result refuses the request.
    async fn ask(&self, question: &Question<'_>, form: &Form, mutating: bool) -> Result<Option<review::Answer>> {
        if question.is_dry_run() && !self.dry_run {
            let what = format!("admission webhook {:?} does not support dry run", self.name);
            return Err(Status::bad_request(what));
        }
        match self.exchange(question, form, mutating).await {
            Ok(answer) => {
                for warning in &answer.warnings {
                    question.call.warn(warning.clone());
                }
                for (key, value) in &answer.annotations {
                    question.call.notes.annotate(format!("{}/{key}", self.name), value.clone());
                }
                match answer.refusal {
                    Some(status) => Err(status),
                    None => Ok(Some(answer)),
                }
            }
            Err(why) if self.fails_open => {
                if let Some(times) = self.passed_over.due() {
                    tracing::warn!(webhook = self.name, times, error = why, "a webhook failed and is passed over");
                }
                Ok(None)
            }
            Err(why) => Err(Status::internal(format!("failed calling webhook {:?}: {why}", self.name))),
        }
    }

    async fn exchange(&self, question: &Question<'_>, form: &Form, mutating: bool) -> Result<review::Answer, String> {
        let version =
            self.review_version.ok_or("webhook does not accept known AdmissionReview versions (v1, v1beta1)")?;
        let uid = uuid::Uuid::new_v4().to_string();
        let asked = review::question(&uid, version, question, form);
        let server = &question.call.server;
        let answer = self.endpoint.post(server, &asked, self.timeout, ANSWER).await;
        let answer = answer.map_err(|why| format!("failed to call webhook: {why}"))?;
        review::answer(&self.name, &uid, version, mutating, &answer)
            .map_err(|why| format!("received invalid webhook response: {why}"))
    }
}

/// The objects of a request in the form that one webhook is about.
struct Form {
    kind: Arc<Kind>,
    object: Option<Value>,
    old: Option<Value>,
}

impl Form {
    async fn of(question: &Question<'_>, kind: Arc<Kind>) -> Result<Self> {
        let own = &question.call.kind;
        let mut objects = [question.object.clone(), question.old.clone()];
        if kind.api_version != own.api_version {
            for object in objects.iter_mut() {
                if let Some(value) = object.take() {
                    *object = Some(question.convert(value, own, &kind).await?);
                }
            }
        }
        let [object, old] = objects;
        Ok(Self { kind, object, old })
    }
}
