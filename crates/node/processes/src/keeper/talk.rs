//! Connections: what comes in is cut into frames, what goes out waits for whoever is slow, up to a point.

use std::{io, os::fd::OwnedFd, os::unix::net::UnixStream};

use pods::runtime::ContainerId;
use rustix::event::epoll::{self, EventData, EventFlags};

use super::{Keeper, Source, Watched, failed, kill, say};
use crate::{
    protocol::{Answer, Answered, Asked, Frame, Frames, Kind, frame, json},
    tree, wire,
};

/// Somebody who does not read so much is left.
const UNREAD: usize = 4 << 20;
const CONNECTIONS: usize = 1000;

pub struct Connection {
    pub stream: Watched<UnixStream>,
    pub frames: Frames,
    /// What came along with what was said.
    pub files: Vec<OwnedFd>,
    pub out: Vec<u8>,
    pub waits_to_write: bool,
    pub watches: bool,
    pub attached: Option<ContainerId>,
    pub is_over: bool,
}

impl Keeper {
    pub fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.file.accept() {
            if self.connections.len() >= CONNECTIONS || stream.set_nonblocking(true).is_err() {
                continue;
            }
            let number = self.number();
            let Ok(stream) = self.watch(stream, Source::Connection(number), EventFlags::IN) else { continue };
            let connection = Connection {
                stream,
                frames: Frames::default(),
                files: Vec::new(),
                out: Vec::new(),
                waits_to_write: false,
                watches: false,
                attached: None,
                is_over: false,
            };
            self.connections.insert(number, connection);
        }
    }

    pub fn hear(&mut self, number: u64) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let is_over = loop {
            let Some(connection) = self.connections.get_mut(&number) else { break false };
            match wire::receive(&connection.stream.file, &mut buffer, &mut connection.files) {
                Ok(0) => break true,
                Ok(count) => connection.frames.push(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break true,
            }
        };
        self.buffer = buffer;
        while let Some(connection) = self.connections.get_mut(&number) {
            match connection.frames.next() {
                Ok(Some(frame)) => self.take(number, frame),
                Ok(None) => break,
                Err(error) => {
                    say(&format!("somebody talks nonsense: {error}"));
                    connection.is_over = true;
                    break;
                }
            }
        }
        if is_over {
            self.close(number);
        }
    }

    fn take(&mut self, connection: u64, frame: Frame) {
        match frame.kind {
            Kind::Json => match serde_json::from_slice::<Asked>(&frame.bytes) {
                Ok(asked) => self.ask(connection, asked.number, asked.ask),
                Err(error) => {
                    #[derive(serde::Deserialize)]
                    struct Numbered {
                        number: u64,
                    }
                    let number = serde_json::from_slice(&frame.bytes).map_or(0, |found: Numbered| found.number);
                    self.answer(connection, number, failed("Unknown", format!("this keeper cannot do that: {error}")));
                }
            },
            Kind::Stdin => {
                let of = self.connections.get(&connection).and_then(|found| found.attached.clone());
                if let Some(id) = of {
                    self.type_in(&id, &frame.bytes);
                }
            }
            Kind::Stdout | Kind::Stderr => {}
        }
    }

    pub fn answer(&mut self, connection: u64, number: u64, answer: Answer) {
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.out.extend_from_slice(&json(&Answered { number, answer }));
        }
    }

    /// Bytes for somebody who is attached. Who cannot keep up is left rather than waited for.
    pub fn pass(&mut self, connection: u64, kind: Kind, bytes: &[u8]) {
        let Some(connection) = self.connections.get_mut(&connection) else { return };
        if connection.out.len() > UNREAD {
            connection.is_over = true;
        } else {
            frame(kind, bytes, &mut connection.out);
        }
    }

    pub fn tell_watchers(&mut self) {
        let told = json(&Answered { number: 0, answer: Answer::Changed });
        for connection in self.connections.values_mut().filter(|connection| connection.watches) {
            connection.out.extend_from_slice(&told);
        }
    }

    pub fn flush(&mut self) {
        let mut over = Vec::new();
        for (number, connection) in &mut self.connections {
            while !connection.out.is_empty() {
                match wire::send(&connection.stream.file, &connection.out, &[]) {
                    Ok(count) => _ = connection.out.drain(..count),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => {
                        connection.is_over = true;
                        break;
                    }
                }
            }
            let waits = !connection.out.is_empty();
            if waits != connection.waits_to_write {
                let flags = if waits { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
                let data = EventData::new_u64(connection.stream.token);
                connection.waits_to_write =
                    epoll::modify(&self.epoll, &connection.stream.file, data, flags).is_ok() && waits;
            }
            if !waits {
                connection.out = Vec::new();
            }
            if connection.is_over {
                over.push(*number);
            }
        }
        over.into_iter().for_each(|number| self.close(number));
    }

    /// What was run for whoever is gone ends; containers do not.
    fn close(&mut self, number: u64) {
        let Some(connection) = self.connections.remove(&number) else { return };
        self.unwatch(connection.stream);
        if let Some(live) = connection.attached.and_then(|id| self.live.get_mut(&id)) {
            live.attached.retain(|attached| *attached != number);
        }
        for exec in self.execs.values().filter(|exec| exec.connection == number) {
            tree::with_descendants(exec.process.pid).into_iter().for_each(kill);
        }
    }
}
