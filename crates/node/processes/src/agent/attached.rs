//! Somebody at the ends of a command, or of a container.

use std::{
    io::{self, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use pods::runtime::{Attached, ContainerId, Failure, Output, Reader, Writer};
use rustix::{
    pipe::PipeFlags,
    pty::OpenptFlags,
    termios::{Winsize, tcsetwinsize},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::unix::{OwnedReadHalf, OwnedWriteHalf, pipe},
    sync::{mpsc, oneshot},
};

use super::{known, launch, link::Ask};
use crate::{
    protocol::{Answer, Answered, Frame, Frames, Kind, Request, frame, json},
    wire,
};

/// Of what a command wrote, for those who only look at it.
const OUTPUT: usize = 16 << 10;
/// What a command has left behind may hold its stdout; it is being killed.
const AFTER: Duration = Duration::from_secs(2);

fn broken(error: impl std::fmt::Display) -> Failure {
    Failure { reason: "RuntimeUnavailable", message: format!("the keeper of containers: {error}") }
}

/// A connection of one's own.
struct Own {
    incoming: Incoming,
    writer: OwnedWriteHalf,
}

struct Incoming {
    reader: OwnedReadHalf,
    frames: Frames,
}

impl Own {
    async fn ask(dir: &Path, request: &Request, files: &[OwnedFd]) -> Result<(Self, Answer), Failure> {
        let stream = launch::connect(dir).map_err(broken)?;
        send(&stream, &json(&Ask { number: 1, ask: request }), files).map_err(broken)?;
        stream.set_nonblocking(true).map_err(broken)?;
        let (reader, writer) = tokio::net::UnixStream::from_std(stream).map_err(broken)?.into_split();
        let mut own = Self { incoming: Incoming { reader, frames: Frames::default() }, writer };
        match own.incoming.answer().await {
            Some(Answer::Failed { reason, message }) => Err(Failure { reason: known(&reason), message }),
            Some(answer) => Ok((own, answer)),
            None => Err(broken("it has gone away")),
        }
    }
}

impl Incoming {
    async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.frames.next().ok()? {
                return Some(frame);
            }
            let mut buffer = [0; 4096];
            match self.reader.read(&mut buffer).await {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.frames.push(&buffer[..count]),
            }
        }
    }

    async fn answer(&mut self) -> Option<Answer> {
        loop {
            let frame = self.next().await?;
            if frame.kind == Kind::Json {
                return serde_json::from_slice(&frame.bytes).ok().map(|Answered { answer, .. }| answer);
            }
        }
    }
}

fn send(mut stream: &UnixStream, bytes: &[u8], files: &[OwnedFd]) -> io::Result<()> {
    let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    let sent = wire::send(stream, bytes, &files)?;
    stream.write_all(&bytes[sent..])
}

pub async fn open(
    dir: &Path,
    id: &ContainerId,
    command: &[String],
    stdin: bool,
    tty: bool,
) -> Result<Attached, Failure> {
    let (theirs, mut ours) = if tty { terminal(stdin) } else { pipes(stdin) }.map_err(broken)?;
    let request = Request::Exec { id: id.clone(), command: command.to_vec(), terminal: tty };
    let (own, _) = Own::ask(dir, &request, &theirs).await?;
    drop(theirs);
    let (mut tell, told) = oneshot::channel();
    tasks::spawn_short("exec-wait", async move {
        // All of it, the half that is not used here too: without it the keeper takes us for gone.
        let mut own = own;
        // Who does not wait for its end any more wants it to end: so it does with the connection.
        tokio::select! {
            answer = own.incoming.answer() => if let Some(Answer::Ended { code }) = answer {
                let _ = tell.send(code);
            },
            () = tell.closed() => {}
        }
    });
    ours.exit = told;
    Ok(ours)
}

fn never() -> oneshot::Receiver<i32> {
    oneshot::channel().1
}

fn pipes(stdin: bool) -> io::Result<(Vec<OwnedFd>, Attached)> {
    let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC);
    let (input, stdin): (OwnedFd, Option<Writer>) = match stdin {
        true => {
            let (input, ours) = pipe()?;
            (input, Some(Box::new(pipe::Sender::from_owned_fd(ours)?)))
        }
        false => (crate::os::null()?, None),
    };
    let (out, output) = pipe()?;
    let (err, errors) = pipe()?;
    let stdout: Reader = Box::new(pipe::Receiver::from_owned_fd(out)?);
    let stderr: Reader = Box::new(pipe::Receiver::from_owned_fd(err)?);
    let ours = Attached { stdin, stdout: Some(stdout), stderr: Some(stderr), resize: None, exit: never() };
    Ok((vec![input, output, errors], ours))
}

fn terminal(stdin: bool) -> io::Result<(Vec<OwnedFd>, Attached)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = rustix::pty::openpt(flags)?;
    rustix::pty::unlockpt(&master)?;
    let theirs = rustix::pty::ioctl_tiocgptpeer(&master, flags)?;
    rustix::io::ioctl_fionbio(&master, true)?;
    let (reads, writes) = (master.try_clone()?, master.try_clone()?);
    let (resize, mut sizes) = mpsc::channel(4);
    tasks::spawn_short("terminal-size", async move {
        while let Some((columns, rows)) = sizes.recv().await {
            let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
            let _ = tcsetwinsize(&master, size);
        }
    });
    // A terminal is read and written as a pipe is, so what tokio has for pipes does for it.
    let stdout: Reader = Box::new(Screen(pipe::Receiver::from_owned_fd_unchecked(reads)?));
    let keys = || pipe::Sender::from_owned_fd_unchecked(writes);
    let stdin = stdin.then(keys).transpose()?.map(|keys| Box::new(Keys(keys)) as Writer);
    let ours = Attached { stdin, stdout: Some(stdout), stderr: None, resize: Some(resize), exit: never() };
    Ok((vec![theirs], ours))
}

/// What a terminal shows.
struct Screen(pipe::Receiver);

impl AsyncRead for Screen {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match ready!(Pin::new(&mut self.0).poll_read(context, buffer)) {
            // Nobody has its other side any more.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => Poll::Ready(Ok(())),
            done => Poll::Ready(done),
        }
    }
}

/// What is typed at a terminal.
struct Keys(pipe::Sender);

impl AsyncWrite for Keys {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    /// The end of what is typed is a key, too.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_write(context, b"\x04").map_ok(|_| ())
    }
}

/// All that a command writes until it ends, as far as it is kept.
pub async fn output(attached: Attached) -> Result<Output, Failure> {
    let text = tokio::sync::Mutex::new(Vec::new());
    let collect = async |reader: Option<Reader>| {
        let Some(mut reader) = reader else { return };
        let mut buffer = vec![0; 4096];
        while let Ok(count @ 1..) = reader.read(&mut buffer).await {
            let mut text = text.lock().await;
            let room = OUTPUT.saturating_sub(text.len()).min(count);
            text.extend_from_slice(&buffer[..room]);
        }
    };
    let Attached { stdout, stderr, exit, .. } = attached;
    let code = {
        let reading = async { tokio::join!(collect(stdout), collect(stderr)) };
        tokio::pin!(reading);
        let mut exit = exit;
        tokio::select! {
            code = &mut exit => {
                let _ = tokio::time::timeout(AFTER, reading).await;
                code
            }
            _ = &mut reading => exit.await,
        }
    };
    let code = code.map_err(|_| broken("it has gone away"))?;
    Ok(Output { code, text: text.into_inner() })
}

pub async fn attach(dir: &Path, id: &ContainerId, with_stdin: bool) -> Result<Attached, Failure> {
    let (own, answer) = Own::ask(dir, &Request::Attach { id: id.clone() }, &[]).await?;
    let Answer::Attached { terminal } = answer else { return Err(broken(format!("it answers strangely: {answer:?}"))) };
    let (stdin, typed) = tokio::io::duplex(8 << 10);
    let (stdout, out) = tokio::io::duplex(32 << 10);
    let (stderr, err) = tokio::io::duplex(32 << 10);
    let (resize, sizes) = mpsc::channel(4);
    let (tell, exit) = oneshot::channel();
    let Own { incoming, writer } = own;
    let reading = tasks::spawn_short("attach-read", pass(incoming, out, err, tell));
    tasks::spawn_short("attach-write", async move {
        type_in(writer, with_stdin.then_some(typed), sizes).await;
        reading.abort();
    });
    Ok(Attached {
        stdin: with_stdin.then(|| Box::new(stdin) as Writer),
        stdout: Some(Box::new(stdout)),
        stderr: (!terminal).then(|| Box::new(stderr) as Reader),
        resize: Some(resize),
        exit,
    })
}

async fn pass(
    mut incoming: Incoming,
    mut out: tokio::io::DuplexStream,
    mut err: tokio::io::DuplexStream,
    tell: oneshot::Sender<i32>,
) {
    while let Some(Frame { kind, bytes }) = incoming.next().await {
        match kind {
            Kind::Stdout => _ = out.write_all(&bytes).await,
            Kind::Stderr => _ = err.write_all(&bytes).await,
            Kind::Json => {
                if let Ok(Answered { answer: Answer::Ended { code }, .. }) = serde_json::from_slice(&bytes) {
                    let _ = tell.send(code);
                    return;
                }
            }
            Kind::Stdin => {}
        }
    }
}

/// Until whoever is attached goes away: then the channel of sizes closes.
async fn type_in(
    mut writer: OwnedWriteHalf,
    mut typed: Option<tokio::io::DuplexStream>,
    mut sizes: mpsc::Receiver<(u16, u16)>,
) {
    let mut buffer = vec![0; 4096];
    loop {
        let mut bytes = Vec::new();
        tokio::select! {
            size = sizes.recv() => match size {
                Some((columns, rows)) => {
                    bytes = json(&Ask { number: 1, ask: &Request::Resize { columns, rows } });
                }
                None => return,
            },
            count = async { match &mut typed {
                Some(typed) => typed.read(&mut buffer).await.unwrap_or(0),
                None => std::future::pending().await,
            } } => {
                frame(Kind::Stdin, &buffer[..count], &mut bytes);
                if count == 0 {
                    typed = None;
                }
            }
        }
        if writer.write_all(&bytes).await.is_err() {
            return;
        }
    }
}
