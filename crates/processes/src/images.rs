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

/// Which images an operator maps to which commands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Images {
    commands: BTreeMap<String, Vec<String>>,
}

impl Images {
    pub fn new(commands: impl IntoIterator<Item = (String, Vec<String>)>) -> Self {
        Self { commands: commands.into_iter().filter(|(_, command)| !command.is_empty()).collect() }
    }

    /// `NAME=COMMAND…`, as on a command line: words are separated by blanks.
    pub fn parse(text: &str) -> Result<(String, Vec<String>), String> {
        let wrong = || format!("{text:?} maps no image: write it as in nginx=/usr/sbin/nginx -g 'daemon off;'");
        // A digest has no `=`, so the first one ends the name.
        let (name, command) = text.split_once('=').ok_or_else(wrong)?;
        let command = words(command);
        if name.trim().is_empty() || command.is_empty() {
            return Err(wrong());
        }
        Ok((name.trim().to_owned(), command))
    }

    /// What the image starts, with `command` and `args` of the container in place of its own.
    pub fn program(&self, image: &str, command: &[String], args: &[String]) -> Result<Program, Failure> {
        let entry = self.entry(image)?;
        Ok(match (entry, command) {
            (Entry::Sample(name), []) => Program::Sample { name: name.to_owned(), args: args.to_vec() },
            (Entry::Command(of_image), []) => Program::Command([of_image, args].concat()),
            (_, command) => Program::Command([command, args].concat()),
        })
    }

    fn entry<'a>(&'a self, image: &'a str) -> Result<Entry<'a>, Failure> {
        if image.is_empty() || image.chars().any(|c| c.is_whitespace() || c.is_control()) {
            let message = format!("{image:?} is no image name");
            return Err(Failure { reason: "InvalidImageName", message });
        }
        if let Some(command) = self.commands.get(image).or_else(|| self.commands.get(repository(image))) {
            return Ok(Entry::Command(command));
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
    Command(&'a [String]),
}

/// Without tag and digest. A colon before a slash is a port.
fn repository(image: &str) -> &str {
    let image = image.split_once('@').map_or(image, |(name, _)| name);
    match image.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => name,
        _ => image,
    }
}

/// Words by blanks; quotes keep blanks in a word.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in text.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => word.get_or_insert_default().push(c),
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take()),
            None => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
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
            ("registry.example:5000/app".to_owned(), strings(&["/opt/app"])),
            ("exact:2".to_owned(), strings(&["two"])),
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
            ("registry.example:5000/app", &[], &[], command(&["/opt/app"])),
            ("registry.example:5000/app:3@sha256:00", &[], &[], command(&["/opt/app"])),
            ("exact:2", &[], &[], command(&["two"])),
            ("exact:1", &[], &[], Err("ErrImagePull")),
            ("selvedge.dev/sample/nothing", &[], &[], Err("ErrImagePull")),
            ("redis", &["sh"], &[], Err("ErrImagePull")),
            ("two words", &[], &[], Err("InvalidImageName")),
            ("", &[], &[], Err("InvalidImageName")),
        ] {
            let found = images.program(image, &strings(given), &strings(args)).map_err(|failure| failure.reason);
            assert_eq!(found, program, "{image}");
        }
    }

    #[test]
    fn what_is_refused_says_what_to_do() {
        let said = Images::default().program("redis:7", &[], &[]).unwrap_err().message;
        assert!(said.contains("--image redis=COMMAND") && said.contains("selvedge.dev/sample/web"), "{said}");
        for wrong in ["nginx", "=x", "nginx=", "nginx=  ", ""] {
            assert!(Images::parse(wrong).is_err(), "{wrong}");
        }
    }
}
