//! What a Deployment needs next: sets to make, to scale, to delete, and its status. Pure.
//!
//! All happens on copies, in upstream's order; what differs in the end is to be written.

use std::{cmp::Ordering, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};

use super::{
    bounds::{is_rolling, max_surge, min_available, replicas},
    sets::{self, DESIRED, MAX, REVISION, annotation, by_age, number, revision},
    share,
    status::{self, PROGRESSING, condition, deadline, new_condition, set_condition},
};
use controllers::owner;

/// What is to be written, in this order; then the Deployment's status and annotations.
#[derive(Debug, PartialEq)]
pub enum Step {
    Create(ReplicaSet),
    /// With what is told of it, if anything.
    Update(ReplicaSet, Option<String>),
    Delete(ReplicaSet),
}

#[derive(Debug, PartialEq)]
pub struct Plan {
    pub steps: Vec<Step>,
    /// As it should be: its status, and the annotation of its revision.
    pub deployment: Deployment,
    pub again: Option<Duration>,
}

struct Rollout {
    deployment: Deployment,
    /// The oldest first.
    sets: Vec<ReplicaSet>,
    new: Option<usize>,
    /// For each set: whether it differs from what is there, and what is told of that.
    touched: Vec<(bool, Option<String>)>,
    create: Option<ReplicaSet>,
    delete: Vec<usize>,
    now: Timestamp,
}

/// `sets` are the Deployment's own. `is_old_running` says whether Pods of other sets than this uid's are still there.
pub fn plan(
    deployment: &Deployment,
    sets: Vec<ReplicaSet>,
    is_old_running: impl Fn(Option<&str>) -> bool,
    now: Timestamp,
) -> Plan {
    let mut rollout = Rollout::new(deployment.clone(), sets, now);
    let status = rollout.decide(&is_old_running);
    let again = status::look_again(deployment, &status, now);
    rollout.deployment.status = Some(status);
    let Rollout { deployment, sets, touched, create, delete, .. } = rollout;
    let mut steps: Vec<Step> = create.into_iter().map(Step::Create).collect();
    for (index, (set, (changed, told))) in sets.into_iter().zip(touched).enumerate() {
        if delete.contains(&index) {
            steps.push(Step::Delete(set));
        } else if changed {
            steps.push(Step::Update(set, told));
        }
    }
    Plan { steps, deployment, again }
}

impl Rollout {
    fn new(deployment: Deployment, mut sets: Vec<ReplicaSet>, now: Timestamp) -> Self {
        sets.sort_by(by_age);
        let template = deployment.spec.as_ref().map(|spec| &spec.template);
        let new = template.and_then(|template| sets.iter().position(|set| sets::is_same(template, set)));
        let touched = sets.iter().map(|_| (false, None)).collect();
        Self { deployment, sets, new, touched, create: None, delete: Vec::new(), now }
    }

    fn decide(
        &mut self,
        is_old_running: &dyn Fn(Option<&str>) -> bool,
    ) -> k8s_openapi::api::apps::v1::DeploymentStatus {
        let is_paused = self.deployment.spec.as_ref().and_then(|spec| spec.paused).unwrap_or(false);
        if owner::is_deleting(&self.deployment.metadata) {
            self.note_new();
            return status::counted(&self.deployment, &self.sets, self.new_set(), self.now);
        }
        status::note_pause(&mut self.deployment, self.now);
        self.note_new();
        if is_paused || self.is_resized() {
            self.resize();
            if is_paused {
                self.clean_up();
            }
            return status::counted(&self.deployment, &self.all(), self.new_set(), self.now);
        }
        if is_rolling(&self.deployment) {
            self.roll();
        } else {
            self.recreate(is_old_running);
        }
        let status = status::rollout(&self.deployment, &self.all(), self.new_set(), self.now);
        self.after_creation(status)
    }

    fn new_set(&self) -> Option<&ReplicaSet> {
        self.create.as_ref().or_else(|| self.new.map(|new| &self.sets[new]))
    }

    fn all(&self) -> Vec<ReplicaSet> {
        self.sets.iter().chain(&self.create).cloned().collect()
    }

    fn old(&self) -> impl Iterator<Item = usize> + use<> {
        let new = self.new;
        (0..self.sets.len()).filter(move |index| Some(*index) != new)
    }

    fn active_old(&self) -> Vec<usize> {
        self.old().filter(|index| replicas_of(&self.sets[*index]) > 0).collect()
    }

    fn total(&self) -> i32 {
        self.sets.iter().map(replicas_of).fold(0, i32::saturating_add)
    }

    /// As many Pods as there can be: a set that has to lose some may not have done so yet.
    fn most(&self) -> i32 {
        let actual = |set: &ReplicaSet| set.status.as_ref().map_or(0, |status| status.replicas);
        self.sets.iter().map(|set| replicas_of(set).max(actual(set))).fold(0, i32::saturating_add)
    }

    /// Whether what every set says of itself is about the size that it was given last. Upstream goes on without knowing, and can so leave its bounds
    /// for a moment.
    fn is_settled(&self) -> bool {
        self.sets.iter().all(is_observed)
    }

    fn next_revision(&self) -> i64 {
        self.old().map(|index| revision(&self.sets[index].metadata)).max().unwrap_or(0).saturating_add(1)
    }

    /// What the new set and the Deployment say of each other, if there is a new set.
    fn note_new(&mut self) {
        let next = self.next_revision();
        let Some(new) = self.new else { return };
        let set = &mut self.sets[new];
        let mut changed = sets::note_revision(&self.deployment, set, next);
        let min_ready = self.deployment.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0);
        if let Some(spec) = &mut set.spec
            && spec.min_ready_seconds.unwrap_or(0) != min_ready
        {
            spec.min_ready_seconds = Some(min_ready);
            changed = true;
        }
        self.touched[new].0 |= changed;
        let set = &self.sets[new];
        if let Some(revision) = annotation(&set.metadata, REVISION).map(str::to_owned) {
            self.deployment.metadata.annotations.get_or_insert_default().insert(REVISION.into(), revision);
        }
        let name = set.metadata.name.clone().unwrap_or_default();
        let has_deadline = deadline(&self.deployment).is_some();
        let status = self.deployment.status.get_or_insert_default();
        if has_deadline && condition(status, PROGRESSING).is_none() {
            let message = format!("Found new replica set {name:?}");
            set_condition(status, new_condition(PROGRESSING, "True", "FoundNewReplicaSet", message, self.now));
        }
    }

    /// Somebody wants another number of Pods than the sets were last made for.
    fn is_resized(&self) -> bool {
        let wanted = replicas(&self.deployment);
        let active = self.sets.iter().filter(|set| replicas_of(set) > 0);
        active.filter_map(|set| number(&set.metadata, DESIRED)).any(|desired| desired != wanted)
    }

    fn scale(&mut self, index: usize, to: i32) -> bool {
        let set = &mut self.sets[index];
        let from = replicas_of(set);
        let noted = sets::note_size(&self.deployment, set);
        let Some(spec) = &mut set.spec else { return false };
        self.touched[index].0 |= noted;
        if from == to {
            return false;
        }
        spec.replicas = Some(to);
        let way = if to > from { "up" } else { "down" };
        let name = set.metadata.name.as_deref().unwrap_or_default();
        self.touched[index] = (true, Some(format!("Scaled {way} replica set {name} from {from} to {to}")));
        true
    }

    /// Only where the number changes: annotations alone are no reason to write.
    fn scale_if_needed(&mut self, index: usize, to: i32) -> bool {
        replicas_of(&self.sets[index]) != to && self.scale(index, to)
    }

    fn resize(&mut self) {
        let wanted = replicas(&self.deployment);
        let mut active: Vec<usize> = (0..self.sets.len()).filter(|index| replicas_of(&self.sets[*index]) > 0).collect();
        match active.as_slice() {
            // The new one, or the youngest of the others.
            [] => {
                if let Some(only) = self.new.or(self.sets.len().checked_sub(1)) {
                    self.scale_if_needed(only, wanted);
                }
            }
            [only] => {
                let only = *only;
                self.scale(only, wanted);
            }
            _ if self.is_saturated() => {
                for old in self.active_old() {
                    self.scale_if_needed(old, 0);
                }
            }
            _ if is_rolling(&self.deployment) => {
                let allowed = if wanted > 0 { wanted.saturating_add(max_surge(&self.deployment)) } else { 0 };
                let change = allowed.saturating_sub(self.total());
                active.sort_by(|a, b| self.by_size(*a, *b, change > 0));
                let before: Vec<share::Part> = active
                    .iter()
                    .map(|index| share::Part {
                        replicas: replicas_of(&self.sets[*index]),
                        max: number(&self.sets[*index].metadata, MAX),
                    })
                    .collect();
                let known = self.deployment.status.as_ref().and_then(|status| status.replicas).unwrap_or(0);
                let after = share::out(&before, change, wanted, allowed, known);
                for (index, to) in active.into_iter().zip(after) {
                    self.scale(index, to);
                }
            }
            _ => {}
        }
    }

    /// The larger first; of the same size the younger where Pods are added, the older where they are taken away.
    fn by_size(&self, a: usize, b: usize, younger_first: bool) -> Ordering {
        let (a, b) = (&self.sets[a], &self.sets[b]);
        let age = if younger_first { by_age(b, a) } else { by_age(a, b) };
        replicas_of(b).cmp(&replicas_of(a)).then(age)
    }

    fn is_saturated(&self) -> bool {
        let wanted = replicas(&self.deployment);
        self.new.is_some_and(|new| {
            let set = &self.sets[new];
            replicas_of(set) == wanted && available(set) == wanted && number(&set.metadata, DESIRED) == Some(wanted)
        })
    }

    fn roll(&mut self) {
        let Some(new) = self.new else { return self.make() };
        let wanted = replicas(&self.deployment);
        let now = replicas_of(&self.sets[new]);
        let to = match now.cmp(&wanted) {
            Ordering::Equal => now,
            Ordering::Greater => wanted,
            Ordering::Less => self.room(now),
        };
        if self.scale_if_needed(new, to) || self.take_old_away(new) {
            return;
        }
        self.clean_up_if_complete();
    }

    /// How many the new set may have now.
    fn room(&self, now: i32) -> i32 {
        let wanted = replicas(&self.deployment);
        if !is_rolling(&self.deployment) {
            return wanted;
        }
        let room = wanted.saturating_add(max_surge(&self.deployment)).saturating_sub(self.most());
        if room <= 0 || !self.is_settled() { now } else { now + room.min(wanted - now) }
    }

    fn take_old_away(&mut self, new: usize) -> bool {
        let old = self.active_old();
        if old.is_empty() || !self.is_settled() {
            return false;
        }
        let least = min_available(&self.deployment);
        let unavailable_new = replicas_of(&self.sets[new]) - available(&self.sets[new]);
        let most = self.total() - least - unavailable_new;
        if most <= 0 {
            return false;
        }
        // Those that are not available take nothing away.
        let mut taken = 0;
        for index in &old {
            let (has, works) = (replicas_of(&self.sets[*index]), available(&self.sets[*index]));
            let broken = (has - works).min(most - taken);
            if broken > 0 {
                self.scale(*index, has - broken);
                taken += broken;
            }
        }
        let mut spare = self.sets.iter().map(available).fold(0, i32::saturating_add) - least;
        for index in &old {
            let has = replicas_of(&self.sets[*index]);
            let less = spare.min(has);
            if less > 0 {
                self.scale(*index, has - less);
                spare -= less;
                taken += less;
            }
        }
        taken > 0
    }

    fn recreate(&mut self, is_old_running: &dyn Fn(Option<&str>) -> bool) {
        let old = self.active_old();
        if !old.is_empty() {
            for index in old {
                self.scale_if_needed(index, 0);
            }
            return;
        }
        // A set that has not seen yet that it shall have none may still be making Pods that nobody sees.
        let may_have =
            |set: &ReplicaSet| !is_observed(set) || set.status.as_ref().is_some_and(|status| status.replicas > 0);
        let counted = self.old().any(|index| may_have(&self.sets[index]));
        let new_uid = self.new_set().and_then(|set| set.metadata.uid.as_deref());
        if counted || is_old_running(new_uid) {
            return;
        }
        let Some(new) = self.new else { return self.make() };
        let wanted = replicas(&self.deployment);
        self.scale_if_needed(new, wanted);
        self.clean_up_if_complete();
    }

    fn make(&mut self) {
        let next = self.next_revision();
        let Some(mut set) = sets::make(&self.deployment, next) else { return };
        let size = self.room(0);
        if let Some(spec) = &mut set.spec {
            spec.replicas = Some(size);
        }
        self.create = Some(set);
    }

    /// What a Deployment says when its new set is there: it is, unless the API refuses it.
    fn after_creation(
        &mut self,
        mut status: k8s_openapi::api::apps::v1::DeploymentStatus,
    ) -> k8s_openapi::api::apps::v1::DeploymentStatus {
        let Some(made) = &self.create else { return status };
        if let Some(revision) = annotation(&made.metadata, REVISION) {
            let revision = revision.to_owned();
            self.deployment.metadata.annotations.get_or_insert_default().insert(REVISION.into(), revision);
        }
        if deadline(&self.deployment).is_some() {
            let message = format!("Created new replica set {:?}", made.metadata.name.as_deref().unwrap_or_default());
            set_condition(&mut status, new_condition(PROGRESSING, "True", "NewReplicaSetCreated", message, self.now));
        }
        status
    }

    fn clean_up_if_complete(&mut self) {
        let status = self.deployment.status.clone().unwrap_or_default();
        if status::is_complete(&self.deployment, &status) {
            self.clean_up();
        }
    }

    /// Forgets the oldest revisions, those with Pods excepted.
    fn clean_up(&mut self) {
        let limit = self.deployment.spec.as_ref().and_then(|spec| spec.revision_history_limit).unwrap_or(10);
        let Ok(limit) = usize::try_from(limit) else { return };
        let mut old: Vec<usize> = self.old().filter(|index| !owner::is_deleting(&self.sets[*index].metadata)).collect();
        let surplus = old.len().saturating_sub(limit);
        old.sort_by_key(|index| revision(&self.sets[*index].metadata));
        for index in old.into_iter().take(surplus) {
            let set = &self.sets[index];
            let status = set.status.clone().unwrap_or_default();
            let is_empty = status.replicas == 0 && replicas_of(set) == 0;
            if is_empty && set.metadata.generation <= status.observed_generation {
                self.delete.push(index);
            }
        }
    }
}

/// Whether what a set says of itself is about the size that it was given last.
fn is_observed(set: &ReplicaSet) -> bool {
    set.metadata.generation <= set.status.as_ref().and_then(|status| status.observed_generation)
}

fn replicas_of(set: &ReplicaSet) -> i32 {
    sets::replicas(set)
}

/// A set that is to lose Pods loses those that are not available first, and may not have done so yet.
fn available(set: &ReplicaSet) -> i32 {
    sets::available(set).min(replicas_of(set))
}
