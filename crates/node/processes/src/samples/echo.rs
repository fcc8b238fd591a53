//! Says what it hears: over TCP and UDP as it is, over HTTP as a page.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream, UdpSocket},
    thread,
};

use super::{
    Given,
    http::{self, Request, Response},
};

const METHODS: [&[u8]; 7] = [b"GET ", b"PUT ", b"POST ", b"HEAD ", b"PATCH ", b"DELETE ", b"OPTIONS "];

pub fn run(given: &Given) -> Result<(), String> {
    let address = given.address()?;
    let socket = UdpSocket::bind(address).map_err(|error| format!("cannot listen on UDP {address}: {error}"))?;
    let listener = given.listen()?;
    thread::Builder::new().stack_size(128 << 10).spawn(move || udp(&socket)).map_err(|error| error.to_string())?;
    let pod = given.variable("SELVEDGE_POD").unwrap_or("?").to_owned();
    http::each(&listener, move |stream| _ = tcp(stream, &pod))
}

fn udp(socket: &UdpSocket) {
    let mut buffer = vec![0; 65536];
    loop {
        if let Ok((count, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..count], from);
        }
    }
}

/// Whether it is HTTP shows in the first bytes.
fn tcp(mut stream: TcpStream, pod: &str) -> io::Result<()> {
    let from = stream.peer_addr()?;
    let mut buffer = [0; 4096];
    let count = stream.read(&mut buffer)?;
    if METHODS.iter().any(|method| buffer[..count].starts_with(method)) {
        return http::answer(&stream, &buffer[..count], &|request: &Request| page(request, from, pod));
    }
    stream.write_all(&buffer[..count])?;
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            count => stream.write_all(&buffer[..count])?,
        }
    }
}

fn page(request: &Request, from: SocketAddr, pod: &str) -> Response {
    let mut text = format!("{} {}\nfrom {from}\npod {pod}\n", request.method, request.target);
    for (name, value) in &request.headers {
        text.push_str(&format!("{name}: {value}\n"));
    }
    text.push('\n');
    text.push_str(&String::from_utf8_lossy(&request.body));
    Response::text("200 OK", text)
}
