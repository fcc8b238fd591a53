//! Small programs that are images: `selvedge.dev/sample/<name>`. They show that a workload runs, answers, writes, and takes what it is
//! given.

mod burn;
mod clock;
mod echo;
mod http;
mod web;

use std::{
    collections::BTreeMap,
    io::{self, Write},
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::ExitCode,
};

use crate::root;

pub const NAMES: [&str; 4] = ["web", "echo", "burn", "clock"];

pub type Sample = fn(&Given) -> Result<(), String>;

pub fn find(name: &str) -> Option<Sample> {
    match name {
        "web" => Some(web::run),
        "echo" => Some(echo::run),
        "burn" => Some(burn::run),
        "clock" => Some(clock::run),
        _ => None,
    }
}

pub fn run(sample: Sample, args: Vec<String>, env: Vec<(String, String)>) -> ExitCode {
    let given = Given { args, env: env.into_iter().collect() };
    match sample(&given) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            let _ = writeln!(io::stderr(), "{message}");
            ExitCode::FAILURE
        }
    }
}

/// What a container gave to its sample.
#[derive(Debug, Default)]
pub struct Given {
    args: Vec<String>,
    env: BTreeMap<String, String>,
}

impl Given {
    fn variable(&self, name: &str) -> Option<&str> {
        self.env.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// `--name value`, `--name=value`, or the variable.
    fn option(&self, name: &str, variable: &str) -> Option<&str> {
        let flag = format!("--{name}");
        let mut args = self.args.iter();
        while let Some(arg) = args.next() {
            if *arg == flag {
                return args.next().map(String::as_str);
            }
            if let Some(value) = arg.strip_prefix(&flag).and_then(|rest| rest.strip_prefix('=')) {
                return Some(value);
            }
        }
        self.variable(variable)
    }

    /// The pod's own address, and the port that was asked for.
    fn address(&self) -> Result<SocketAddr, String> {
        let host = self.variable("HOST").or_else(|| self.variable("POD_IP")).unwrap_or("0.0.0.0");
        let port = self.option("port", "PORT").unwrap_or("8080");
        let host = host.parse().map_err(|_| format!("HOST is {host:?}, which is no address"))?;
        let port = port.parse().map_err(|_| format!("{port:?} is no port: use --port or PORT"))?;
        Ok(SocketAddr::new(host, port))
    }

    fn listen(&self) -> Result<TcpListener, String> {
        let address = self.address()?;
        let listener = TcpListener::bind(address).map_err(|error| format!("cannot listen on {address}: {error}"))?;
        let _ = writeln!(io::stdout(), "listening on {address}");
        Ok(listener)
    }

    /// Where a path of the container is.
    fn path(&self, path: &str) -> PathBuf {
        match self.variable("SELVEDGE_ROOT") {
            Some(root) => root::below(Path::new(root), Path::new(path)),
            None => path.into(),
        }
    }
}

#[cfg(test)]
pub fn given(args: &[&str], env: &[(&str, &str)]) -> Given {
    Given {
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        env: env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_sample() {
        assert!(NAMES.iter().all(|name| find(name).is_some()));
        assert!(find("nothing").is_none());
    }

    #[test]
    fn where_it_listens() {
        for (args, env, expected) in [
            (&[][..], &[][..], Some("0.0.0.0:8080")),
            (&[], &[("HOST", "127.9.0.2"), ("PORT", "80")], Some("127.9.0.2:80")),
            (&[], &[("POD_IP", "127.9.0.2")], Some("127.9.0.2:8080")),
            (&["--port", "81"], &[("PORT", "80")], Some("0.0.0.0:81")),
            (&["--dir=/x", "--port=82"], &[], Some("0.0.0.0:82")),
            (&["--port"], &[("PORT", "80")], None),
            (&["--port=x"], &[], None),
            (&[], &[("HOST", "here")], None),
        ] {
            let found = given(args, env).address().ok().map(|address| address.to_string());
            let expected =
                if args == ["--port"] { Some("0.0.0.0:8080".to_owned()) } else { expected.map(str::to_owned) };
            assert_eq!(found, expected, "{args:?} {env:?}");
        }
    }
}
