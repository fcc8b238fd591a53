//! From a container in a pod to what the runtime is told: nothing is left to be looked up.

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use k8s_openapi::api::core::v1::{Container, Pod};

use super::{etc, files, logs, messages, services::Catalog, sources};
use crate::{
    downward::Place,
    environment,
    referred::Ref,
    resources,
    runtime::{ContainerId, ContainerSpec, Failure, Mount, User},
    security, spec, volumes,
};

/// What a start needs to know.
pub struct Start {
    pub data: PathBuf,
    pub pod: Arc<Pod>,
    pub id: ContainerId,
    pub used: BTreeMap<Ref, Arc<sources::Source>>,
    pub claims: Arc<volumes::Claims>,
    pub catalog: Arc<Catalog>,
    pub place: Place,
    /// Variables that every container gets unless it has its own.
    pub environment: Arc<[(String, String)]>,
    /// What answers for the names of Services.
    pub resolver: Option<SocketAddr>,
}

impl Start {
    /// With what the pod is to be warned of.
    pub async fn spec(&self) -> Result<(ContainerSpec, Vec<String>), Failure> {
        let wrong = |message: String| Failure { reason: "CreateContainerConfigError", message };
        let container = spec::container(&self.pod, &self.id.name);
        let container = container.ok_or_else(|| wrong(format!("the pod has no container {:?}", self.id.name)))?;
        let referred = sources::read(&self.used).await.map_err(wrong)?;
        let links = self.pod.spec.as_ref().and_then(|spec| spec.enable_service_links).unwrap_or(true);
        let services = self.catalog.seen_from(spec::namespace(&self.pod), links).await.map_err(wrong)?;
        let dir = files::dir(&self.data, &self.id.pod);
        let mounted = volumes::Mounted { dir: &dir, claims: &self.claims };
        let read = environment::files_of(&container).filter_map(|(volume, path)| {
            let text = mounted.read(&self.pod, &volume, &path)?;
            Some(((volume, path), text))
        });
        let read = read.collect();
        let made = environment::of(&self.pod, &container, &referred, &read, &services, &self.place);
        let mut variables = made.map_err(wrong)?;
        self.add_own(&container, &mut variables);
        let mut mounts = volumes::mounts(&self.pod, &container, &mounted, &variables).map_err(wrong)?;
        let user = self.user(&container).map_err(wrong)?;
        let own = etc::make(&dir, &self.pod, &self.place, self.resolver, &mounts);
        let (own, warnings) = own.map_err(|error| wrong(format!("cannot make the pod's files of /etc: {error}")))?;
        mounts.extend(own);
        mounts.push(self.message_file(&dir, &container).map_err(|error| wrong(error.to_string()))?);
        let log = logs::of(&self.data, &self.pod, &self.id);
        if let Some(parent) = log.parent() {
            fs::create_dir_all(parent).map_err(|error| wrong(format!("cannot make {}: {error}", parent.display())))?;
        }
        let spec = ContainerSpec {
            id: self.id.clone(),
            pod: format!("{}/{}", spec::namespace(&self.pod), spec::name(&self.pod)),
            image: container.image.clone().unwrap_or_default(),
            command: environment::expand_all(container.command.as_ref(), &variables),
            args: environment::expand_all(container.args.as_ref(), &variables),
            working_dir: container.working_dir.clone().filter(|dir| !dir.is_empty()),
            mounts,
            limits: resources::limits(&container),
            address: self.place.address,
            log,
            tty: container.tty.unwrap_or_default(),
            stdin: container.stdin.unwrap_or_default(),
            user,
            hostname: spec::hostname(&self.pod),
            no_new_privileges: security::forbids_new_privileges(&container),
            capabilities: security::capabilities(&container),
            restrictions: security::restrictions(&self.pod, &container),
            env: variables,
        };
        Ok((spec, warnings))
    }

    /// What a program without a network of its own needs to know to listen at the right place.
    fn add_own(&self, container: &Container, variables: &mut Vec<(String, String)>) {
        let mut add = |name: &str, value: String| {
            if variables.iter().all(|(known, _)| known != name) {
                variables.push((name.to_owned(), value));
            }
        };
        let address = self.place.address.unwrap_or(self.place.host).to_string();
        add("HOSTNAME", spec::hostname(&self.pod));
        add("POD_IP", address.clone());
        add("HOST", address);
        if let Some(port) = container.ports.iter().flatten().next() {
            add("PORT", port.container_port.to_string());
        }
        for (name, value) in &*self.environment {
            add(name, value.clone());
        }
    }

    fn user(&self, container: &Container) -> Result<User, String> {
        let own = container.security_context.as_ref();
        let whole = self.pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
        let number = |value: i64| u32::try_from(value).ok();
        let id = spec::run_as_user(&self.pod, container);
        let group = own.and_then(|own| own.run_as_group).or_else(|| whole?.run_as_group);
        let is_not_root = own.and_then(|own| own.run_as_non_root).or_else(|| whole?.run_as_non_root);
        if id == Some(0) && is_not_root == Some(true) {
            let (pod, name) = (spec::full_name(&self.pod), &container.name);
            return Err(format!("container's runAsUser breaks non-root policy (pod: {pod:?}, container: {name})"));
        }
        let supplemental = whole.and_then(|whole| whole.supplemental_groups.as_deref()).unwrap_or_default();
        let groups = supplemental.iter().copied().chain(whole.and_then(|whole| whole.fs_group));
        Ok(User {
            id: id.and_then(number),
            group: group.and_then(number),
            groups: groups.filter_map(number).collect(),
            is_not_root: is_not_root.unwrap_or_default(),
        })
    }

    /// Whoever the container runs as may write into it: its directory is the agent's.
    fn message_file(&self, dir: &Path, container: &Container) -> std::io::Result<Mount> {
        let from = messages::file(dir, &self.id);
        if let Some(parent) = from.parent() {
            fs::create_dir_all(parent)?;
        }
        let file = fs::OpenOptions::new().create(true).append(true).open(&from)?;
        file.set_permissions(fs::Permissions::from_mode(0o666))?;
        let at = container.termination_message_path.clone().filter(|path| !path.is_empty());
        Ok(Mount { from, at: at.unwrap_or_else(|| "/dev/termination-log".to_owned()), read_only: false })
    }
}
