//! `/containerLogs`: what a container wrote.

mod choose;
mod files;
pub mod line;
mod notice;
pub mod options;
mod read;

use bytes::Bytes;
use http::{Response, StatusCode};
use jiff::Timestamp;
use pods::{Pods, Run};
use tokio::sync::mpsc;

use crate::{
    answer::{self, Body},
    route::{Place, Query},
};
use options::Options;

/// Pieces that wait for somebody who reads slowly.
const MAX_WAITING: usize = 4;

pub async fn answer(pods: &Pods, place: &Place, query: &Query) -> Response<Body> {
    let options = match Options::parse(query, Timestamp::now()) {
        Ok(options) => options,
        Err(why) => {
            return answer::text(
                StatusCode::UNPROCESSABLE_ENTITY,
                format!("{{\"message\": \"Invalid request: {why}\"}}"),
            );
        }
    };
    let Some(known) = pods.find(&place.namespace, &place.pod) else {
        return answer::text(StatusCode::NOT_FOUND, format!("pod {:?} does not exist\n", place.pod));
    };
    let run = match choose::run(&known, &place.container, options.previous) {
        Ok(run) => run,
        Err(refusal) => return answer::text(refusal.code(), refusal.to_string()),
    };
    let (goes_on, runs) = (goes_on(pods, place, &run), pods.runs());
    let (sender, receiver) = mpsc::channel(MAX_WAITING);
    tasks::spawn_short("log-stream", async move {
        if let Err(error) = read::send(&run.log, &options, goes_on, runs, &sender).await {
            tracing::debug!(%error, log = %run.log.display(), "a log could not be read to its end");
            let _ = sender.send(Err(error)).await;
        }
    });
    answer::stream("text/plain", receiver)
}

/// Whether more may be written by this run.
fn goes_on(pods: &Pods, place: &Place, run: &Run) -> impl Fn() -> bool + Send + 'static {
    let (pods, place, id) = (pods.clone(), place.clone(), run.id.clone());
    move || {
        let known = pods.find(&place.namespace, &place.pod).filter(|known| known.uid == id.pod);
        let run = known.as_ref().and_then(|known| known.container(&place.container)?.current.as_ref());
        run.is_some_and(|run| run.id == id && run.is_running)
    }
}

type Sender = mpsc::Sender<Result<Bytes, std::io::Error>>;
