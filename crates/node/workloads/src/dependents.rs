//! Makes and deletes the Pods of a controller: told in events, and remembered until the cache shows it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams, Preconditions},
};

use crate::{
    cache::{Cache, Key, Kind},
    events::{Recorder, Weight},
    worker::{Error, code},
    written::Written,
};

pub struct Dependents {
    pub client: Client,
    pub pods: Arc<Cache<Pod>>,
    pub written: Written,
    pub recorder: Recorder,
}

impl Dependents {
    pub fn api(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// None if there is nothing to be made any more: the namespace is going.
    pub async fn create<O: Kind>(&self, owner: &O, pod: &Pod) -> Result<Option<Pod>, Error> {
        let key = Key::of(owner);
        match self.api(&key.namespace).create(&PostParams::default(), pod).await {
            Ok(made) => {
                self.written.wrote(&key, &self.pods, &made);
                let name = made.metadata.name.as_deref().unwrap_or_default();
                self.recorder.tell(owner, Weight::Normal, "SuccessfulCreate", format!("Created pod: {name}"));
                Ok(Some(made))
            }
            Err(error) if is_going(&error) => Ok(None),
            Err(error) => {
                let message = format!("Error creating: {}", told(&error));
                self.recorder.tell(owner, Weight::Warning, "FailedCreate", message);
                Err(error.into())
            }
        }
    }

    /// A Pod that is gone already is fine.
    pub async fn delete<O: Kind>(&self, owner: &O, pod: &Pod) -> Result<(), Error> {
        let key = Key::of(owner);
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let preconditions = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match self.api(&key.namespace).delete(name, &params).await {
            Ok(_) => {
                self.written.deleted(&key, &self.pods, pod);
                self.recorder.tell(owner, Weight::Normal, "SuccessfulDelete", format!("Deleted pod: {name}"));
                Ok(())
            }
            // Not there, or another one: the cache is late, and has to show that before anything is decided again.
            Err(error) if matches!(code(&error), 404 | 409) => {
                self.written.deleted(&key, &self.pods, pod);
                Ok(())
            }
            Err(error) => {
                let message = format!("Error deleting: {}", told(&error));
                self.recorder.tell(owner, Weight::Warning, "FailedDelete", message);
                Err(error.into())
            }
        }
    }
}

/// The API's own words, without what the client adds.
pub fn told(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// Whether something cannot be made because its namespace is being deleted.
pub fn is_going(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}
