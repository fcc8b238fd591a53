//! Which controllers run, said as upstream's `--controllers` says it.

use std::collections::BTreeSet;

/// What can be switched off where upstream's controller manager, or another scheduler, runs instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controller {
    Deployment,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
    DaemonSet,
    Job,
    CronJob,
    EndpointSlice,
    EndpointSliceMirroring,
    PodGarbageCollector,
    Disruption,
    Autoscaler,
    NodeLifecycle,
    Scheduler,
    VolumeBinder,
    ClaimProtection,
    VolumeProtection,
    EphemeralVolume,
    LocalProvisioner,
}

impl Controller {
    pub const ALL: [Self; 19] = [
        Self::Deployment,
        Self::ReplicaSet,
        Self::ReplicationController,
        Self::StatefulSet,
        Self::DaemonSet,
        Self::Job,
        Self::CronJob,
        Self::EndpointSlice,
        Self::EndpointSliceMirroring,
        Self::PodGarbageCollector,
        Self::Disruption,
        Self::Autoscaler,
        Self::NodeLifecycle,
        Self::Scheduler,
        Self::VolumeBinder,
        Self::ClaimProtection,
        Self::VolumeProtection,
        Self::EphemeralVolume,
        Self::LocalProvisioner,
    ];

    /// As it is called on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Deployment => "deployment",
            Self::ReplicaSet => "replicaset",
            Self::ReplicationController => "replicationcontroller",
            Self::StatefulSet => "statefulset",
            Self::DaemonSet => "daemonset",
            Self::Job => "job",
            Self::CronJob => "cronjob",
            Self::EndpointSlice => "endpointslice",
            Self::EndpointSliceMirroring => "endpointslice-mirroring",
            Self::PodGarbageCollector => "pod-garbage-collector",
            Self::Disruption => "disruption",
            Self::Autoscaler => "horizontal-pod-autoscaler",
            Self::NodeLifecycle => "node-lifecycle",
            Self::Scheduler => "scheduler",
            Self::VolumeBinder => "persistentvolume-binder",
            Self::ClaimProtection => "persistentvolumeclaim-protection",
            Self::VolumeProtection => "persistentvolume-protection",
            Self::EphemeralVolume => "ephemeral-volume",
            Self::LocalProvisioner => "local-provisioner",
        }
    }

    /// By our name, or by the one that upstream's flag has for it.
    fn named(name: &str) -> Option<Self> {
        let name = name.strip_suffix("-controller").unwrap_or(name);
        Self::ALL.into_iter().find(|controller| controller.name() == name)
    }
}

/// A name that no controller has.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no controller {0:?}: write * for all, a name to switch one on, -name to switch one off. There are {all}",
    all = Controller::ALL.map(Controller::name).join(", ")
)]
pub struct Unknown(String);

/// What a list like `*,-scheduler` means: `*` is all, a name switches one on and `-name` off, whatever comes where.
pub fn which<'a>(said: impl IntoIterator<Item = &'a str>) -> Result<BTreeSet<Controller>, Unknown> {
    let (mut all, mut on, mut off) = (false, BTreeSet::new(), BTreeSet::new());
    for word in said.into_iter().map(str::trim).filter(|word| !word.is_empty()) {
        if word == "*" {
            all = true;
            continue;
        }
        let (name, into) = word.strip_prefix('-').map_or((word, &mut on), |name| (name, &mut off));
        into.insert(Controller::named(name).ok_or_else(|| Unknown(name.to_owned()))?);
    }
    let chosen = |controller: &Controller| on.contains(controller) || all && !off.contains(controller);
    Ok(Controller::ALL.into_iter().filter(chosen).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_means_what_upstreams_means() {
        let all = Controller::ALL.len();
        for (said, count) in [
            ("*", all),
            ("", 0),
            ("*,-scheduler", all - 1),
            ("-scheduler,*", all - 1),
            ("*, -scheduler , -deployment-controller", all - 2),
            ("deployment,replicaset-controller", 2),
            ("-job", 0),
            ("job,-job", 1),
        ] {
            assert_eq!(which(said.split(',')).map(|which| which.len()), Ok(count), "{said}");
        }
        let error = which(["*", "-deploymnt"]).unwrap_err();
        assert!(error.to_string().contains("deploymnt") && error.to_string().contains("daemonset"), "{error}");
    }
}
