//! Control groups, where we may make some: below the group that the keeper itself is in, in a directory of this edge's own.
//!
//! Version 2 has all controllers in one tree, version 1 a tree for each. Where neither can be had, containers are not limited, and the runtime
//! says so.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use pods::runtime::Limits;
use serde::{Deserialize, Serialize};

use crate::protocol::Permitted;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Controller {
    Cpu,
    Account,
    Memory,
    Pids,
}

impl Controller {
    fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Account => "cpuacct",
            Self::Memory => "memory",
            Self::Pids => "pids",
        }
    }
}

const FIRST: [Controller; 4] = [Controller::Cpu, Controller::Account, Controller::Memory, Controller::Pids];
const SECOND: [Controller; 3] = [Controller::Cpu, Controller::Memory, Controller::Pids];

/// The directories in which groups for containers are made.
#[derive(Debug)]
pub struct Groups {
    is_second: bool,
    /// Several controllers may share one.
    directories: BTreeMap<Controller, PathBuf>,
}

impl Groups {
    /// Whatever is permitted here, below `name`.
    pub fn find(name: &str) -> Self {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        Self::second(&own, &mounts, name).unwrap_or_else(|| Self::first(&own, &mounts, name))
    }

    /// What an earlier keeper left is ended and removed.
    pub fn remove_left(&self) {
        for directory in self.distinct() {
            for left in fs::read_dir(directory).into_iter().flatten().flatten() {
                if left.file_type().is_ok_and(|kind| kind.is_dir()) {
                    let group =
                        Group { is_second: self.is_second, directories: [(Controller::Pids, left.path())].into() };
                    group.kill();
                    group.remove();
                }
            }
        }
    }

    fn second(own: &str, mounts: &str, name: &str) -> Option<Self> {
        let base = place(own, mounts, None)?;
        let offered = fs::read_to_string(base.join("cgroup.controllers")).ok()?;
        let offered = |controller: &Controller| offered.split_whitespace().any(|one| one == controller.name());
        if !SECOND.iter().any(offered) {
            return None;
        }
        let all: Vec<Controller> = SECOND.into_iter().filter(offered).collect();
        pass_on(&base, &all).or_else(|_| move_ourselves_aside(&base).and_then(|()| pass_on(&base, &all))).ok()?;
        let directory = base.join(name);
        make(&directory).ok()?;
        pass_on(&directory, &all).ok()?;
        let directories = all.into_iter().map(|controller| (controller, directory.clone())).collect();
        Some(Self { is_second: true, directories })
    }

    fn first(own: &str, mounts: &str, name: &str) -> Self {
        let directory = |controller: Controller| {
            let directory = place(own, mounts, Some(controller.name()))?.join(name);
            make(&directory).ok()?;
            Some((controller, directory))
        };
        Self { is_second: false, directories: FIRST.into_iter().filter_map(directory).collect() }
    }

    fn distinct(&self) -> Vec<&PathBuf> {
        let mut all: Vec<&PathBuf> = self.directories.values().collect();
        all.dedup();
        all
    }

    pub fn permitted(&self) -> Permitted {
        let has = |controller| self.directories.contains_key(&controller);
        Permitted {
            cpu: has(Controller::Cpu),
            memory: has(Controller::Memory),
            processes: has(Controller::Pids),
            views: false,
        }
    }

    /// A group for one container, with as many of its limits as are permitted. None if none is.
    pub fn make(&self, name: &str, limits: &Limits) -> io::Result<Option<Group>> {
        let wanted = |controller: Controller| match controller {
            Controller::Cpu | Controller::Account => limits.cpu_millis.is_some(),
            Controller::Memory => limits.memory_bytes.is_some(),
            Controller::Pids => limits.processes.is_some(),
        };
        let directories: BTreeMap<Controller, PathBuf> = self
            .directories
            .iter()
            .filter(|(controller, _)| wanted(**controller))
            .map(|(controller, directory)| (*controller, directory.join(name)))
            .collect();
        if directories.is_empty() {
            return Ok(None);
        }
        let group = Group { is_second: self.is_second, directories };
        for directory in group.distinct() {
            make(directory)?;
        }
        match group.limit(limits) {
            Ok(()) => Ok(Some(group)),
            Err(error) => {
                group.remove();
                Err(error)
            }
        }
    }

    /// Nothing is left behind by a keeper that leaves for good.
    pub fn remove(&self) {
        for directory in self.distinct() {
            let _ = fs::remove_dir(directory);
        }
    }
}

/// The group of one container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Group {
    is_second: bool,
    directories: BTreeMap<Controller, PathBuf>,
}

impl Group {
    fn distinct(&self) -> Vec<&PathBuf> {
        let mut all: Vec<&PathBuf> = self.directories.values().collect();
        all.dedup();
        all
    }

    fn limit(&self, limits: &Limits) -> io::Result<()> {
        // A tenth of a second is what the kernel takes, too; less than a hundredth of a core cannot be said.
        let quota = limits.cpu_millis.map(|millis| (millis * 100).max(1000));
        for (controller, directory) in &self.directories {
            let set = |file: &str, value: String| fs::write(directory.join(file), value);
            match (controller, self.is_second) {
                (Controller::Cpu, true) => {
                    quota.map_or(Ok(()), |quota| set("cpu.max", format!("{quota} 100000")))?;
                }
                (Controller::Cpu, false) => {
                    quota.map_or(Ok(()), |quota| set("cpu.cfs_quota_us", quota.to_string()))?;
                }
                (Controller::Memory, second) => {
                    let Some(bytes) = limits.memory_bytes else { continue };
                    set(if second { "memory.max" } else { "memory.limit_in_bytes" }, bytes.to_string())?;
                    // Where there is swap, it is no way round the limit; and all processes of a container end together.
                    if second {
                        let _ = set("memory.swap.max", "0".into());
                        let _ = set("memory.oom.group", "1".into());
                    } else {
                        let _ = set("memory.memsw.limit_in_bytes", bytes.to_string());
                    }
                }
                (Controller::Pids, _) => {
                    limits.processes.map_or(Ok(()), |most| set("pids.max", most.to_string()))?;
                }
                (Controller::Account, _) => {}
            }
        }
        Ok(())
    }

    pub fn join(&self, pid: i32) -> io::Result<()> {
        self.distinct().into_iter().try_for_each(|directory| fs::write(directory.join("cgroup.procs"), pid.to_string()))
    }

    pub fn processes(&self) -> Vec<i32> {
        let Some(directory) = self.directories.values().next() else { return Vec::new() };
        let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// All of them at once where the kernel can, else one after the other.
    pub fn kill(&self) {
        let at_once =
            self.distinct().into_iter().any(|directory| fs::write(directory.join("cgroup.kill"), "1").is_ok());
        if !at_once {
            for pid in self.processes() {
                crate::os::kill(pid);
            }
        }
    }

    fn number(&self, controller: Controller, file: &str) -> Option<u64> {
        fs::read_to_string(self.directories.get(&controller)?.join(file)).ok()?.trim().parse().ok()
    }

    fn field(&self, controller: Controller, file: &str, field: &str) -> Option<u64> {
        let text = fs::read_to_string(self.directories.get(&controller)?.join(file)).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(' '))?;
        line.trim().parse().ok()
    }

    pub fn cpu_nanos(&self) -> Option<u64> {
        match self.is_second {
            true => self.field(Controller::Cpu, "cpu.stat", "usage_usec").map(|micros| micros * 1000),
            false => self.number(Controller::Account, "cpuacct.usage"),
        }
    }

    /// Without the cache that could be dropped at once, as kubelets count.
    pub fn memory_bytes(&self) -> Option<u64> {
        let (usage, inactive) = match self.is_second {
            true => ("memory.current", "inactive_file"),
            false => ("memory.usage_in_bytes", "total_inactive_file"),
        };
        let cache = self.field(Controller::Memory, "memory.stat", inactive).unwrap_or(0);
        Some(self.number(Controller::Memory, usage)?.saturating_sub(cache))
    }

    pub fn was_out_of_memory(&self) -> bool {
        let file = if self.is_second { "memory.events" } else { "memory.oom_control" };
        self.field(Controller::Memory, file, "oom_kill").is_some_and(|times| times > 0)
    }

    /// A group can be removed when its last process is gone, which a killed one is soon.
    pub fn remove(self) {
        for directory in self.distinct() {
            let until = Instant::now() + Duration::from_millis(200);
            while let Err(error) = fs::remove_dir(directory) {
                if error.kind() == io::ErrorKind::NotFound || Instant::now() > until {
                    break;
                }
                self.kill();
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

fn make(directory: &Path) -> io::Result<()> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        done => done,
    }
}

/// Version 2: children have a controller only if their parent passes it on.
fn pass_on(directory: &Path, controllers: &[Controller]) -> io::Result<()> {
    let file = directory.join("cgroup.subtree_control");
    let given = fs::read_to_string(&file)?;
    let missing: Vec<String> = controllers
        .iter()
        .filter(|controller| !given.split_whitespace().any(|one| one == controller.name()))
        .map(|controller| format!("+{}", controller.name()))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    fs::write(file, missing.join(" "))
}

/// Version 2: a group with processes of its own can pass nothing on. If they are all ours, they can sit one level deeper.
fn move_ourselves_aside(base: &Path) -> io::Result<()> {
    let program = fs::read_link("/proc/self/exe")?;
    let text = fs::read_to_string(base.join("cgroup.procs"))?;
    let is_ours = |pid: &str| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|found| found == program);
    if !text.lines().all(is_ours) {
        return Err(io::Error::other("the group has processes that are not ours"));
    }
    let aside = base.join("selvedge");
    make(&aside)?;
    text.lines().try_for_each(|pid| fs::write(aside.join("cgroup.procs"), pid))
}

/// The directory of our own group: for a controller of version 1, or the tree of version 2.
fn place(own: &str, mounts: &str, controller: Option<&str>) -> Option<PathBuf> {
    let lists = |list: &str| controller.is_some_and(|name| list.split(',').any(|one| one == name));
    let path = own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (number, list, path) = (parts.next()?, parts.next()?, parts.next()?);
        let is_it = if controller.is_some() { lists(list) } else { number == "0" && list.is_empty() };
        is_it.then_some(path)
    })?;
    mounts.lines().find_map(|line| {
        let (mount, about) = line.split_once(" - ")?;
        let mut about = about.split(' ');
        let is_it = match (about.next()?, controller) {
            ("cgroup2", None) => true,
            ("cgroup", Some(_)) => lists(about.nth(1)?),
            _ => false,
        };
        if !is_it {
            return None;
        }
        let mut fields = mount.split(' ').skip(3);
        let (root, at) = (fields.next()?, fields.next()?);
        // Seen from within another namespace, the path may be above what is mounted: then our group is the root of it.
        let below = path.strip_prefix(root.trim_end_matches('/')).unwrap_or("").trim_start_matches('/');
        Some(Path::new(at).join(below))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_our_group_is() {
        let first = "9:pids:/\n4:memory:/box/1\n2:cpu,cpuacct:/\n0::/\n";
        let mounts = "\
30 24 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
";
        let second = "0::/user.slice/a.service\n";
        let unified = "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
        let bound = "30 24 0:26 /box /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        for (own, mounts, controller, expected) in [
            (first, mounts, Some("cpu"), Some("/sys/fs/cgroup/cpu,cpuacct")),
            (first, mounts, Some("cpuacct"), Some("/sys/fs/cgroup/cpu,cpuacct")),
            (first, mounts, Some("memory"), Some("/sys/fs/cgroup/memory/box/1")),
            (first, mounts, Some("pids"), None),
            (first, mounts, None, Some("/sys/fs/cgroup/unified")),
            (second, unified, None, Some("/sys/fs/cgroup/user.slice/a.service")),
            (second, unified, Some("cpu"), None),
            ("0::/box/c\n", bound, None, Some("/sys/fs/cgroup/c")),
            ("0::/../x\n", bound, None, Some("/sys/fs/cgroup")),
            ("", "", None, None),
            ("0", "a - b", Some("cpu"), None),
        ] {
            let found = place(own, mounts, controller);
            assert_eq!(found.as_deref(), expected.map(Path::new), "{own} {controller:?}");
        }
    }

    /// As far as this machine permits it; what it does not is left out, as it would be for containers.
    #[test]
    fn a_group_is_made_limits_and_is_gone() {
        let name = format!("selvedge-test-{}", std::process::id());
        let groups = Groups::find(&name);
        let permitted = groups.permitted();
        let limits = Limits { cpu_millis: Some(500), memory_bytes: Some(64 << 20), processes: Some(7) };
        let Some(group) = groups.make("one", &limits).unwrap() else {
            assert_eq!(permitted, Permitted::default());
            return;
        };
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        group.join(child.id() as i32).unwrap();
        assert!(group.processes().contains(&(child.id() as i32)));
        if permitted.memory {
            assert!(group.memory_bytes().is_some());
            assert!(!group.was_out_of_memory());
        }
        assert_eq!(permitted.cpu, group.cpu_nanos().is_some());
        if permitted.processes {
            assert_eq!(group.number(Controller::Pids, "pids.max"), Some(7));
        }
        let places: Vec<PathBuf> = group.distinct().into_iter().cloned().collect();
        group.kill();
        child.wait().unwrap();
        group.remove();
        groups.remove();
        assert!(places.iter().all(|place| !place.exists() && !place.parent().unwrap().exists()), "{places:?}");
    }
}
