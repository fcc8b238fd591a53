//! Get one object.

use std::time::Duration;

use schema::status::Result;
use store::Revision;

use super::options;
use crate::{call::Call, reply::Reply};

/// How long a read waits for a version that is not there yet, as upstream does.
const PATIENCE: Duration = Duration::from_secs(3);

pub async fn get(call: &Call) -> Result<Reply> {
    options::check_export(&call.query)?;
    reach(call, options::get(&call.query)?).await?;
    call.get().map(Reply::ok).ok_or_else(|| call.not_found())
}

/// Waits until this server can show what the client has already seen elsewhere.
pub async fn reach(call: &Call, revision: Revision) -> Result<()> {
    let cache = &call.server.cache;
    call.server.catch_up().await?;
    if cache.revision() < revision && tokio::time::timeout(PATIENCE, cache.wait_for(revision)).await.is_err() {
        return Err(options::too_large(revision, cache.revision()));
    }
    Ok(())
}
