//! The rim of [`super::mirror`]: by the name that a Service and its Endpoints share.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::{
    core::v1::{Endpoints, Service},
    discovery::v1::EndpointSlice,
};

use super::{mirror, writer::Writer};
use crate::Setting;
use controllers::{
    Controller, Error, Reconciler,
    cache::{Cache, Key},
    events::{Recorder, Weight},
    written::{CACHE_RETRY, Written},
};

pub fn controller(setting: &mut Setting) -> Controller {
    let (client, recorder) = setting.actor("endpointslicemirroring-controller", "endpoint-slice-mirroring-controller");
    let mut builder = setting.builder("endpointslice-mirroring-controller");
    let all = Mirror {
        writer: Writer { client, slices: builder.read(), written: Written::default() },
        recorder,
        services: builder.reconcile(),
        endpoints: builder.reconcile(),
    };
    all.writer.listen(&builder, mirror::CONTROLLER);
    builder.build(all)
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
            return Ok(Some(CACHE_RETRY));
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
