//! Connects caches, a work queue and a reconciler.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use tasks::{Schedule, Tasks};
use tokio::sync::watch;
use workqueue::Again;

use crate::{
    RESTART,
    cache::{Cache, Caches, Change, Key, Kind},
    error::Error,
    owner::{self, Selects},
};

/// The keys that a controller has to look at.
pub type Queue = workqueue::Queue<Key>;

/// Keys of one controller that are reconciled at the same time, as upstream's controllers do.
const WORKERS: usize = 5;

/// Upstream waits up to a quarter of an hour. A failure on an edge is mostly that of its own disk, and that heals.
const RETRY: Schedule = Schedule::new(Duration::from_millis(5), Duration::from_secs(60));

/// The work of a controller on one object.
pub trait Reconciler: Send + Sync + 'static {
    /// Does what is needed for one object by now, also if it is gone. The result is the time after which it has to be
    /// looked at again although nothing changed.
    fn reconcile(&self, key: &Key) -> impl Future<Output = Result<Option<Duration>, Error>> + Send;
}

/// A controller that is ready to run.
pub struct Controller {
    name: &'static str,
    make: Box<dyn FnMut() -> BoxFuture<'static, ()> + Send>,
}

impl Controller {
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Runs the controller until the shutdown. Should it panic outside of a reconcile, it starts again.
    pub fn start(self, tasks: &Tasks) {
        tasks.spawn_until_shutdown(self.name, RESTART, self.make);
    }
}

/// A controller that is being put together. All caches must be asked for before the first of them is started.
pub struct Builder<'a> {
    queue: Queue,
    caches: &'a mut Caches,
    synced: Vec<watch::Receiver<bool>>,
    workers: usize,
}

impl<'a> Builder<'a> {
    /// The name is that of the task, of the queue, and of the controller in the log.
    pub fn new(name: &'static str, caches: &'a mut Caches) -> Self {
        Self { queue: Queue::new(name, RETRY), caches, synced: Vec::new(), workers: WORKERS }
    }

    /// The controller decides about everything in one pass. Its queue has one key, which is there from the start.
    pub fn in_passes(self) -> Self {
        self.queue.add(Key::default());
        Self { workers: 1, ..self }
    }

    /// A cache that the controller reads. The first reconcile waits until it is complete.
    pub fn read<K: Kind>(&mut self) -> Arc<Cache<K>> {
        let cache = self.caches.of::<K>();
        self.synced.push(cache.synced());
        cache
    }

    /// The same for the kind that the controller is about: each change of an object is a reason to look at it.
    pub fn reconcile<K: Kind>(&mut self) -> Arc<Cache<K>> {
        let cache = self.read::<K>();
        self.on(&cache, |change, queue| change.states().for_each(|object| queue.add(Key::of(&**object))));
        cache
    }

    /// Calls a function with each change of a cache. It adds the keys that the change concerns.
    pub fn on<K: Kind>(&self, cache: &Arc<Cache<K>>, handler: impl Fn(&Change<K>, &Queue) + Send + Sync + 'static) {
        let queue = self.queue.clone();
        cache.listen(move |change| handler(change, &queue));
    }

    /// For a controller that decides in passes: a change for which this is true asks for another pass.
    pub fn pass_if<K: Kind>(
        &self,
        cache: &Arc<Cache<K>>,
        matters: impl Fn(&Change<K>) -> bool + Send + Sync + 'static,
    ) {
        self.on(cache, move |change, queue| {
            if matters(change) {
                queue.add(Key::default());
            }
        });
    }

    /// The same for a cache each change of which matters.
    pub fn reconcile_all<K: Kind>(&mut self) -> Arc<Cache<K>> {
        let cache = self.read::<K>();
        self.pass_if(&cache, |_| true);
        cache
    }

    /// A change of a dependent concerns its controller of kind `O`, before and after the change.
    pub fn on_owned<O: Kind, K: Kind>(&self, dependents: &Arc<Cache<K>>) {
        self.on(dependents, |change, queue| owner::owners_of::<O>(change).for_each(|key| queue.add(key)));
    }

    /// The same, and a dependent without a controller concerns all owners that select it.
    pub fn on_adoptable<O: Kind, K: Kind>(
        &self,
        dependents: &Arc<Cache<K>>,
        owners: &Arc<Cache<O>>,
        selects: fn(&O) -> Result<Selects, Error>,
    ) {
        let owners = owners.clone();
        self.on(dependents, move |change, queue| {
            owner::owners_of::<O>(change).for_each(|key| queue.add(key));
            let Some(orphan) = owner::new_orphan(change) else { return };
            for owner in owners.within(orphan.meta().namespace.as_deref().unwrap_or_default()) {
                if selects(&owner).is_ok_and(|selects| selects.selects(&**orphan)) {
                    queue.add(Key::of(&*owner));
                }
            }
        });
    }

    pub fn build<R: Reconciler>(self, reconciler: R) -> Controller {
        self.build_after(reconciler, |_| {})
    }

    /// The same with something that is done once the caches are complete, before the first reconcile.
    pub fn build_after<R: Reconciler>(self, reconciler: R, first: fn(&R)) -> Controller {
        let Self { queue, synced, workers, caches: _ } = self;
        let (name, reconciler) = (queue.name(), Arc::new(reconciler));
        let make = move || -> BoxFuture<'static, ()> {
            Box::pin(run(queue.clone(), synced.clone(), workers, reconciler.clone(), first))
        };
        Controller { name, make: Box::new(make) }
    }
}

async fn run<R: Reconciler>(
    queue: Queue,
    synced: Vec<watch::Receiver<bool>>,
    workers: usize,
    reconciler: Arc<R>,
    first: fn(&R),
) {
    for mut synced in synced {
        // The sender lives in the cache, which the reconciler holds.
        let _ = synced.wait_for(|synced| *synced).await;
    }
    first(&reconciler);
    let reconcile = |key: Key| {
        let reconciler = reconciler.clone();
        async move { reconciler.reconcile(&key).await.map(Again::from) }
    };
    workqueue::work(&queue, workers, reconcile).await;
}
