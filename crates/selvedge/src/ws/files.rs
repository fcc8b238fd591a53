//! The kubeconfig: which server its current context points at, and pointing it elsewhere without touching anything else.

use std::{
    fs,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};
use yaml_serde::{Mapping, Value};

/// Where the current context remembers the workspace before this one.
const EXTENSION: &str = "selvedge/previous-workspace";
/// As long do we wait for another program that is writing the same file.
const PATIENCE: Duration = Duration::from_secs(3);

/// The files that make up a kubeconfig, and what their current context leads to.
pub struct Kubeconfig {
    pub context: String,
    pub server: String,
    pub previous: Option<String>,
    /// Where the context is written, and where its cluster is.
    context_file: PathBuf,
    cluster_file: PathBuf,
    cluster: String,
    /// Other contexts use the same cluster.
    shared: bool,
}

/// The files that kubectl would read.
pub fn paths(named: Option<&Path>) -> Result<Vec<PathBuf>> {
    if let Some(named) = named {
        return Ok(vec![named.to_owned()]);
    }
    let listed = std::env::var_os("KUBECONFIG").unwrap_or_default();
    let listed: Vec<PathBuf> = std::env::split_paths(&listed).filter(|path| !path.as_os_str().is_empty()).collect();
    if !listed.is_empty() {
        return Ok(listed);
    }
    let home = std::env::var_os("HOME").context("neither KUBECONFIG nor HOME is set: name a file with --kubeconfig")?;
    Ok(vec![Path::new(&home).join(".kube/config")])
}

impl Kubeconfig {
    pub fn open(paths: &[PathBuf]) -> Result<Self> {
        let mut files = Vec::new();
        for path in paths {
            match fs::read_to_string(path) {
                Ok(text) => files.push((path.clone(), parse(path, &text)?)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
            }
        }
        let shown = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
        if files.is_empty() {
            bail!(
                "there is no kubeconfig at {shown}: set KUBECONFIG to the one of your center (`selvedge kubeconfig` prints it), or \
                 name it with --kubeconfig"
            );
        }
        let current = files.iter().find_map(|(_, value)| text(value, "current-context"));
        let context = current
            .filter(|name| !name.is_empty())
            .with_context(|| format!("{shown} has no current context: choose one with `kubectl config use-context`"))?;
        let (context_file, entry) = find(&files, "contexts", "context", &context)
            .with_context(|| format!("the current context {context:?} is not in {shown}"))?;
        let cluster = text(entry, "cluster").unwrap_or_default();
        let previous = extension(entry);
        let (cluster_file, found) = find(&files, "clusters", "cluster", &cluster).with_context(|| {
            format!("the context {context:?} needs the cluster {cluster:?}, which is not in {shown}")
        })?;
        let server =
            text(found, "server").with_context(|| format!("the cluster {cluster:?} in {shown} has no server"))?;
        let users = files.iter().flat_map(|(_, value)| named(value, "contexts"));
        let shared = users
            .filter(|other| text(other, "name").as_deref() != Some(&*context))
            .any(|other| other.get("context").and_then(|c| text(c, "cluster")).as_deref() == Some(&*cluster));
        let (context_file, cluster_file) = (context_file.clone(), cluster_file.clone());
        Ok(Self { context, server, previous, context_file, cluster_file, cluster, shared })
    }

    /// Points the current context at another server address, and remembers the workspace it came from. Other contexts stay
    /// as they are: a cluster that they use too is copied for this one.
    pub fn point_at(&self, server: &str, coming_from: &str) -> Result<()> {
        let copy = format!("{}/{}", self.cluster, self.context);
        edit(&self.cluster_file, |value| {
            let clusters = value.get_mut("clusters").and_then(Value::as_sequence_mut);
            let clusters =
                clusters.with_context(|| format!("{} has lost its clusters", self.cluster_file.display()))?;
            let at =
                |clusters: &[Value], name: &str| clusters.iter().position(|c| text(c, "name").as_deref() == Some(name));
            let mut mine = at(clusters, &self.cluster)
                .with_context(|| format!("{} has lost the cluster {:?}", self.cluster_file.display(), self.cluster))?;
            if self.shared {
                let mut entry = clusters[mine].clone();
                set(&mut entry, "name", copy.clone().into());
                mine = at(clusters, &copy).unwrap_or(clusters.len());
                if mine == clusters.len() { clusters.push(entry) } else { clusters[mine] = entry }
            }
            let cluster = clusters[mine].get_mut("cluster").context("a cluster without content")?;
            set(cluster, "server", server.into());
            Ok(())
        })?;
        edit(&self.context_file, |value| {
            let contexts = value.get_mut("contexts").and_then(Value::as_sequence_mut).into_iter().flatten();
            let mut contexts = contexts.filter(|c| text(c, "name").as_deref() == Some(&*self.context));
            let context = contexts.next().and_then(|c| c.get_mut("context"));
            let context =
                context.with_context(|| format!("{} has lost its current context", self.context_file.display()))?;
            if self.shared {
                set(context, "cluster", copy.clone().into());
            }
            remember(context, coming_from);
            Ok(())
        })
    }
}

fn parse(path: &Path, text: &str) -> Result<Value> {
    let value: Value =
        yaml_serde::from_str(text).with_context(|| format!("{} is not a valid kubeconfig", path.display()))?;
    match value {
        Value::Null => Ok(Value::Mapping(Mapping::new())),
        Value::Mapping(_) => Ok(value),
        _ => Err(anyhow!("{} is not a valid kubeconfig: expected a mapping", path.display())),
    }
}

fn text(value: &Value, field: &str) -> Option<String> {
    value.get(field).and_then(Value::as_str).map(str::to_owned)
}

fn named<'a>(value: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    value.get(list).and_then(Value::as_sequence).into_iter().flatten()
}

/// The first entry of that name counts, as for kubectl.
fn find<'a>(files: &'a [(PathBuf, Value)], list: &str, field: &str, name: &str) -> Option<(&'a PathBuf, &'a Value)> {
    files.iter().find_map(|(path, value)| {
        let entry = named(value, list).find(|entry| text(entry, "name").as_deref() == Some(name))?;
        Some((path, entry.get(field)?))
    })
}

fn set(value: &mut Value, field: &str, to: Value) {
    if let Value::Mapping(mapping) = value {
        mapping.insert(field.into(), to);
    }
}

fn extension(context: &Value) -> Option<String> {
    let mut all = named(context, "extensions");
    let ours = all.find(|entry| text(entry, "name").as_deref() == Some(EXTENSION))?;
    text(ours.get("extension")?, "workspace")
}

fn remember(context: &mut Value, workspace: &str) {
    let mut extension = Value::Mapping(Mapping::new());
    set(&mut extension, "workspace", workspace.into());
    let mut entry = Value::Mapping(Mapping::new());
    set(&mut entry, "name", EXTENSION.into());
    set(&mut entry, "extension", extension);
    let mut all: Vec<Value> = named(context, "extensions").cloned().collect();
    all.retain(|other| text(other, "name").as_deref() != Some(EXTENSION));
    all.push(entry);
    set(context, "extensions", Value::Sequence(all));
}

/// Changes a file as a whole or not at all, under the lock that kubectl takes too.
fn edit(path: &Path, change: impl FnOnce(&mut Value) -> Result<()>) -> Result<()> {
    // A link stays one, and what it points to changes.
    let path = &fs::canonicalize(path).with_context(|| format!("cannot find {}", path.display()))?;
    let _lock = Lock::take(path)?;
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut value = parse(path, &text)?;
    change(&mut value)?;
    replace(path, &yaml_serde::to_string(&value)?).with_context(|| format!("cannot write {}", path.display()))
}

fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let beside = path.with_file_name(format!(
        ".{}.{}",
        path.file_name().unwrap_or_default().to_string_lossy(),
        std::process::id()
    ));
    let write = || {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.set_permissions(fs::metadata(path)?.permissions())?;
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&beside);
    })
}

struct Lock(PathBuf);

impl Lock {
    fn take(path: &Path) -> Result<Self> {
        let mut name = path.as_os_str().to_owned();
        name.push(".lock");
        let lock = PathBuf::from(name);
        let since = Instant::now();
        loop {
            match fs::OpenOptions::new().write(true).create_new(true).open(&lock) {
                Ok(_) => return Ok(Self(lock)),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                    if since.elapsed() > PATIENCE {
                        bail!("another program is changing {}: if none is, remove {}", path.display(), lock.display());
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(error) => return Err(error).with_context(|| format!("cannot write beside {}", path.display())),
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const CONFIG: &str = "apiVersion: v1\nkind: Config\nunknown: {kept: true}\ncurrent-context: me\nclusters:\n\
        - name: c\n  cluster: {server: 'https://h:1', insecure-skip-tls-verify: true}\n\
        - name: d\n  cluster: {server: 'https://h:1'}\ncontexts:\n\
        - name: me\n  context: {cluster: c, user: u, namespace: ns}\n\
        - name: other\n  context: {cluster: d, user: u}\nusers:\n- name: u\n  user: {token: t}\n";

    fn write(dir: &Path, name: &str, text: &str) -> PathBuf {
        let path = dir.join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn read(path: &Path) -> Value {
        parse(path, &fs::read_to_string(path).unwrap()).unwrap()
    }

    #[test]
    fn only_the_server_of_the_current_context_changes() {
        let dir = tempfile::tempdir().unwrap();
        let path = write(dir.path(), "config", CONFIG);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let config = Kubeconfig::open(std::slice::from_ref(&link)).unwrap();
        assert_eq!((&*config.context, &*config.server, &config.previous), ("me", "https://h:1", &None));
        config.point_at("https://h:1/clusters/root:a", "root").unwrap();

        let config = Kubeconfig::open(std::slice::from_ref(&path)).unwrap();
        assert_eq!((&*config.server, config.previous.as_deref()), ("https://h:1/clusters/root:a", Some("root")));
        let (mut now, mut then) = (read(&path), parse(&path, CONFIG).unwrap());
        set(now["clusters"][0].get_mut("cluster").unwrap(), "server", "x".into());
        set(then["clusters"][0].get_mut("cluster").unwrap(), "server", "x".into());
        now["contexts"][0]["context"].as_mapping_mut().unwrap().remove("extensions");
        assert_eq!(now, then);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing is left lying about");
    }

    #[test]
    fn a_cluster_that_others_use_is_copied() {
        let dir = tempfile::tempdir().unwrap();
        let path = write(dir.path(), "config", &CONFIG.replace("cluster: d", "cluster: c"));
        for workspace in ["root:a", "root:b"] {
            let config = Kubeconfig::open(std::slice::from_ref(&path)).unwrap();
            config.point_at(&format!("https://h:1/clusters/{workspace}"), "root").unwrap();
        }
        let now = read(&path);
        assert_eq!(now["clusters"][0]["cluster"]["server"], "https://h:1");
        assert_eq!(now["clusters"][2]["cluster"]["server"], "https://h:1/clusters/root:b");
        assert_eq!(now["clusters"].as_sequence().unwrap().len(), 3);
        assert_eq!(Kubeconfig::open(&[path]).unwrap().server, "https://h:1/clusters/root:b");
    }

    #[test]
    fn several_files_are_one_kubeconfig() {
        let dir = tempfile::tempdir().unwrap();
        let first = write(dir.path(), "first", "current-context: me\n");
        let second = write(dir.path(), "second", CONFIG);
        let config = Kubeconfig::open(&[dir.path().join("none"), first.clone(), second.clone()]).unwrap();
        config.point_at("https://h:1/clusters/root:a", "root").unwrap();
        assert_eq!(fs::read_to_string(first).unwrap(), "current-context: me\n");
        assert_eq!(read(&second)["clusters"][0]["cluster"]["server"], "https://h:1/clusters/root:a");
    }

    #[test]
    fn what_is_wrong_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let says = |text: &str| {
            let path = write(dir.path(), "bad", text);
            format!("{:#}", Kubeconfig::open(&[path]).err().unwrap())
        };
        assert!(says("").contains("no current context"));
        assert!(says("- a").contains("expected a mapping"));
        assert!(says("a: [").contains("not a valid kubeconfig"));
        assert!(says("current-context: x").contains("\"x\" is not in"));
        let none = Kubeconfig::open(&[dir.path().join("none")]).err().unwrap().to_string();
        assert!(none.contains("KUBECONFIG"), "{none}");
    }
}
