//! The rim of [`super::mirror`]: by the name that a Service and its Endpoints share.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use k8s_openapi::api::{
    core::v1::{Endpoints, Service},
    discovery::v1::EndpointSlice,
};

use super::{LATE, mirror, writer::Writer};
use crate::{
    Setting,
    cache::{Cache, Key},
    events::{Recorder, Weight},
    queue::Queue,
    worker::{Error, Reconciler, work},
    written::Written,
};

pub fn controller(setting: &mut Setting) -> BoxFuture<'static, ()> {
    let (client, recorder) = setting.actor("endpointslicemirroring-controller", "endpoint-slice-mirroring-controller");
    let caches = &mut setting.caches;
    let all = Mirror {
        writer: Writer { client, slices: caches.of(), written: Written::default() },
        recorder,
        services: caches.of(),
        endpoints: caches.of(),
    };
    let queue = Arc::new(Queue::default());
    let to = queue.clone();
    all.services.listen(move |change| change.states().for_each(|service| to.add(Key::of(&**service))));
    let to = queue.clone();
    all.endpoints.listen(move |change| change.states().for_each(|endpoints| to.add(Key::of(&**endpoints))));
    all.writer.listen(&queue, mirror::CONTROLLER);
    let stop = setting.stop.clone();
    Box::pin(async move {
        all.services.ready().await;
        all.endpoints.ready().await;
        all.writer.slices.ready().await;
        work("endpointslice-mirroring", queue, all, stop).await;
    })
}

struct Mirror {
    writer: Writer,
    recorder: Recorder,
    services: Arc<Cache<Service>>,
    endpoints: Arc<Cache<Endpoints>>,
}

impl Reconciler for Mirror {
    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>, Error> {
        if !self.writer.written.is_shown(key) {
            return Ok(Some(LATE));
        }
        let all = self.writer.of_service(key, mirror::CONTROLLER);
        let mine: Vec<&EndpointSlice> = all.iter().map(|slice| &**slice).collect();
        let (service, endpoints) = (self.services.get(key), self.endpoints.get(key));
        let (plan, notes) = mirror::decide(service.as_deref(), endpoints.as_deref(), &mine);
        let Some(endpoints) = endpoints else {
            self.writer.write(key, plan, &mine).await?;
            self.writer.written.forget(key);
            return Ok(None);
        };
        // Said once for each change, not whenever somebody looks.
        let changes = !(plan.create.is_empty() && plan.update.is_empty());
        notes.iter().filter(|_| changes).for_each(|note| note.tell(&self.recorder, &*endpoints));
        if let Err(error) = self.writer.write(key, plan, &mine).await {
            if !error.is_conflict() {
                let message = format!("Failed to update EndpointSlices for Endpoints {key}: {error}");
                self.recorder.tell(&*endpoints, Weight::Warning, "FailedToUpdateEndpointSlices", message);
            }
            return Err(error);
        }
        Ok(None)
    }
}
