//! `/exec` and `/attach`: somebody at the ends of a command, or of the container itself.

mod drive;
mod status;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use pods::{
    Known, Pods, Run,
    runtime::{Attached, ContainerId, Failure, Runtime},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
    time::timeout,
};

use crate::{
    answer::{self, Body},
    outgoing::{LINGER, MAX_WAITING, Outgoing},
    route::{Place, Query},
    spdy,
    stream::{
        Incoming, Sink,
        channels::{self, Channels, Said},
    },
    upgrade::{self, Protocol},
    ws::{self, frame},
};

/// Clients have so long to open their streams.
const OPENING: Duration = Duration::from_secs(30);
/// What is spoken over SPDY, the oldest last.
const ON_SPDY: [&str; 4] = ["v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"];

/// What somebody wants to be connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    /// None: the container itself.
    command: Option<Vec<String>>,
    stdin: bool,
    stdout: bool,
    stderr: bool,
    tty: bool,
}

/// The ends of somebody who is connected.
struct Ends {
    stdin: Option<Incoming>,
    resize: Option<Incoming>,
    stdout: Option<Sink>,
    stderr: Option<Sink>,
    error: Sink,
    has_status: bool,
}

impl Wanted {
    fn parse(query: &Query, is_attach: bool) -> Result<Self, &'static str> {
        let tty = query.flag("tty");
        let wanted = Self {
            command: (!is_attach).then(|| query.all("command").map(str::to_owned).collect()),
            stdin: query.flag("input"),
            stdout: query.flag("output"),
            // A terminal has one way out.
            stderr: query.flag("error") && !tty,
            tty,
        };
        if !(wanted.stdin || wanted.stdout || wanted.stderr) {
            return Err("you must specify at least 1 of stdin, stdout, stderr");
        }
        if wanted.command.as_ref().is_some_and(Vec::is_empty) {
            return Err("you must specify at least one command for the container");
        }
        Ok(wanted)
    }
}

pub fn answer(
    pods: &Pods,
    runtime: &Arc<dyn Runtime>,
    place: &Place,
    query: &Query,
    is_attach: bool,
    headers: &HeaderMap,
    upgraded: OnUpgrade,
) -> Response<Body> {
    let wanted = match Wanted::parse(query, is_attach) {
        Ok(wanted) => wanted,
        Err(why) => return answer::text(StatusCode::BAD_REQUEST, why),
    };
    let Some(known) = pods.find(&place.namespace, &place.pod) else {
        return answer::text(StatusCode::NOT_FOUND, "pod does not exist");
    };
    let Some(run) = running(&known, &place.container) else {
        return answer::text(StatusCode::INTERNAL_SERVER_ERROR, format!("container not found ({:?})", place.container));
    };
    let (protocol, response) = match upgrade::agree(headers, &channels::SPOKEN, &ON_SPDY) {
        Ok(agreed) => agreed,
        Err(refusal) => return refusal,
    };
    let work = Work { runtime: runtime.clone(), id: run.id, wanted };
    tasks::spawn_short("exec", async move {
        let Ok(io) = upgraded.await else { return };
        let io = TokioIo::new(io);
        match protocol {
            Protocol::WebSocket(name) => work.over_websocket(io, Channels::of(name)).await,
            Protocol::Spdy(name) => work.over_spdy(io, name).await,
        }
    });
    response
}

fn running(known: &Known, container: &str) -> Option<Run> {
    known.container(container)?.current.clone().filter(|run| run.is_running)
}

struct Work {
    runtime: Arc<dyn Runtime>,
    id: ContainerId,
    wanted: Wanted,
}

impl Work {
    async fn over_websocket(self, io: impl AsyncRead + AsyncWrite, channels: Channels) {
        let (messages, out, carried) = ws::connection::start(io);
        let sink = |id: u8| Sink::Channel { channels, id, out: out.clone() };
        let (to_stdin, stdin) = mpsc::channel(MAX_WAITING);
        let (to_resize, resize) = mpsc::channel(MAX_WAITING);
        let ends = Ends {
            stdin: self.wanted.stdin.then_some(stdin),
            resize: self.wanted.tty.then_some(resize),
            stdout: self.wanted.stdout.then(|| sink(channels::STDOUT)),
            stderr: self.wanted.stderr.then(|| sink(channels::STDERR)),
            error: sink(channels::ERROR),
            has_status: channels.has_status,
        };
        let work = async {
            // By an empty message clients know that they are connected.
            let first = ends.stdout.as_ref().or(ends.stderr.as_ref()).unwrap_or(&ends.error);
            first.send(&[]).await;
            self.run(ends).await;
            out.send(frame::close(1000)).await;
            leave(&out).await;
        };
        tokio::select! {
            _ = carried => {}
            () = sort(messages, channels, to_stdin, to_resize) => {}
            () = work => {}
        }
    }

    async fn over_spdy(self, io: impl AsyncRead + AsyncWrite, protocol: &'static str) {
        let (streams, out, carried) = spdy::connection::start(io);
        let work = async {
            match timeout(OPENING, gather(streams, &self.wanted, protocol)).await {
                Ok(Some(ends)) => self.run(ends).await,
                Ok(None) => {}
                Err(_) => tracing::debug!("timed out waiting for client to create streams"),
            }
            leave(&out).await;
        };
        tokio::select! {
            _ = carried => {}
            () = work => {}
        }
    }

    async fn open(&self) -> Result<Attached, Failure> {
        match &self.wanted.command {
            Some(command) => self.runtime.open(&self.id, command, self.wanted.stdin, self.wanted.tty).await,
            None => self.runtime.attach(&self.id, self.wanted.stdin).await,
        }
    }

    async fn run(&self, mut ends: Ends) {
        let is_exec = self.wanted.command.is_some();
        let outcome = match self.open().await {
            Ok(attached) => Ok(drive::drive(attached, &mut ends).await),
            Err(failure) => Err(failure.message),
        };
        let last = status::text(&outcome, is_exec, ends.has_status);
        if !last.is_empty() {
            ends.error.send(last.as_bytes()).await;
        }
        for sink in [Some(&ends.error), ends.stdout.as_ref(), ends.stderr.as_ref()].into_iter().flatten() {
            sink.finish().await;
        }
    }
}

/// Waits until all is said, and then for the other end to leave.
async fn leave(out: &Outgoing) {
    out.flushed().await;
    tokio::time::sleep(LINGER).await;
}

/// Passes on what comes on each channel. Never ends: the connection does.
async fn sort(
    mut messages: mpsc::Receiver<Bytes>,
    channels: Channels,
    stdin: mpsc::Sender<Bytes>,
    resize: mpsc::Sender<Bytes>,
) {
    let mut stdin = Some(stdin);
    while let Some(message) = messages.recv().await {
        match channels.decode(message) {
            Some(Said::Data { channel: channels::STDIN, data }) => {
                if let Some(stdin) = stdin.as_ref().filter(|_| !data.is_empty()) {
                    let _ = stdin.send(data).await;
                }
            }
            Some(Said::Data { channel: channels::RESIZE, data }) => drop(resize.send(data).await),
            Some(Said::Closed { channel: channels::STDIN }) => stdin = None,
            _ => {}
        }
    }
    std::future::pending().await
}

/// Waits for the streams that a client says it will open.
async fn gather(
    mut streams: mpsc::Receiver<spdy::connection::Stream>,
    wanted: &Wanted,
    protocol: &str,
) -> Option<Ends> {
    let resizes = wanted.tty && matches!(protocol, "v4.channel.k8s.io" | "v3.channel.k8s.io");
    let expected = [true, wanted.stdin, wanted.stdout, wanted.stderr, resizes].into_iter().filter(|is| *is).count();
    let (mut stdin, mut resize, mut stdout, mut stderr, mut error) = (None, None, None, None, None);
    for _ in 0..expected {
        let stream = streams.recv().await?;
        match stream.headers.get("streamtype") {
            Some("stdin") if wanted.stdin => stdin = Some(stream.incoming),
            Some("stdout") if wanted.stdout => stdout = Some(stream.sink),
            Some("stderr") if wanted.stderr => stderr = Some(stream.sink),
            Some("resize") if resizes => resize = Some(stream.incoming),
            Some("error") => error = Some(stream.sink),
            other => {
                tracing::debug!(?other, "a stream that nobody asked for");
                stream.sink.cancel().await;
                return None;
            }
        }
    }
    Some(Ends { stdin, resize, stdout, stderr, error: error?, has_status: protocol == "v4.channel.k8s.io" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_wants() {
        let read = |query, is_attach| Wanted::parse(&Query::parse(Some(query)), is_attach);
        let shell = read("command=sh&command=-i&input=1&output=1&error=1&tty=1", false).unwrap();
        assert_eq!(shell.command.as_deref(), Some(&["sh".to_owned(), "-i".to_owned()][..]));
        assert!(shell.stdin && shell.stdout && !shell.stderr && shell.tty);
        assert_eq!(read("output=1", true).unwrap().command, None);
        assert!(read("output=1", false).is_err(), "no command");
        assert!(read("command=sh", false).is_err(), "nothing to be connected to");
        assert!(read("command=sh&error=1&tty=1", false).is_err());
    }
}
