//! As much of HTTP/1.1 as a sample needs: a thread for a connection, requests one after the other.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

const CONNECTIONS: usize = 512;
/// Of a request line and its headers.
const HEAD: u64 = 16 << 10;
const BODY: usize = 1 << 20;
/// A thread has little to do.
const STACK: usize = 128 << 10;
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, PartialEq)]
pub struct Request {
    pub method: String,
    /// As it came, with the query.
    pub target: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    keep_alive: bool,
}

pub struct Response {
    pub status: &'static str,
    pub content_type: &'static str,
    pub body: Vec<u8>,
}

impl Response {
    pub fn text(status: &'static str, text: impl Into<String>) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: text.into().into_bytes() }
    }
}

impl Request {
    pub fn path(&self) -> &str {
        self.target.split(['?', '#']).next().unwrap_or("/")
    }

    pub fn query(&self, name: &str) -> Option<&str> {
        let (_, query) = self.target.split_once('?')?;
        query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// None: nobody asks any more. The rest of what was read is left in the reader.
    pub fn read(reader: &mut impl BufRead) -> io::Result<Option<Self>> {
        let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let mut head = Vec::new();
        let mut limited = reader.take(HEAD);
        while !head.ends_with(b"\r\n\r\n") && !head.ends_with(b"\n\n") {
            if limited.read_until(b'\n', &mut head)? == 0 {
                return if head.is_empty() { Ok(None) } else { Err(wrong("the head is cut or too long")) };
            }
        }
        let head = String::from_utf8(head).map_err(|_| wrong("the head is no text"))?;
        let mut lines = head.lines();
        let mut words = lines.next().unwrap_or_default().split(' ');
        let (Some(method), Some(target), Some(version)) = (words.next(), words.next(), words.next()) else {
            return Err(wrong("this is no request"));
        };
        if !version.starts_with("HTTP/1.") {
            return Err(wrong("this is not HTTP/1"));
        }
        let headers = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
            .collect();
        let mut request = Self {
            method: method.to_owned(),
            target: target.to_owned(),
            headers,
            body: Vec::new(),
            keep_alive: version == "HTTP/1.1",
        };
        if let Some(connection) = request.header("connection") {
            let connection = connection.to_ascii_lowercase();
            request.keep_alive =
                connection.contains("keep-alive") || request.keep_alive && !connection.contains("close");
        }
        if request.header("transfer-encoding").is_some() {
            return Err(wrong("a body has a length here"));
        }
        let length = request.header("content-length").map_or(Ok(0), str::parse).map_err(|_| wrong("no length"))?;
        if length > BODY {
            return Err(wrong("the body is too long"));
        }
        request.body = vec![0; length];
        reader.read_exact(&mut request.body)?;
        Ok(Some(request))
    }
}

/// Answers until nobody asks any more. `first` was read from the stream already.
pub fn answer(stream: &TcpStream, first: &[u8], handler: &impl Fn(&Request) -> Response) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    let mut reader = BufReader::with_capacity(4 << 10, first.chain(stream));
    loop {
        let (request, response) = match Request::read(&mut reader) {
            Ok(None) => return Ok(()),
            Ok(Some(request)) => {
                let response = handler(&request);
                (Some(request), response)
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                (None, Response::text("400 Bad Request", format!("{error}\n")))
            }
            Err(error) => return Err(error),
        };
        let keep = request.as_ref().is_some_and(|request| request.keep_alive);
        let mut bytes = Vec::with_capacity(256 + response.body.len());
        write!(
            bytes,
            "HTTP/1.1 {}\r\ncontent-type: {}\r\ncontent-length: {}\r\n{}\r\n",
            response.status,
            response.content_type,
            response.body.len(),
            if keep { "" } else { "connection: close\r\n" },
        )?;
        if request.is_none_or(|request| request.method != "HEAD") {
            bytes.extend_from_slice(&response.body);
        }
        let mut stream = stream;
        stream.write_all(&bytes)?;
        if !keep {
            return Ok(());
        }
    }
}

/// A thread for every connection, up to a number; who comes then is turned away.
pub fn each(listener: &TcpListener, serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Result<(), String> {
    let (serve, count) = (Arc::new(serve), Arc::new(AtomicUsize::new(0)));
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            // Too many open files, or somebody who went before they were answered.
            Err(_) => {
                thread::sleep(Duration::from_millis(10));
                continue;
            }
        };
        if count.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS {
            count.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (serve, within) = (serve.clone(), count.clone());
        let begun = thread::Builder::new().stack_size(STACK).spawn(move || {
            serve(stream);
            within.fetch_sub(1, Ordering::Relaxed);
        });
        if begun.is_err() {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

pub fn serve(
    listener: &TcpListener,
    handler: impl Fn(&Request) -> Response + Send + Sync + 'static,
) -> Result<(), String> {
    each(listener, move |stream| _ = answer(&stream, &[], &handler))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_as_they_come() {
        let text = "POST /burn?cpu=500&seconds=1 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.0\n\n";
        let mut reader = text.as_bytes();
        let request = Request::read(&mut reader).unwrap().unwrap();
        assert_eq!((request.method.as_str(), request.path(), request.body.as_slice()), ("POST", "/burn", &b"abc"[..]));
        assert_eq!(
            (request.query("cpu"), request.query("seconds"), request.query("c")),
            (Some("500"), Some("1"), None)
        );
        assert!(request.keep_alive);
        let next = Request::read(&mut reader).unwrap().unwrap();
        assert!(next.path() == "/" && !next.keep_alive);
        assert_eq!(Request::read(&mut reader).unwrap(), None);
    }

    #[test]
    fn what_is_no_request() {
        let long = format!("GET / HTTP/1.1\r\n{}\r\n\r\n", "x".repeat(20 << 10));
        for text in [
            "GET",
            "hello\r\n\r\n",
            "GET / FTP/1\r\n\r\n",
            "GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
            "GET / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
            "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nab",
            &long,
        ] {
            assert!(Request::read(&mut text.as_bytes()).is_err(), "{}", &text[..text.len().min(60)]);
        }
    }
}
