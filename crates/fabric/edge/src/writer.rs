//! One task writes everything that the agent writes, one commit after the other, so that a slow disk holds up no heartbeat.

use std::sync::Arc;

use kinds::ObjectKey;
use link::{ApplyFailure, Batch, Key, Position, Version};
use server::Server;
use store::{Commit, Compare};
use tokio::sync::mpsc;

use crate::{
    apply::{self, commit_and_see, delete_record, held, place_of, put_record},
    book::{Book, CLUSTER, GONE, HELD},
    report,
    show::{self, Shown},
    whole,
};

pub enum Job {
    Apply {
        ticket: u64,
        batch: Batch,
    },
    Acked {
        at: Position,
        reports: Vec<(Key, Version)>,
    },
    /// Perhaps somebody took away what the center sent.
    Lost(Key),
    /// Objects of the edge's own are going to be reported.
    Promise(Vec<Key>),
    /// Not all that is asked for is reported.
    LeftOut(Vec<String>),
    Show(Shown),
}

pub enum Done {
    Applied {
        ticket: u64,
        adopted: bool,
    },
    Failed {
        ticket: u64,
        failure: ApplyFailure,
    },
    /// The edge holds less than the center thinks.
    Lost,
}

pub async fn run(
    server: Arc<Server>,
    book: Arc<Book>,
    mut jobs: mpsc::UnboundedReceiver<Job>,
    done: mpsc::UnboundedSender<Done>,
) {
    while let Some(job) = jobs.recv().await {
        // Whoever waits for an answer may be gone: what was begun is finished all the same.
        match job {
            Job::Apply { ticket, batch } => {
                let answer = match apply::apply(&server, &book, &batch).await {
                    Ok(()) => Done::Applied { ticket, adopted: batch.adopt },
                    Err(failure) => Done::Failed { ticket, failure },
                };
                let _ = done.send(answer);
            }
            Job::Acked { at, reports } => {
                if let Err(error) = report::acked(&server, &book, at, &reports).await {
                    // Reported once more at the next start: the center knows that it has them.
                    tracing::warn!(%error, "cannot remember which reports the center has");
                }
            }
            Job::Lost(key) => match forget(&server, &key).await {
                Ok(true) => {
                    tracing::warn!(%key, "an object of the center's was deleted on this edge; asking for it again");
                    let _ = done.send(Done::Lost);
                }
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, %key, "cannot note that an object is missing"),
            },
            Job::Promise(keys) => {
                if let Err(error) = whole::promise(&server, &book, &keys).await {
                    tracing::warn!(%error, "objects of this edge cannot be reported yet");
                    keys.iter().for_each(|key| book.promise(key));
                    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
                }
            }
            Job::LeftOut(said) => whole::say_left_out(&server, &said).await,
            Job::Show(shown) => show::show(&server, &shown).await,
        }
    }
}

/// Forgets that it holds an object, if it really does not.
async fn forget(server: &Arc<Server>, name: &Key) -> Result<bool, store::Error> {
    let Some(key) = ObjectKey::parse(name) else { return Ok(false) };
    let Some((held, revision)) = held(server, name) else { return Ok(false) };
    if place_of(server, &key).get().is_some() {
        return Ok(false);
    }
    let mut commit = Commit::default();
    commit.compares.push(Compare { key: key.in_store(CLUSTER), modified: 0 });
    commit.compares.push(Compare { key: format!("{HELD}/{name}"), modified: revision });
    delete_record(&mut commit, HELD, name);
    if held.reported.is_some() {
        put_record(&mut commit, GONE, name, &serde_json::json!({}));
    }
    commit_and_see(server, commit).await
}
