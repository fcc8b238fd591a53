//! Reviews: who am I, may I, may they, is this token good.

use std::sync::PoisonError;

use identity::authenticate::HOME;
use identity::{Attributes, Authorizer, Decision, User, reviews};
use schema::status::{Result, Status};

use crate::{Server, admission, authorize::Workspace, call::Call, reply::Reply, verbs::write, workspaces};

pub async fn review(call: &Call) -> Result<Reply> {
    call.check_write_options("CreateOptions")?;
    let received = write::receive(call)?;
    let mut review = write::admit_as(call, received)?;
    admission::review(call, admission::Operation::Create, &mut review, None).await?;
    let server = &call.server;
    let authorizer = server.authorization.in_workspace(&call.cluster);
    let guest = |authorizer| Guest { server, cluster: &call.cluster, authorizer };
    let value = match call.kind.name() {
        "SelfSubjectReview" => reviews::self_subject_review(&call.user, clock::unix()),
        "TokenReview" => {
            let (authenticator, now) = (server.identity.authenticator(), clock::unix());
            let value = reviews::token_review(&review, authenticator, &call.cluster, &*server.cache, now)?;
            workspaces::review_from(value, &call.cluster)
        }
        "SelfSubjectAccessReview" => reviews::self_subject_access_review(&review, &call.user, &authorizer)?,
        "SubjectAccessReview" => reviews::subject_access_review(&review, &guest(&authorizer))?,
        "LocalSubjectAccessReview" => {
            reviews::local_subject_access_review(&review, &call.target.namespace, &guest(&authorizer))?
        }
        "SelfSubjectRulesReview" => {
            let roles = authorizer.roles.read().unwrap_or_else(PoisonError::into_inner);
            reviews::self_subject_rules_review(&review, &call.user, &roles)?
        }
        _ => return Err(Status::no_such_path()),
    };
    Ok(Reply::Value { code: 201, value })
}

/// Decides about somebody who is not here yet: who may not enter, may nothing.
struct Guest<'a> {
    server: &'a Server,
    cluster: &'a str,
    authorizer: &'a Workspace,
}

impl Authorizer for Guest<'_> {
    fn authorize(&self, user: &User, attributes: &Attributes) -> Decision {
        if !self.server.could_enter(user, self.cluster) {
            let reason = format!("{:?} may not enter the workspace {:?}", user.name, self.cluster);
            return Decision { reason, ..Decision::default() };
        }
        match user.extra.contains_key(HOME) {
            true => self.authorizer.authorize(&workspaces::seen_from(user, self.cluster), attributes),
            false => self.authorizer.authorize(user, attributes),
        }
    }
}
