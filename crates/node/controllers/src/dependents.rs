//! Makes and deletes the Pods of an owner. Each write is told in an Event and remembered until the cache shows it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams, Preconditions},
};

use crate::{
    cache::{Cache, Key, Kind},
    error::{Error, code},
    events::{Recorder, Weight},
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

    /// `None` if nothing can be made any more, because the namespace is being deleted.
    pub async fn create<O: Kind>(&self, owner: &O, pod: &Pod) -> Result<Option<Pod>, Error> {
        let key = Key::of(owner);
        match self.api(&key.namespace).create(&PostParams::default(), pod).await {
            Ok(made) => {
                self.written.wrote(&key, &self.pods, &made);
                let name = made.metadata.name.as_deref().unwrap_or_default();
                self.recorder.tell(owner, Weight::Normal, "SuccessfulCreate", format!("Created pod: {name}"));
                Ok(Some(made))
            }
            Err(error) if is_namespace_terminating(&error) => Ok(None),
            Err(error) => {
                let message = format!("Error creating: {}", message_of(&error));
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
            // It is gone, or there is another one: the cache has to show that before anything is decided again.
            Err(error) if matches!(code(&error), 404 | 409) => {
                self.written.deleted(&key, &self.pods, pod);
                Ok(())
            }
            Err(error) => {
                let message = format!("Error deleting: {}", message_of(&error));
                self.recorder.tell(owner, Weight::Warning, "FailedDelete", message);
                Err(error.into())
            }
        }
    }
}

/// The API's own message, without the client's words around it.
pub fn message_of(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// Whether an object was refused because its namespace is being deleted.
pub fn is_namespace_terminating(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}
