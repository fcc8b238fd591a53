//! An edge that has joined: how it gets to its center, and how its certificate stays good.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use futures::future::BoxFuture;
use kinds::{EdgeId, JoinRequest};
use link::transport::{self, Code, Connection, Dial, Line, Proxy};
use tokio::sync::watch;

use super::{Error, ask_center, error::of_session, new_key, now, saved::Saved};
use crate::{Agent, Dialer};

/// The clock is looked at this often at least: it may have been set.
const LOOK: Duration = Duration::from_secs(60);

pub struct Member {
    state: RwLock<State>,
    data_dir: PathBuf,
    proxy: Proxy,
}

struct State {
    saved: Saved,
    dial: Dial,
}

impl Member {
    pub(super) fn new(saved: Saved, data_dir: &Path, proxy: Proxy) -> Result<Self, Error> {
        let damaged = |error: Error| Error::Damaged { path: super::saved::path(data_dir), why: error.to_string() };
        let dial = dial(&saved, proxy.clone()).map_err(damaged)?;
        Ok(Self { state: RwLock::new(State { saved, dial }), data_dir: data_dir.to_owned(), proxy })
    }

    pub fn edge(&self) -> EdgeId {
        self.saved().edge()
    }

    fn saved(&self) -> Saved {
        self.state.read().unwrap_or_else(PoisonError::into_inner).saved.clone()
    }

    /// Renews the certificate whenever four fifths of its time are over, through the link that there is, and then goes over to a
    /// connection with the new one. Until `stop`.
    pub async fn keep(self: Arc<Self>, agent: Arc<Agent>, mut stop: watch::Receiver<bool>) {
        let mut link = agent.link();
        let mut failures = 0u32;
        loop {
            let saved = self.saved();
            let left = saved.waits(now());
            // As often as makes sense for what is left of the certificate.
            let again = ((saved.ends - saved.since).max(0) as u64 / 50).clamp(1, 600) << failures.min(3);
            let wait = if failures > 0 { again } else { left };
            tokio::select! {
                () = tokio::time::sleep(Duration::from_secs(wait).min(LOOK)) => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            if self.saved().waits(now()) > 0 {
                continue;
            }
            let connection = tokio::select! {
                Ok(found) = link.wait_for(Option::is_some) => found.clone(),
                _ = stop.wait_for(|stop| *stop) => return,
            };
            let Some(connection) = connection else { continue };
            match self.renew(&connection).await {
                Ok(()) => {
                    failures = 0;
                    tracing::info!("the edge has a new certificate");
                    agent.renew_connection();
                }
                Err(error) => {
                    failures += 1;
                    tracing::warn!(%error, "the edge's certificate could not be renewed; trying again");
                }
            }
        }
    }

    async fn renew(&self, connection: &Connection) -> Result<(), Error> {
        let (key, request) = new_key()?;
        let asks = JoinRequest { request: Some(request), ..JoinRequest::default() };
        let reply = ask_center(connection, &asks).await?;
        let mut saved = self.saved();
        saved.take(reply, key, now())?;
        let dial = dial(&saved, self.proxy.clone())?;
        saved.write(&self.data_dir)?;
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = State { saved, dial };
        Ok(())
    }
}

fn dial(saved: &Saved, proxy: Proxy) -> Result<Dial, Error> {
    let roots = super::saved::certificates(&saved.certificate_authority)?;
    Ok(Dial::new(&saved.center, &roots, Some(saved.identity()?), proxy)?)
}

impl Dialer for Member {
    fn open(&self) -> BoxFuture<'static, Result<(Connection, Line), transport::Error>> {
        let dial = self.state.read().unwrap_or_else(PoisonError::into_inner).dial.clone();
        Box::pin(async move {
            let session = dial.session().await.map_err(|error| of_session(error, now()))?;
            Ok((Connection::to(&dial), session))
        })
    }

    /// The center does not say why it knows somebody no more, but we do.
    fn explain(&self, error: transport::Error) -> transport::Error {
        let ended = self.saved().ends;
        match error {
            transport::Error::Refused { code: Code(401), retry_after, .. } if now() >= ended => {
                let message = Error::Ended { ended, here: now() }.to_string();
                transport::Error::Refused { code: Code(401), message, retry_after }
            }
            other => other,
        }
    }

    fn place(&self) -> String {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let dir = std::path::absolute(&self.data_dir).unwrap_or_else(|_| self.data_dir.clone());
        format!("{}:{}", host.trim(), dir.display())
    }

    fn center(&self) -> String {
        self.saved().center
    }
}
