//! What a runtime has to do, done by asking the keeper.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    sync::PoisonError,
    time::Duration,
};

use async_trait::async_trait;
use pods::runtime::{
    Attached, Container, ContainerId, ContainerSpec, Failure, Limits, Mount, Output, Runtime, Usage, User,
};

use super::{
    Processes, attached,
    environment::{HOME, PASSED, Place, environment},
};
use crate::{
    capabilities, hidden, home,
    images::Program,
    protocol::{Answer, Permitted, Request, Start},
    root::{self, Links},
    view::{Identity, View, absolute},
};

fn strange(answer: &Answer) -> Failure {
    Failure { reason: "RuntimeUnavailable", message: format!("the keeper answers strangely: {answer:?}") }
}

fn done(answer: Answer) -> Result<(), Failure> {
    if matches!(answer, Answer::Done) { Ok(()) } else { Err(strange(&answer)) }
}

impl Processes {
    /// What can be held to here, once a keeper was asked.
    fn permitted(&self) -> Option<Permitted> {
        *self.permitted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the keeper is to start, and a root for it.
    async fn prepare(&self, mut container: ContainerSpec) -> Result<Start, Failure> {
        let found = self.options.images.program(&container.image, &container.command, &container.args)?;
        let wrong = |message: String| Failure { reason: "CreateContainerConfigError", message };
        container.user = user_of(container.user, found.user.as_deref()).map_err(wrong)?;
        let capabilities = capabilities::allowed(&container.capabilities).map_err(wrong)?;
        let hidden = if container.capabilities.privileged { Vec::new() } else { hidden::from_containers(&self.data) };
        is_seen(&found.program, &hidden, &container.mounts).map_err(wrong)?;
        let root = self.root(&container.id);
        let place = Place { node: &self.options.node, edge: &self.options.edge, root: &root, image: &found.env };
        let own = rustix::process::geteuid().as_raw();
        let mark = format!("SELVEDGE_ROOT={}", root.display());
        let (mounts, given) = (container.mounts.clone(), container.working_dir.clone().or(found.working_dir));
        let view = self.permitted().is_some_and(|permitted| permitted.views).then(|| View {
            stage: root.clone(),
            working_dir: given.as_deref().map(|dir| absolute(Path::new(dir))).filter(|dir| dir != Path::new("/")),
            hostname: container.hostname.clone(),
            user: Identity::of(&container.user, own),
            hidden,
        });
        let is_other = view.as_ref().and_then(|view| view.user.user).is_some_and(|user| user != own);
        let passed = PASSED.iter().filter(|name| !is_other || **name != HOME);
        let passed = passed.filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
        let env = environment(passed, &place, &container);
        let seen = view.as_ref().map(|view| view.working_dir.clone());
        let made = tasks::spawn_blocking("prepare-container", move || {
            root::make(&root, &mounts, if seen.is_some() { Links::Inside } else { Links::Outside })?;
            match seen {
                Some(dir) => Ok(dir.unwrap_or(root)),
                None => root::working_dir(&root, given.as_deref()),
            }
        });
        let failure = |message: String| Failure { reason: "CreateContainerError", message };
        let dir = made.await.map_err(|error| failure(error.to_string()))?;
        let dir = dir.map_err(|error| failure(format!("cannot make its root directory: {error}")))?;
        let processes = container.limits.processes.or(self.options.processes);
        Ok(Start {
            id: container.id,
            pod: container.pod,
            image: container.image,
            program: found.program,
            env,
            dir,
            mark,
            mounts: container.mounts,
            view,
            limits: Limits { processes, ..container.limits },
            log: container.log,
            terminal: container.tty,
            stdin: container.stdin,
            no_new_privileges: container.no_new_privileges,
            capabilities,
        })
    }
}

/// As whom a container runs: its own user, else that of its image.
fn user_of(mut user: User, of_image: Option<&str>) -> Result<User, String> {
    let Some(named) = of_image.filter(|_| user.id.is_none()) else { return Ok(user) };
    let Some((id, group)) = home::user_of(named) else {
        return Err(format!("its image is mapped to run as {named:?}, and this machine has no such user"));
    };
    if id == 0 && user.is_not_root {
        return Err("container has runAsNonRoot and image will run as root".to_owned());
    }
    (user.id, user.group) = (Some(id), user.group.or(group));
    Ok(user)
}

/// A program in a directory that containers do not see could not be started, and the reason would be hard to find.
fn is_seen(program: &Program, hidden: &[PathBuf], mounts: &[Mount]) -> Result<(), String> {
    let Program::Command(words) = program else { return Ok(()) };
    let path = Path::new(words.first().map_or("", String::as_str));
    let is_mounted = mounts.iter().any(|mount| path.starts_with(&mount.at));
    match hidden.iter().find(|dir| path.starts_with(dir)) {
        Some(dir) if !is_mounted => Err(format!(
            "{} is in {}, a data directory of Selvedge, which containers do not see: put the program elsewhere",
            path.display(),
            dir.display()
        )),
        _ => Ok(()),
    }
}

/// Without a view of its own, a container is a process of the user that the edge runs as, whoever it asks for.
fn other_user(name: &str, user: &User, own: u32) -> Option<String> {
    match user.id {
        Some(wanted) if wanted != own => {
            Some(format!("container {name} runs as user {own}, as the edge does, and not as {wanted}"))
        }
        None if user.is_not_root && own == 0 => {
            Some(format!("container {name} runs as root, as the edge does, although it asks not to"))
        }
        _ => None,
    }
}

/// Restrictions that a container asks for and that a process of the machine does not have.
fn unrestricted(name: &str, restrictions: &[String]) -> Option<String> {
    (!restrictions.is_empty()).then(|| {
        format!(
            "container {name} asks for {}, which has no effect here: it is a process of this machine. Where that \
             matters, run the pod on an edge with --runtime kubelet",
            restrictions.join(", ")
        )
    })
}

/// What a pod mounts by itself, if that is all, is no surprise to anybody.
fn unmounted(name: &str, mounts: &[Mount]) -> Option<String> {
    const USUAL: [&str; 4] =
        ["/dev/termination-log", "/etc/hosts", "/etc/resolv.conf", "/var/run/secrets/kubernetes.io/serviceaccount"];
    let one = mounts.iter().find(|mount| !USUAL.contains(&mount.at.as_str()))?;
    Some(format!(
        "container {name} finds {} and all else that it mounts below $SELVEDGE_ROOT only, and can write into what is read-only: \
         this edge may not make namespaces here",
        one.at
    ))
}

#[async_trait]
impl Runtime for Processes {
    fn version(&self) -> String {
        format!("process://{}", env!("CARGO_PKG_VERSION"))
    }

    async fn image(&self, image: &str) -> Result<(), Failure> {
        self.options.images.program(image, &[], &[])?;
        // The first container comes next, and before it is started somebody may ask what cannot be limited.
        let _ = self.link().await;
        Ok(())
    }

    async fn address(&self, pod: &str) -> Result<Option<IpAddr>, Failure> {
        let Some(range) = self.range else { return Ok(None) };
        match self.ask(&Request::Address { pod: pod.to_owned(), range }).await? {
            Answer::Address(address) => Ok(address.map(IpAddr::V4)),
            other => Err(strange(&other)),
        }
    }

    async fn start(&self, container: ContainerSpec) -> Result<Container, Failure> {
        // Its root must not be made again under one that runs.
        if let Answer::Containers(mut known) = self.ask(&Request::Find { id: container.id.clone() }).await?
            && let Some(known) = known.pop()
        {
            return Ok(known);
        }
        let start = self.prepare(container).await?;
        match self.ask(&Request::Start(Box::new(start))).await? {
            Answer::Started(container) => Ok(container),
            other => Err(strange(&other)),
        }
    }

    async fn signal(&self, id: &ContainerId, signal: i32) -> Result<(), Failure> {
        done(self.ask(&Request::Signal { id: id.clone(), signal }).await?)
    }

    async fn forget(&self, id: &ContainerId) -> Result<(), Failure> {
        done(self.ask(&Request::Forget { id: id.clone() }).await?)
    }

    async fn forget_pod(&self, pod: &str) -> Result<(), Failure> {
        if !self.has_kept() {
            return Ok(());
        }
        done(self.ask(&Request::ForgetPod { pod: pod.to_owned() }).await?)?;
        let root = self.dir.join(super::ROOTS).join(pod);
        // A pod's uid, and nothing that leads elsewhere.
        if Path::new(pod).components().count() == 1 && root.parent() == Some(&self.dir.join(super::ROOTS)) {
            let _ = tokio::fs::remove_dir_all(root).await;
        }
        Ok(())
    }

    async fn list(&self) -> Result<Vec<Container>, Failure> {
        if !self.has_kept() {
            return Ok(Vec::new());
        }
        match self.ask(&Request::List).await? {
            Answer::Containers(containers) => Ok(containers),
            other => Err(strange(&other)),
        }
    }

    async fn changed(&self) {
        self.changed.notified().await;
    }

    async fn exec(&self, id: &ContainerId, command: &[String], within: Duration) -> Result<Output, Failure> {
        let late = || Failure {
            reason: "DeadlineExceeded",
            message: format!("the command took longer than {} s", within.as_secs_f32()),
        };
        let opened = self.open(id, command, false, false);
        let run = async { attached::output(opened.await?).await };
        tokio::time::timeout(within, run).await.map_err(|_| late())?
    }

    async fn open(&self, id: &ContainerId, command: &[String], stdin: bool, tty: bool) -> Result<Attached, Failure> {
        self.link().await?;
        attached::open(&self.dir, id, command, stdin, tty).await
    }

    async fn attach(&self, id: &ContainerId, stdin: bool) -> Result<Attached, Failure> {
        self.link().await?;
        attached::attach(&self.dir, id, stdin).await
    }

    async fn usage(&self) -> Result<Vec<Usage>, Failure> {
        if !self.has_kept() {
            return Ok(Vec::new());
        }
        match self.ask(&Request::Usage).await? {
            Answer::Usage(all) => Ok(all.into_iter().map(Usage::from).collect()),
            other => Err(strange(&other)),
        }
    }

    fn shortcomings(&self, container: &ContainerSpec) -> Vec<String> {
        let Some(permitted) = self.permitted() else { return Vec::new() };
        let Limits { cpu_millis, memory_bytes, processes } = container.limits;
        let name = &container.id.name;
        let mut said = Vec::new();
        if !permitted.views {
            said.extend(other_user(name, &container.user, rustix::process::geteuid().as_raw()));
            said.extend(unmounted(name, &container.mounts));
        }
        said.extend(unrestricted(name, &container.restrictions));
        let may_not = "this edge may not make control groups here";
        if cpu_millis.is_some() && !permitted.cpu {
            said.push(format!("container {name} has no limit of CPU: {may_not}"));
        }
        if memory_bytes.is_some() && !permitted.memory {
            said.push(format!("the limit of memory of container {name} holds for each of its processes: {may_not}"));
        }
        if processes.is_some() && !permitted.processes {
            said.push(format!("container {name} has no limit of processes: {may_not}"));
        }
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_may_say_as_whom_it_runs() {
        let asked = |id, is_not_root| User { id, is_not_root, ..User::default() };
        assert_eq!(
            user_of(asked(None, false), Some("1000:7")).map(|user| (user.id, user.group)),
            Ok((Some(1000), Some(7)))
        );
        assert_eq!(user_of(asked(Some(5), false), Some("1000")).map(|user| user.id), Ok(Some(5)));
        assert_eq!(user_of(asked(None, true), None).map(|user| user.id), Ok(None));
        assert!(user_of(asked(None, true), Some("0")).unwrap_err().contains("runAsNonRoot"));
        assert!(user_of(asked(None, false), Some("nobody-knows-them")).is_err());
    }

    #[test]
    fn a_program_that_cannot_be_seen_is_named() {
        let command = |path: &str| Program::Command(vec![path.to_owned()]);
        let hidden = [PathBuf::from("/var/lib/edge")];
        let at = |at: &str| [Mount { from: "/x".into(), at: at.into(), read_only: true }];
        assert!(is_seen(&command("/var/lib/edge/run"), &hidden, &[]).unwrap_err().contains("/var/lib/edge/run"));
        assert_eq!(is_seen(&command("/var/lib/edge/run"), &hidden, &at("/var/lib/edge")), Ok(()));
        assert_eq!(is_seen(&command("/var/lib/edges"), &hidden, &[]), Ok(()));
        assert_eq!(is_seen(&command("sh"), &hidden, &[]), Ok(()));
    }

    #[test]
    fn whoever_wants_to_be_somebody_else_is_told() {
        for (id, is_not_root, own, expected) in [
            (None, false, 0, None),
            (None, true, 0, Some("container c runs as root, as the edge does, although it asks not to")),
            (None, true, 1000, None),
            (Some(1000), true, 1000, None),
            (Some(1000), true, 0, Some("container c runs as user 0, as the edge does, and not as 1000")),
        ] {
            assert_eq!(other_user("c", &User { id, is_not_root, ..User::default() }, own).as_deref(), expected);
        }
    }
}
