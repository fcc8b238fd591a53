//! The home directory of the user that a container runs as, for a container that does not say which it is.

use std::{fs::File, io::Read};

const PASSWD: &str = "/etc/passwd";
/// The file may be the container's own, so that it can be of any size.
const LONGEST: u64 = 4 << 20;
/// As container runtimes have it for a user that is not listed.
const NOWHERE: &str = "/";

/// Adds `HOME` if there is none. To be called by the process of the container, where it sees the container's files
/// and is its user.
pub fn add(env: &mut Vec<(String, String)>) {
    if env.iter().any(|(name, _)| name == "HOME") {
        return;
    }
    let home = of(rustix::process::geteuid().as_raw(), &users());
    env.push(("HOME".to_owned(), home));
}

fn users() -> String {
    let mut text = Vec::new();
    // Anything else than a file may never end.
    let file = File::open(PASSWD).ok().filter(|file| file.metadata().is_ok_and(|found| found.is_file()));
    let _ = file.map(|file| file.take(LONGEST).read_to_end(&mut text));
    String::from_utf8_lossy(&text).into_owned()
}

/// The user and group that an image names: `1000`, `1000:1000`, or a user of this machine.
pub fn user_of(named: &str) -> Option<(u32, Option<u32>)> {
    user_in(named, &users())
}

fn user_in(named: &str, users: &str) -> Option<(u32, Option<u32>)> {
    let (user, group) = named.split_once(':').map_or((named, None), |(user, group)| (user, Some(group)));
    let group = group.map(|group| group.parse().ok());
    if group == Some(None) {
        return None;
    }
    let said = group.flatten();
    if let Ok(id) = user.parse() {
        return Some((id, said));
    }
    let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| fields[0] == user)?;
    let id = |at: usize| fields.get(at).and_then(|id: &&str| id.parse().ok());
    Some((id(2)?, said.or_else(|| id(3))))
}

/// `name:password:uid:gid:comment:home:shell`.
fn of(user: u32, users: &str) -> String {
    let home = users.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let is_it = fields.get(2).and_then(|id| id.parse().ok()) == Some(user);
        fields.get(5).filter(|home| is_it && home.starts_with('/')).copied()
    });
    home.unwrap_or(NOWHERE).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_home_is_where() {
        let users = "root:x:0:0:root:/root:/bin/sh\n# a comment\n\nodd:x:7\nweb:x:33:33::/var/www:\n\
                     none:x:34:34:::/bin/sh\nlast:x:35:35::/l";
        for (user, expected) in [(0, "/root"), (33, "/var/www"), (34, "/"), (35, "/l"), (7, "/"), (4711, "/")] {
            assert_eq!(of(user, users), expected, "{user}");
        }
        assert_eq!(of(0, ""), "/");
    }

    #[test]
    fn who_an_image_names() {
        let users = "root:x:0:0:root:/root:/bin/sh\nweb:x:33:34::/var/www:\nodd:x:y:z\n";
        for (named, expected) in [
            ("1000", Some((1000, None))),
            ("1000:2000", Some((1000, Some(2000)))),
            ("web", Some((33, Some(34)))),
            ("web:7", Some((33, Some(7)))),
            ("nobody-knows", None),
            ("odd", None),
            ("web:staff", None),
            ("", None),
        ] {
            assert_eq!(user_in(named, users), expected, "{named}");
        }
    }

    #[test]
    fn what_the_container_says_stays() {
        let mut env = vec![("HOME".to_owned(), "/app".to_owned())];
        add(&mut env);
        assert_eq!(env.len(), 1);
        env.clear();
        add(&mut env);
        assert!(env[0].1.starts_with('/'));
    }
}
