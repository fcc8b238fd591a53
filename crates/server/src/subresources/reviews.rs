//! Reviews: who am I, may I, may they, is this token good.

use std::sync::PoisonError;

use api::status::{Result, Status};

use crate::{admission, call::Call, clock, identity::reviews, reply::Reply, verbs::write};

pub async fn review(call: &Call) -> Result<Reply> {
    call.check_write_options("CreateOptions")?;
    let received = write::receive(call)?;
    let mut review = write::admit_as(call, received)?;
    admission::review(call, admission::Operation::Create, &mut review, None).await?;
    let server = &call.server;
    let authorizer = server.authorization.in_workspace(&call.cluster);
    let value = match call.kind.name() {
        "SelfSubjectReview" => reviews::self_subject_review(&call.user, clock::unix()),
        "TokenReview" => {
            let (authenticator, now) = (server.identity.authenticator(), clock::unix());
            let value = reviews::token_review(&review, authenticator, &call.cluster, &*server.cache, now)?;
            crate::workspaces::review_from(value, &call.cluster)
        }
        "SelfSubjectAccessReview" => reviews::self_subject_access_review(&review, &call.user, &authorizer)?,
        "SubjectAccessReview" => reviews::subject_access_review(&review, &authorizer)?,
        "LocalSubjectAccessReview" => {
            reviews::local_subject_access_review(&review, &call.target.namespace, &authorizer)?
        }
        "SelfSubjectRulesReview" => {
            let roles = authorizer.roles.read().unwrap_or_else(PoisonError::into_inner);
            reviews::self_subject_rules_review(&review, &call.user, &roles)?
        }
        _ => return Err(Status::no_such_path()),
    };
    Ok(Reply::Value { code: 201, value })
}
