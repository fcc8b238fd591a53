//! Decides where mounts go, and which directories have to be put together anew for them.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

/// Where something is mounted: `rest` is what has to be made below `base`, which is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    pub base: PathBuf,
    pub rest: PathBuf,
    /// Which of those that were asked for.
    pub of: usize,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Directories of this machine that lack a mount point, inner ones first.
    pub anew: Vec<PathBuf>,
    /// Outer ones first.
    pub points: Vec<Point>,
}

impl Point {
    pub fn place(&self) -> PathBuf {
        // Joining nothing would add a slash.
        if self.rest.as_os_str().is_empty() { self.base.clone() } else { self.base.join(&self.rest) }
    }
}

/// `real` says what a path of this machine is without links, if it is anything.
pub fn plan(wanted: &[PathBuf], real: impl Fn(&Path) -> Option<PathBuf>) -> Plan {
    let mut found: Vec<Point> = wanted
        .iter()
        .enumerate()
        .map(|(of, path)| {
            let (base, rest) = deepest(path, &real);
            Point { base, rest, of }
        })
        .collect();
    found.sort_by_key(|point| point.place().components().count());
    let mut anew = BTreeSet::new();
    let mut points: Vec<Point> = Vec::with_capacity(found.len());
    for mut point in found {
        let place = point.place();
        let around = points.iter().map(Point::place).filter(|outer| place.starts_with(outer));
        if let Some(outer) = around.max_by_key(|outer| outer.components().count()) {
            // Within another mount: it is that one's directory in which it is made.
            point.rest = place.strip_prefix(&outer).unwrap_or(Path::new("")).to_owned();
            point.base = outer;
        } else if !point.rest.as_os_str().is_empty() {
            anew.insert(point.base.clone());
        }
        points.push(point);
    }
    Plan { anew: anew.into_iter().rev().collect(), points }
}

/// The part of a path that is there, without links, and the part that is not.
fn deepest(path: &Path, real: impl Fn(&Path) -> Option<PathBuf>) -> (PathBuf, PathBuf) {
    for part in path.ancestors() {
        if let Some(base) = real(part) {
            return (base, path.strip_prefix(part).unwrap_or(Path::new("")).to_owned());
        }
    }
    (PathBuf::from("/"), path.strip_prefix("/").unwrap_or(path).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(path: &Path) -> Option<PathBuf> {
        let there = ["/", "/etc", "/etc/hosts", "/run", "/var", "/usr", "/usr/share", "/srv", "/srv/www"];
        let path = match path.strip_prefix("/var/run") {
            Ok(rest) if rest.as_os_str().is_empty() => PathBuf::from("/run"),
            Ok(rest) => Path::new("/run").join(rest),
            Err(_) => path.to_owned(),
        };
        there.contains(&path.to_str()?).then_some(path)
    }

    #[test]
    fn where_things_go_and_what_is_made_for_them() {
        type Case<'a> = (&'a [&'a str], &'a [&'a str], &'a [(&'a str, &'a str, usize)]);
        let cases: &[Case<'_>] = &[
            (&["/srv/www", "/etc/hosts"], &[], &[("/srv/www", "", 0), ("/etc/hosts", "", 1)]),
            (&["/etc/app"], &["/etc"], &[("/etc", "app", 0)]),
            (&["/var/run/secrets/token", "/data"], &["/run", "/"], &[("/", "data", 1), ("/run", "secrets/token", 0)]),
            // What is mounted within another is made in that one, not on the machine.
            (&["/data/etc", "/data"], &["/"], &[("/", "data", 1), ("/data", "etc", 0)]),
            (&["/usr/share/x/y", "/usr"], &[], &[("/usr", "", 1), ("/usr", "share/x/y", 0)]),
            (
                &["/srv/www/a/b", "/srv/www/a", "/srv/www"],
                &[],
                &[("/srv/www", "", 2), ("/srv/www", "a", 1), ("/srv/www/a", "b", 0)],
            ),
            // The later one of two at the same place covers the other.
            (&["/srv", "/srv"], &[], &[("/srv", "", 0), ("/srv", "", 1)]),
            (&["/var/run/a", "/run/b"], &["/run"], &[("/run", "a", 0), ("/run", "b", 1)]),
        ];
        for (wanted, anew, points) in cases {
            let wanted: Vec<PathBuf> = wanted.iter().map(PathBuf::from).collect();
            let point =
                |(base, rest, of): &(&str, &str, usize)| Point { base: base.into(), rest: rest.into(), of: *of };
            let expected =
                Plan { anew: anew.iter().map(PathBuf::from).collect(), points: points.iter().map(point).collect() };
            assert_eq!(plan(&wanted, machine), expected, "{wanted:?}");
        }
    }
}
