//! Writes EndpointSlices, and remembers what the cache does not show yet.

use std::sync::Arc;

use futures::future::join_all;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams, Preconditions},
};

use super::slices;
use controllers::{
    Builder, Error,
    cache::{Cache, Key},
    code,
    dependents::is_namespace_terminating,
    written::Written,
};

pub struct Writer {
    pub client: Client,
    pub slices: Arc<Cache<EndpointSlice>>,
    pub written: Written,
}

impl Writer {
    /// Changes of a controller's slices are put into its queue, by their Service.
    pub fn listen(&self, builder: &Builder<'_>, controller: &'static str) {
        builder.on(&self.slices, move |change, queue| {
            for slice in change.states() {
                if let Some(service) = slices::service_of(slice, controller) {
                    queue.add(Key::new(slice.metadata.namespace.as_deref().unwrap_or_default(), service));
                }
            }
        });
    }

    /// Those that a controller made for a Service.
    pub fn of_service(&self, key: &Key, controller: &str) -> Vec<Arc<EndpointSlice>> {
        let mut all = self.slices.within(&key.namespace);
        all.retain(|slice| slices::service_of(slice, controller) == Some(key.name.as_str()));
        all
    }

    fn api(&self, key: &Key) -> Api<EndpointSlice> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    pub async fn write(&self, key: &Key, plan: slices::Plan, mine: &[&EndpointSlice]) -> Result<(), Error> {
        let api = self.api(key);
        for slice in &plan.create {
            match api.create(&PostParams::default(), slice).await {
                Ok(made) => self.written.wrote(key, &self.slices, &made),
                Err(error) if is_namespace_terminating(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        for slice in &plan.update {
            let name = slice.metadata.name.as_deref().unwrap_or_default();
            let made = api.replace(name, &PostParams::default(), slice).await?;
            self.written.wrote(key, &self.slices, &made);
        }
        let gone =
            mine.iter().filter(|slice| slice.metadata.name.as_ref().is_some_and(|name| plan.delete.contains(name)));
        join_all(gone.map(|slice| self.delete(key, slice))).await.into_iter().collect()
    }

    pub async fn delete(&self, key: &Key, slice: &EndpointSlice) -> Result<(), Error> {
        let name = slice.metadata.name.as_deref().unwrap_or_default();
        match self.api(key).delete(name, &this_one(slice.metadata.uid.clone())).await {
            Err(error) if !matches!(code(&error), 404 | 409) => Err(error.into()),
            _ => {
                self.written.deleted(key, &self.slices, slice);
                Ok(())
            }
        }
    }
}

pub fn this_one(uid: Option<String>) -> DeleteParams {
    DeleteParams { preconditions: Some(Preconditions { uid, resource_version: None }), ..DeleteParams::default() }
}
