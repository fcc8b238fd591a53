//! When the link is back, the writes that waited go to the center, one after the other in their order.

use std::{sync::Arc, time::Duration};

use kinds::forward::{Said, Standing};
use schema::status::Status;
use server::Server;
use tokio::sync::watch;

use super::{
    Lost, Ownership, direct,
    queue::{self, OfflineWrite, State},
    settle,
};

/// Between attempts when the center answers but cannot decide now.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

impl Ownership {
    /// Replays what waits whenever it can, until told to stop.
    pub async fn run(self: Arc<Self>, server: Arc<Server>, mut stop: watch::Receiver<bool>) {
        let work = async {
            let mut pause = PAUSES.0;
            let mut told = None;
            loop {
                let step = match self.next(&server).await {
                    Step::Nothing => self.tell(&server, &mut told).await,
                    other => other,
                };
                match step {
                    Step::Done => pause = PAUSES.0,
                    Step::Nothing => self.wake.notified().await,
                    Step::Away => tokio::select! {
                        () = self.way.opens() => {}
                        () = self.wake.notified() => {}
                    },
                    Step::Later => {
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(PAUSES.1);
                    }
                }
            }
        };
        tokio::select! {
            () = work => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }

    async fn next(&self, server: &Arc<Server>) -> Step {
        if let Some(write) = queue::waiting(server).into_iter().find(OfflineWrite::is_leaving) {
            return Step::of(settle::take_back(server, &write).await);
        }
        let Some(write) = queue::first(server) else { return Step::Nothing };
        if !self.way.is_open() {
            return Step::Away;
        }
        if write.spec.write.precondition.is_empty() {
            // Only the first that waits for an object is ever tried, and it builds on what the center has.
            let status = Status::internal("the write on which this one builds is gone");
            return Step::of(settle::decided(server, &write, State::Conflict, &status).await);
        }
        match direct::ask(&*self.way, &write.spec.write).await {
            Ok(done) => Step::of(settle::taken(server, &write, &done).await),
            Err(direct::Answer::Stale(status)) => {
                Step::of(settle::decided(server, &write, State::Conflict, &status).await)
            }
            Err(direct::Answer::Status(status)) => match state_of(&status) {
                Some(state) => Step::of(settle::decided(server, &write, state, &status).await),
                None => {
                    tracing::info!(write = write.name(), error = %status, "the center cannot decide now; trying again");
                    Step::Later
                }
            },
            // It is sent again, under the same number.
            Err(direct::Answer::Lost(_)) => Step::Later,
        }
    }
}

impl Ownership {
    /// Says to the center how it stands with what it did not take, when that has changed.
    async fn tell(&self, server: &Server, told: &mut Option<Standing>) -> Step {
        let now = queue::standing(server);
        if told.as_ref() == Some(&now) {
            return Step::Nothing;
        }
        let said = Said::Standing { standing: now.clone() };
        match self.way.send(serde_json::to_vec(&said).unwrap_or_default().into()).await {
            Ok((200..300, _)) => {
                *told = Some(now);
                Step::Nothing
            }
            Err(Lost::Away) => Step::Away,
            _ => Step::Later,
        }
    }
}

enum Step {
    Done,
    Nothing,
    Away,
    Later,
}

impl Step {
    fn of(settled: Result<bool, store::Error>) -> Self {
        match settled {
            Ok(true) => Self::Done,
            // Somebody wrote to the same objects: their state is looked at anew.
            Ok(false) => Self::Later,
            Err(error) => {
                tracing::warn!(%error, "what became of an offline write cannot be written down yet");
                Self::Later
            }
        }
    }
}

/// What an answer means for a write that waited; nothing if the center may answer otherwise later.
fn state_of(status: &Status) -> Option<State> {
    match status.code {
        409 => Some(State::Conflict),
        401 | 408 | 429 | 500.. => None,
        _ => Some(State::Refused),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_final_is_final() {
        for (code, state) in [
            (400, Some(State::Refused)),
            (401, None),
            (403, Some(State::Refused)),
            (404, Some(State::Refused)),
            (409, Some(State::Conflict)),
            (422, Some(State::Refused)),
            (429, None),
            (500, None),
            (503, None),
            (504, None),
        ] {
            assert_eq!(state_of(&Status::new(code, "", "")), state, "{code}");
        }
    }
}
