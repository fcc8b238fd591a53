//! What an image means here: one of our samples, or a command that the operator chose for it.

use std::collections::BTreeMap;

use pods::runtime::Failure;
use serde::{Deserialize, Serialize};

use crate::samples;

const SAMPLES: &str = "selvedge.dev/sample/";

/// What a container starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Program {
    Sample { name: String, args: Vec<String> },
    Command(Vec<String>),
}

/// What stands for an image: what an image says of itself elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Image {
    /// What it starts. A container's `command` takes its place, and that of `cmd`.
    pub entrypoint: Vec<String>,
    /// Arguments, or all that it starts if there is no entrypoint. A container's `args` take its place.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cmd: Vec<String>,
    /// Variables that a container has unless it says otherwise.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Where a container starts that does not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// As whom a container runs that does not say it: `1000`, `1000:1000`, or the name of a user of this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

impl From<Vec<String>> for Image {
    /// A plain command: `args` are added to it.
    fn from(entrypoint: Vec<String>) -> Self {
        Self { entrypoint, ..Self::default() }
    }
}

/// Which images an operator maps to what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Images {
    known: BTreeMap<String, Image>,
}

/// What a container starts, with the rest that its image says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub program: Program,
    pub env: BTreeMap<String, String>,
    pub working_dir: Option<String>,
    pub user: Option<String>,
}

impl Images {
    pub fn new(images: impl IntoIterator<Item = (String, Image)>) -> Self {
        let starts = |image: &Image| !image.entrypoint.is_empty() || !image.cmd.is_empty();
        Self { known: images.into_iter().filter(|(_, image)| starts(image)).collect() }
    }

    /// `NAME=ENTRYPOINT… -- CMD…`, as on a command line: words are separated by blanks. Without `--` there is no
    /// CMD.
    pub fn parse(text: &str) -> Result<(String, Image), String> {
        let wrong = || {
            format!(
                "{text:?} maps no image: write it as in nginx=/usr/sbin/nginx -g 'daemon off;', or with arguments that \
                 a container's own replace behind --, as in reporter=/opt/reporter -- --verbose"
            )
        };
        // A digest has no `=`, so the first one ends the name.
        let (name, command) = text.split_once('=').ok_or_else(wrong)?;
        let (entrypoint, cmd) = halves(command);
        if name.trim().is_empty() || (entrypoint.is_empty() && cmd.is_empty()) {
            return Err(wrong());
        }
        Ok((name.trim().to_owned(), Image { entrypoint, cmd, ..Image::default() }))
    }

    /// What the image starts, with `command` and `args` of the container in place of its own: `command` replaces
    /// both, `args` the image's CMD.
    pub fn program(&self, image: &str, command: &[String], args: &[String]) -> Result<Found, Failure> {
        let found = self.entry(image)?;
        let program = match (&found, command) {
            (Entry::Sample(name), []) => Program::Sample { name: (*name).to_owned(), args: args.to_vec() },
            (Entry::Mapped(image), []) => {
                let args = if args.is_empty() { &image.cmd } else { args };
                Program::Command([&image.entrypoint, args].concat())
            }
            (_, command) => Program::Command([command, args].concat()),
        };
        let image = if let Entry::Mapped(image) = found { image.clone() } else { Image::default() };
        Ok(Found { program, env: image.env, working_dir: image.working_dir, user: image.user })
    }

    fn entry<'a>(&'a self, image: &'a str) -> Result<Entry<'a>, Failure> {
        if image.is_empty() || image.chars().any(|c| c.is_whitespace() || c.is_control()) {
            let message = format!("{image:?} is no image name");
            return Err(Failure { reason: "InvalidImageName", message });
        }
        if let Some(mapped) = self.known.get(image).or_else(|| self.known.get(repository(image))) {
            return Ok(Entry::Mapped(mapped));
        }
        let Some(name) = repository(image).strip_prefix(SAMPLES) else {
            let message = format!(
                "this edge runs processes and has no registry to pull {image} from. Use one of {}, map the image to a command of this machine with \
                 `selvedge edge --image {}=COMMAND`, or run an edge with --runtime kubelet",
                samples::NAMES.map(|name| format!("{SAMPLES}{name}")).join(", "),
                repository(image),
            );
            return Err(Failure { reason: "ErrImagePull", message });
        };
        if !samples::NAMES.contains(&name) {
            let message = format!("there is no sample {name:?}, only {}", samples::NAMES.join(", "));
            return Err(Failure { reason: "ErrImagePull", message });
        }
        Ok(Entry::Sample(name))
    }
}

enum Entry<'a> {
    Sample(&'a str),
    Mapped(&'a Image),
}

/// Without tag and digest. A colon before a slash is a port.
fn repository(image: &str) -> &str {
    let image = image.split_once('@').map_or(image, |(name, _)| name);
    match image.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => name,
        _ => image,
    }
}

/// Words by blanks; quotes keep blanks in a word. The first `--` without quotes parts them in two.
fn halves(text: &str) -> (Vec<String>, Vec<String>) {
    let (mut words, mut word, mut quote, mut quoted) = (Vec::new(), None::<String>, None, false);
    let mut first = None;
    // A blank at the end is a word's end, too.
    for c in text.chars().chain([' ']) {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => word.get_or_insert_default().push(c),
            None if c == '\'' || c == '"' => {
                (quote, quoted) = (Some(c), true);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => {
                match word.take() {
                    Some(word) if word == "--" && !quoted && first.is_none() => {
                        first = Some(std::mem::take(&mut words))
                    }
                    ended => words.extend(ended),
                }
                quoted = false;
            }
            None => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    match first {
        Some(first) => (first, words),
        None => (words, Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(list: &[&str]) -> Vec<String> {
        list.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn what_an_image_starts() {
        let images = Images::new([
            Images::parse("nginx=/usr/sbin/nginx -g 'daemon off;'").unwrap(),
            ("registry.example:5000/app".to_owned(), strings(&["/opt/app"]).into()),
            ("exact:2".to_owned(), strings(&["two"]).into()),
            Images::parse("acme/reporter=/x/reporter.sh --in -- --verbose 'two words'").unwrap(),
            Images::parse("only/cmd=-- sh -c 'echo x'").unwrap(),
            Images::parse("literal=grep '--' x").unwrap(),
        ]);
        let sample = |name: &str, args: &[&str]| Ok(Program::Sample { name: name.into(), args: strings(args) });
        let command = |list: &[&str]| Ok(Program::Command(strings(list)));
        for (image, given, args, program) in [
            ("selvedge.dev/sample/web", &[][..], &["--dir", "/srv"][..], sample("web", &["--dir", "/srv"])),
            ("selvedge.dev/sample/clock:v1", &[], &[], sample("clock", &[])),
            ("selvedge.dev/sample/web@sha256:00", &[], &[], sample("web", &[])),
            ("selvedge.dev/sample/web", &["sh", "-c"], &["true"], command(&["sh", "-c", "true"])),
            ("nginx", &[], &[], command(&["/usr/sbin/nginx", "-g", "daemon off;"])),
            ("nginx:1.29", &[], &["-t"], command(&["/usr/sbin/nginx", "-g", "daemon off;", "-t"])),
            ("nginx", &["sleep"], &["1"], command(&["sleep", "1"])),
            ("acme/reporter", &[], &[], command(&["/x/reporter.sh", "--in", "--verbose", "two words"])),
            ("acme/reporter:2", &[], &["-q"], command(&["/x/reporter.sh", "--in", "-q"])),
            ("acme/reporter", &["sh"], &[], command(&["sh"])),
            ("acme/reporter", &["sh"], &["-c"], command(&["sh", "-c"])),
            ("only/cmd", &[], &[], command(&["sh", "-c", "echo x"])),
            ("only/cmd", &[], &["true"], command(&["true"])),
            ("literal", &[], &[], command(&["grep", "--", "x"])),
            ("registry.example:5000/app", &[], &[], command(&["/opt/app"])),
            ("registry.example:5000/app:3@sha256:00", &[], &[], command(&["/opt/app"])),
            ("exact:2", &[], &[], command(&["two"])),
            ("exact:1", &[], &[], Err("ErrImagePull")),
            ("selvedge.dev/sample/nothing", &[], &[], Err("ErrImagePull")),
            ("redis", &["sh"], &[], Err("ErrImagePull")),
            ("two words", &[], &[], Err("InvalidImageName")),
            ("", &[], &[], Err("InvalidImageName")),
        ] {
            let found = images.program(image, &strings(given), &strings(args));
            assert_eq!(found.map(|found| found.program).map_err(|failure| failure.reason), program, "{image}");
        }
    }

    #[test]
    fn what_else_an_image_says() {
        let text = r#"{"entrypoint": ["/a"], "env": {"MODE": "x"}, "workingDir": "/srv", "user": "web"}"#;
        let image: Image = serde_json::from_str(text).unwrap();
        let found = Images::new([("a".to_owned(), image)]).program("a:1", &[], &[]).unwrap();
        assert_eq!((found.env["MODE"].as_str(), found.working_dir.as_deref()), ("x", Some("/srv")));
        assert_eq!(found.user.as_deref(), Some("web"));
        assert!(serde_json::from_str::<Image>(r#"{"entrypiont": []}"#).is_err());
    }

    #[test]
    fn what_is_refused_says_what_to_do() {
        let said = Images::default().program("redis:7", &[], &[]).unwrap_err().message;
        assert!(said.contains("--image redis=COMMAND") && said.contains("selvedge.dev/sample/web"), "{said}");
        for wrong in ["nginx", "=x", "nginx=", "nginx=  ", "nginx= -- ", ""] {
            assert!(Images::parse(wrong).is_err(), "{wrong}");
        }
    }
}
