//! How much a workspace may hold: limits by its type, held against what is in it and below it.
//!
//! A limit covers the workspaces inside too, so that nobody gets more by making some. Deletions and what controllers write
//! are never refused.

use std::{
    fmt::Write as _,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
};

use request::ROOT;
use schema::status::{Result, Status};
use serde_json::Value;
use store::{Commit, Compare, Op, Revision};

use super::{Space, WORKSPACES, Workspaces, path};
use crate::call::Call;

/// What a type limits; what is missing is not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub objects: Option<u64>,
    /// Of all objects, as JSON.
    pub bytes: Option<u64>,
    /// In flight at one time.
    pub requests: Option<u64>,
}

impl Limits {
    pub fn of_type(value: &Value) -> Self {
        let limits = &value["spec"]["limits"];
        Self {
            objects: limits["objects"].as_u64(),
            bytes: limits["bytes"].as_u64(),
            requests: limits["requests"].as_u64(),
        }
    }

    fn and(self, other: Self) -> Self {
        let least = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).min();
        Self {
            objects: least(self.objects, other.objects),
            bytes: least(self.bytes, other.bytes),
            requests: least(self.requests, other.requests),
        }
    }
}

/// Room for one write, taken until the write can be seen and so is counted.
#[derive(Default)]
pub struct Room {
    /// Must hold when the write is committed: nothing is made in a workspace that is going away.
    pub compare: Option<Compare>,
    taken: Vec<Arc<Space>>,
    objects: i64,
    bytes: i64,
}

impl Drop for Room {
    fn drop(&mut self) {
        for space in &self.taken {
            space.more_objects.fetch_sub(self.objects, Relaxed);
            space.more_bytes.fetch_sub(self.bytes, Relaxed);
        }
    }
}

/// A write, as far as limits care.
pub struct Write {
    pub creates: bool,
    /// How many new ones come with it, itself included.
    pub objects: usize,
    pub size: usize,
    pub before: usize,
    /// The object is being deleted: finalizers must be able to come off it.
    pub leaving: bool,
    /// By the server itself.
    pub internal: bool,
}

impl Workspaces {
    /// What limits a workspace: its own type's limits and those of all that it lies in, whichever is least.
    pub fn limits(&self, path: &str) -> Limits {
        let all = self.limits.read().unwrap_or_else(PoisonError::into_inner);
        if all.is_empty() {
            return Limits::default();
        }
        let Some(space) = self.get(path) else { return Limits::default() };
        space.upwards().filter_map(|s| all.get(&*s.of_type()).copied()).fold(Limits::default(), Limits::and)
    }

    /// May this object be written where the call says? The answer must be kept until the write is done.
    pub fn admit(&self, call: &Call, key: &str, value: &Value, expected: Revision, commit: &Commit) -> Result<Room> {
        if call.cluster == ROOT {
            return Ok(Room::default());
        }
        let before = || call.server.cache.get(&call.kind.collection, key).map_or(0, |old| old.json.len());
        let (objects, size) = weigh(commit);
        let write = Write {
            creates: expected == 0,
            objects,
            size,
            before: if expected == 0 { 0 } else { before() },
            leaving: value["metadata"]["deletionTimestamp"].is_string(),
            internal: is_internal(call),
        };
        let name = key.splitn(3, '/').nth(2).unwrap_or_default();
        self.admit_in(&call.cluster, &write)
            .map_err(|why| Status::forbidden(call.kind.group(), call.kind.plural(), name, &why).with_causes(vec![]))
    }

    fn admit_in(&self, cluster: &str, write: &Write) -> Result<Room, String> {
        let gone = || format!("workspace {cluster} does not exist any more");
        let space = self.get(cluster).filter(|space| space.revision() != 0).ok_or_else(gone)?;
        let mut room = Room::default();
        if space.leaving.load(Relaxed) && (write.creates || !(write.leaving || write.internal)) {
            return Err(format!(
                "workspace {cluster} is being deleted with everything in it: nothing can be written there any more"
            ));
        }
        if write.creates {
            let key = path::object_key(cluster).ok_or_else(gone)?;
            room.compare = Some(Compare { key: format!("{WORKSPACES}/{key}"), modified: space.revision() });
        }
        if write.internal {
            return Ok(room);
        }
        let all = self.limits.read().unwrap_or_else(PoisonError::into_inner);
        if all.is_empty() {
            return Ok(room);
        }
        room.objects = write.objects as i64;
        room.bytes = (write.size as i64 - write.before as i64).max(0);
        for space in space.upwards() {
            let Some(limits) = all.get(&*space.of_type()) else { continue };
            // Taken first and then held against the limit, so that of two at once one sees the other.
            space.more_objects.fetch_add(room.objects, Relaxed);
            space.more_bytes.fetch_add(room.bytes, Relaxed);
            room.taken.push(space.clone());
            let all_objects = space.objects.load(Relaxed) + space.more_objects.load(Relaxed);
            let all_bytes = space.bytes.load(Relaxed) + space.more_bytes.load(Relaxed);
            for (what, wanted, used, limit) in
                [("objects", room.objects, all_objects, limits.objects), ("bytes", room.bytes, all_bytes, limits.bytes)]
            {
                if let Some(limit) =
                    limit.filter(|limit| wanted > 0 && used > i64::try_from(*limit).unwrap_or(i64::MAX))
                {
                    return Err(format!(
                        "exceeded the limit of workspace {}: {what}: requested {wanted}, used {}, limited to {limit} by its \
                         type {}. Delete something in it (or in workspaces inside it), or have the type's limits raised",
                        space.path,
                        used - wanted,
                        space.of_type().replace("//", ":"),
                    ));
                }
            }
        }
        Ok(room)
    }

    /// Whether a workspace has room for so much that nobody writes through its API, such as what its edges report. Why
    /// not, if not.
    pub fn has_room(&self, path: &str, objects: i64, bytes: i64) -> std::result::Result<(), String> {
        let all = self.limits.read().unwrap_or_else(PoisonError::into_inner);
        let Some(space) = self.get(path).filter(|_| path != ROOT && !all.is_empty()) else { return Ok(()) };
        for space in space.upwards() {
            let Some(limits) = all.get(&*space.of_type()) else { continue };
            let used = |count: &AtomicI64, more: &AtomicI64| count.load(Relaxed) + more.load(Relaxed);
            for (what, wanted, used, limit) in [
                ("objects", objects, used(&space.objects, &space.more_objects), limits.objects),
                ("bytes", bytes, used(&space.bytes, &space.more_bytes), limits.bytes),
            ] {
                let limit = limit.map(|limit| i64::try_from(limit).unwrap_or(i64::MAX));
                if let Some(limit) = limit.filter(|limit| wanted > 0 && used.saturating_add(wanted) > *limit) {
                    return Err(format!(
                        "exceeded the limit of workspace {}: {what}: requested {wanted}, used {used}, limited to {limit}",
                        space.path
                    ));
                }
            }
        }
        Ok(())
    }

    /// Counts bytes that are kept for a workspace besides its objects, or gives them back.
    pub fn count_bytes(&self, path: &str, bytes: i64) {
        if bytes != 0 {
            let space = self.space(path);
            space.add(0, bytes);
            self.forget_empty(&space);
        }
    }

    /// For `/metrics`: how many workspaces there are, and what is used of every limit.
    pub fn metrics(&self, out: &mut String) {
        let _ = writeln!(
            out,
            "# HELP selvedge_workspaces Workspaces besides root.\n# TYPE selvedge_workspaces gauge\nselvedge_workspaces {}",
            self.count()
        );
        let limits = self.limits.read().unwrap_or_else(PoisonError::into_inner);
        if limits.is_empty() {
            return;
        }
        let spaces = self.spaces.read().unwrap_or_else(PoisonError::into_inner);
        let limited: Vec<_> =
            spaces.values().filter(|s| s.revision() != 0 && limits.contains_key(&*s.of_type())).collect();
        type Read = fn(&Space) -> i64;
        let measures: [(&str, &str, Read); 2] = [
            ("objects", "Objects in a workspace with limits and below it.", |s| s.objects.load(Relaxed)),
            ("bytes", "Bytes of the objects in a workspace with limits and below it.", |s| s.bytes.load(Relaxed)),
        ];
        for (what, help, read) in measures {
            let name = format!("selvedge_workspace_{what}");
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge");
            for space in &limited {
                let _ = writeln!(out, "{name}{{workspace=\"{}\"}} {}", space.path, read(space));
            }
        }
    }
}

impl Space {
    fn of_type(&self) -> Box<str> {
        self.of_type.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// How many objects a commit makes, and how large they and the one that it is about are. The first key is that one's; what
/// else it changes (quotas) stays about the same.
fn weigh(commit: &Commit) -> (usize, usize) {
    let is_new = |key: &str| !key.starts_with("-/") && commit.compares.iter().any(|c| c.modified == 0 && c.key == key);
    let mut weight = (0, 0);
    for (i, op) in commit.ops.iter().enumerate() {
        let Op::Put { key, value } = op else { continue };
        let new = is_new(key);
        weight.0 += usize::from(new);
        if new || i == 0 {
            weight.1 += value.len();
        }
    }
    weight
}

/// The server writes for itself.
pub fn is_internal(call: &Call) -> bool {
    call.user.is_itself()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{workspaces::TYPES, workspaces::tests::change};
    use cache::ChangeKind;

    fn small(objects: u64, bytes: u64) -> Arc<Workspaces> {
        let all = Arc::new(Workspaces::default());
        let see = all.observer();
        let of = |name: &str| json!({"spec": {"type": {"path": "root", "name": name}}, "status": {"phase": "Ready"}});
        see(
            TYPES,
            &change(
                ChangeKind::Added,
                "root//small",
                &json!({"spec": {"limits": {"objects": objects, "bytes": bytes}}}),
                None,
            ),
        );
        see(TYPES, &change(ChangeKind::Added, "root//large", &json!({"spec": {"limits": {"requests": 7}}}), None));
        see(WORKSPACES, &change(ChangeKind::Added, "root//a", &of("small"), None));
        see(WORKSPACES, &change(ChangeKind::Added, "root:a//b", &of("large"), None));
        all
    }

    fn create(size: usize) -> Write {
        Write { creates: true, objects: 1, size, before: 0, leaving: false, internal: false }
    }

    #[test]
    fn limits_cover_what_is_below() {
        let all = small(3, 100_000);
        assert_eq!(all.limits("root:a"), Limits { objects: Some(3), bytes: Some(100_000), requests: None });
        assert_eq!(all.limits("root:a:b"), Limits { objects: Some(3), bytes: Some(100_000), requests: Some(7) });
        assert_eq!(all.limits("root"), Limits::default());
        assert_eq!(all.limits("root:none"), Limits::default());
        // One is there already: the inner workspace's own object.
        let first = all.admit_in("root:a:b", &create(10)).unwrap();
        let second = all.admit_in("root:a", &create(10)).unwrap();
        let why = all.admit_in("root:a:b", &create(10)).err().unwrap();
        assert!(
            why.contains("workspace root:a: objects: requested 1, used 3, limited to 3 by its type root:small"),
            "{why}"
        );
        assert!(all.admit_in("root:a:b", &Write { internal: true, ..create(10) }).is_ok());
        drop(second);
        assert!(all.admit_in("root:a:b", &create(10)).is_ok());
        drop(first);
        let space = all.get("root:a").unwrap();
        assert_eq!((space.more_objects.load(Relaxed), space.more_bytes.load(Relaxed)), (0, 0));
    }

    #[test]
    fn what_is_no_object_counts_as_well() {
        let all = small(1000, 1000);
        let used = all.get("root:a").unwrap().bytes.load(Relaxed);
        assert!(all.has_room("root:a:b", 1, 1000 - used).is_ok());
        all.count_bytes("root:a:b", 900 - used);
        let why = all.has_room("root:a:b", 0, 101).unwrap_err();
        assert!(why.contains("workspace root:a: bytes: requested 101, used 900, limited to 1000"), "{why}");
        assert!(all.admit_in("root:a", &create(101)).is_err() && all.has_room("root:a:b", 0, 100).is_ok());
        assert!(all.has_room("root", 0, 1 << 40).is_ok());
        all.count_bytes("root:a:b", used - 900);
        assert!(all.admit_in("root:a", &create(101)).is_ok());
        all.count_bytes("root:gone", -5);
        assert!(all.get("root:gone").is_none());
    }

    #[test]
    fn bytes_count_what_is_added() {
        let all = small(1000, 1000);
        let used = all.get("root:a").unwrap().bytes.load(Relaxed) as usize;
        let change = |size: usize, before: usize| Write {
            creates: false,
            objects: 0,
            size,
            before,
            leaving: false,
            internal: false,
        };
        assert!(all.admit_in("root:a", &create(1000 - used)).is_ok());
        assert!(all.admit_in("root:a", &create(1001 - used)).is_err());
        assert!(all.admit_in("root:a", &change(5000, 4900)).is_ok(), "only what is added counts");
        assert!(all.admit_in("root:a", &change(5000, 1000)).is_err());
        assert!(all.admit_in("root:a", &change(1000, 5000)).is_ok(), "getting smaller is always fine");
    }

    #[test]
    fn commits_are_weighed() {
        let put = |key: &str, size: usize| Op::Put { key: key.into(), value: vec![0; size].into() };
        let compare = |key: &str, modified| Compare { key: key.into(), modified };
        let create = Commit {
            compares: vec![compare("a/b/c", 0), compare("-/ports/1", 0), compare("a/quota", 7), compare("x/y", 0)],
            ops: vec![put("a/b/c", 10), put("-/ports/1", 100), put("a/quota", 1000), put("x/y", 5)],
        };
        assert_eq!(weigh(&create), (2, 15));
        let update = Commit { compares: vec![compare("a/b/c", 3)], ops: vec![put("a/b/c", 10)] };
        assert_eq!(weigh(&update), (0, 10));
    }

    #[test]
    fn nothing_is_made_in_what_is_going_away() {
        let all = small(1000, 100_000);
        let made = all.admit_in("root:a", &create(1)).unwrap();
        assert_eq!(made.compare, Some(Compare { key: "tenancy.kcp.io/workspaces/root//a".into(), modified: 2 }));
        drop(made);
        all.get("root:a").unwrap().leaving.store(true, Relaxed);
        let write = |creates, leaving, internal| Write { creates, objects: 1, size: 1, before: 0, leaving, internal };
        for (write, fine) in [
            (write(true, false, false), false),
            (write(true, false, true), false),
            (write(false, false, false), false),
            (write(false, true, false), true),
            (write(false, false, true), true),
        ] {
            assert_eq!(all.admit_in("root:a", &write).is_ok(), fine);
        }
        assert!(all.admit_in("root:none", &create(1)).is_err());
    }
}
