//! The provisioner of an edge that runs processes: makes directories for claims, and removes them with their volumes.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams, Preconditions},
};

use super::{
    local::{self, Next},
    matching::class_of_claim,
    protect,
};
use crate::Setting;
use controllers::{
    Controller, Error, Queue, Reconciler,
    cache::{Cache, Key},
    code,
    events::{Recorder, Weight},
};

/// Before the API answers at all, or while its disk is full.
const RETRY: Duration = Duration::from_secs(5);

/// Volumes are directories in `dir`.
pub fn controller(setting: &mut Setting, dir: PathBuf) -> Controller {
    let (client, recorder) = setting.actor("persistent-volume-binder", local::NAME);
    let mut builder = setting.builder("local-provisioner-controller");
    let all = Directories {
        dir,
        client,
        recorder,
        claims: builder.read(),
        volumes: builder.read(),
        classes: builder.read(),
        nodes: builder.read(),
    };
    builder.on(&all.claims, |change, queue| change.new.iter().for_each(|claim| queue.add(Key::of(&**claim))));
    builder.on(&all.volumes, |change, queue| change.new.iter().for_each(|volume| queue.add(Key::of(&**volume))));
    // Claims and volumes wait for the node, and claims for their class.
    let (claims, volumes) = (all.claims.clone(), all.volumes.clone());
    let everything = move |queue: &Queue| {
        claims.all().iter().for_each(|claim| queue.add(Key::of(&**claim)));
        volumes.all().iter().for_each(|volume| queue.add(Key::of(&**volume)));
    };
    let again = everything.clone();
    builder.on(&all.classes, move |_, queue| again(queue));
    builder.on(&all.nodes, move |change, queue| {
        if change.old.is_none() {
            everything(queue);
        }
    });
    builder.build_after(all, Directories::sweep)
}

/// Makes the class that claims have by default. One that is there stays as it is, whatever became of it. No controller of upstream's has the
/// right to make one: the client is that of whoever serves the API.
pub async fn make_default_class(client: Client) {
    let api: Api<StorageClass> = Api::all(client);
    loop {
        match api.create(&PostParams::default(), &local::class()).await {
            Ok(_) => return,
            Err(error) if code(&error) == 409 => return,
            Err(error) => tracing::debug!(%error, "the default StorageClass is not made yet"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

struct Directories {
    dir: PathBuf,
    client: Client,
    recorder: Recorder,
    claims: Arc<Cache<PersistentVolumeClaim>>,
    volumes: Arc<Cache<PersistentVolume>>,
    classes: Arc<Cache<StorageClass>>,
    nodes: Arc<Cache<Node>>,
}

impl Reconciler for Directories {
    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>, Error> {
        if key.namespace.is_empty() {
            self.volume(key).await?
        } else {
            self.claim(key).await?
        }
        Ok(None)
    }
}

impl Directories {
    fn here(&self) -> Option<Arc<Node>> {
        self.nodes.all().into_iter().find(|node| local::is_here(node))
    }

    async fn claim(&self, key: &Key) -> Result<(), Error> {
        let Some(claim) = self.claims.get(key) else { return Ok(()) };
        let class = class_of_claim(&claim).and_then(|name| self.classes.get(&Key::new("", name)));
        let refuse = |why: &str| {
            let class = class_of_claim(&claim).unwrap_or_default();
            let message = format!("failed to provision volume with StorageClass {class:?}: {why}");
            self.recorder.tell(&*claim, Weight::Warning, "ProvisioningFailed", message);
        };
        let volume = match local::provision(&claim, class.as_deref(), self.here().as_deref(), &self.dir) {
            Next::Nothing => return Ok(()),
            Next::Refuse(why) => {
                refuse(&why);
                return Ok(());
            }
            Next::Make(volume) => volume,
        };
        let name = volume.metadata.name.clone().unwrap_or_default();
        if self.volumes.get(&Key::new("", &name)).is_some() {
            return Ok(());
        }
        let dir = self.dir.join(&name);
        if let Err(error) = blocking(move || make(&dir)).await {
            refuse(&format!("cannot make {}: {error}", self.dir.join(&name).display()));
            return Err(Error::Unusable(format!("a directory for a volume could not be made: {error}")));
        }
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        match api.create(&PostParams::default(), &volume).await {
            Ok(_) => {
                let message = format!("Successfully provisioned volume {name}");
                self.recorder.tell(&*claim, Weight::Normal, "ProvisioningSucceeded", message);
                Ok(())
            }
            Err(error) if code(&error) == 409 => Ok(()),
            Err(error) => {
                refuse(&error.to_string());
                Err(error.into())
            }
        }
    }

    async fn volume(&self, key: &Key) -> Result<(), Error> {
        let is_over = |volume: &PersistentVolume| local::is_over(volume, self.here().as_deref());
        let Some(volume) = self.volumes.get(key).filter(|volume| is_over(volume)) else { return Ok(()) };
        // By the volume's name, whatever path it says: nothing else of this machine is removed.
        let dir = self.dir.join(&key.name);
        if let Err(error) = blocking(move || remove(&dir)).await {
            let message = format!("cannot remove {}: {error}", self.dir.join(&key.name).display());
            self.recorder.tell(&*volume, Weight::Warning, "VolumeFailedDelete", message.clone());
            return Err(Error::Unusable(message));
        }
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        let preconditions = Preconditions { uid: volume.metadata.uid.clone(), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        if volume.metadata.deletion_timestamp.is_none()
            && let Err(error) = api.delete(&key.name, &params).await
            && code(&error) != 404
        {
            return Err(error.into());
        }
        let latest = match api.get(&key.name).await {
            Ok(latest) if latest.metadata.uid == volume.metadata.uid => latest,
            Ok(_) => return Ok(()),
            Err(error) if code(&error) == 404 => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let mut changed = latest;
        if changed.metadata.finalizers.iter().flatten().any(|name| name == local::FINALIZER) {
            protect::change(&mut changed.metadata, local::FINALIZER, protect::Next::LetGo);
            match api.replace(&key.name, &PostParams::default(), &changed).await {
                Err(error) if code(&error) != 404 => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Directories that were made for a volume which then was not: only empty ones can be.
    fn sweep(&self) {
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let is_known = name.to_str().is_some_and(|name| self.volumes.get(&Key::new("", name)).is_some());
            if !is_known {
                let _ = fs::remove_dir(entry.path());
            }
        }
    }
}

/// Nobody else on this machine needs to see what containers keep; but as whom they run is theirs to say, so that whoever sees the volume may write
/// in it. It is on disk before its volume is said to be there.
fn make(dir: &Path) -> io::Result<()> {
    let above = dir.parent().unwrap_or(dir);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(above)?;
    fs::set_permissions(above, fs::Permissions::from_mode(0o700))?;
    match fs::create_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => fs::set_permissions(dir, fs::Permissions::from_mode(0o777))?,
    }
    fs::File::open(above)?.sync_all()
}

fn remove(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tasks::spawn_blocking("volume-files", work).await.map_err(io::Error::other)?
}
