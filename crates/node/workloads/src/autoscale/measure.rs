//! Asks the API for what an autoscaler needs to know: the scale of its target, Pods, and metrics of whatever serves them.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::{
    api::{
        autoscaling::v2::{CrossVersionObjectReference, MetricIdentifier, MetricSpec},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::{Api, Client, api::ListParams, core::Selector};
use serde_json::Value;

use super::metric::{Found, custom_samples, external_amount, object_amount, resource_samples};
use controllers::{code, dependents::message_of};

/// An API that takes longer does not answer.
const PATIENCE: Duration = Duration::from_secs(30);
const CUSTOM: &str = "custom.metrics.k8s.io";
const EXTERNAL: &str = "external.metrics.k8s.io";

/// Why a request was not answered as hoped. The code is 0 where no answer came.
#[derive(Debug)]
pub struct Failed {
    pub code: u16,
    pub message: String,
}

impl From<kube::Error> for Failed {
    fn from(error: kube::Error) -> Self {
        Self { code: code(&error), message: message_of(&error) }
    }
}

/// The scale of a target, and where it is.
#[derive(Debug)]
pub struct Scale {
    path: String,
    value: Value,
}

fn count(value: Option<&Value>) -> i32 {
    value.and_then(Value::as_i64).map_or(0, |count| i32::try_from(count).unwrap_or(i32::MAX))
}

impl Scale {
    /// The size that is asked for.
    pub fn wanted(&self) -> i32 {
        count(self.value.pointer("/spec/replicas"))
    }

    /// The size that is there.
    pub fn there(&self) -> i32 {
        count(self.value.pointer("/status/replicas"))
    }

    pub fn selector(&self) -> &str {
        self.value.pointer("/status/selector").and_then(Value::as_str).unwrap_or_default()
    }
}

/// Where objects of a kind are: the path of its version, and its name as a resource.
type Place = (String, String);

pub struct Asker {
    client: Client,
    /// By group and kind. Discovery is asked again when a place is not found any more.
    places: Mutex<HashMap<(String, String), Place>>,
}

impl Asker {
    pub fn new(client: Client) -> Self {
        Self { client, places: Mutex::default() }
    }

    async fn get(&self, path: &str) -> Result<Value, Failed> {
        self.request(http::Request::get(path).body(Vec::new())).await
    }

    async fn request(&self, request: Result<http::Request<Vec<u8>>, http::Error>) -> Result<Value, Failed> {
        let request = request.map_err(kube::Error::HttpError)?;
        match tokio::time::timeout(PATIENCE, self.client.request(request)).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(Failed { code: 0, message: format!("no answer came within {} seconds", PATIENCE.as_secs()) }),
        }
    }

    /// As upstream does it, the version of a reference does not matter: any that is served has the same objects.
    async fn place(&self, reference: &CrossVersionObjectReference) -> Result<Place, Failed> {
        let version = reference.api_version.as_deref().unwrap_or("v1");
        let group = version.split_once('/').map_or("", |(group, _)| group);
        let key = (group.to_owned(), reference.kind.clone());
        let known = self.places.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let versions = match group {
            "" => vec!["/api/v1".to_owned()],
            _ => self.versions(group).await?,
        };
        for version in versions {
            let list = self.get(&version).await?;
            let is_it = |one: &&Value| {
                one["kind"] == *reference.kind && one["name"].as_str().is_some_and(|name| !name.contains('/'))
            };
            let found = list["resources"].as_array().and_then(|all| all.iter().find(is_it));
            if let Some(resource) = found.and_then(|one| one["name"].as_str()) {
                let place = (version, resource.to_owned());
                let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
                places.insert(key, place.clone());
                return Ok(place);
            }
        }
        let message = format!("no matches for kind {:?} in group {group:?}", reference.kind);
        Err(Failed { code: 404, message })
    }

    /// The paths of all versions of a group, the preferred one first.
    async fn versions(&self, group: &str) -> Result<Vec<String>, Failed> {
        let found = self.get(&format!("/apis/{group}")).await?;
        let others = found["versions"].as_array().into_iter().flatten();
        let mut all = Vec::new();
        for version in std::iter::once(&found["preferredVersion"]).chain(others) {
            let path = version["groupVersion"].as_str().map(|version| format!("/apis/{version}"));
            all.extend(path.filter(|path| !all.contains(path)));
        }
        Ok(all)
    }

    pub async fn scale(&self, namespace: &str, target: &CrossVersionObjectReference) -> Result<Scale, Failed> {
        let (version, resource) = self.place(target).await?;
        let path = format!("{version}/namespaces/{namespace}/{resource}/{}/scale", target.name);
        match self.get(&path).await {
            Ok(value) => Ok(Scale { path, value }),
            Err(failed) => {
                self.places.lock().unwrap_or_else(PoisonError::into_inner).retain(|(_, kind), _| *kind != target.kind);
                Err(failed)
            }
        }
    }

    /// Gives the target a size. Where others changed it meanwhile, the size is set on top of their changes.
    pub async fn rescale(&self, mut scale: Scale, to: i32) -> Result<(), Failed> {
        const TRIES: usize = 5;
        for left in (0..TRIES).rev() {
            scale.value["spec"]["replicas"] = to.into();
            let body = serde_json::to_vec(&scale.value).map_err(kube::Error::SerdeError)?;
            let request = http::Request::put(&scale.path).header("Content-Type", "application/json").body(body);
            match self.request(request).await {
                Ok(_) => return Ok(()),
                Err(failed) if failed.code == 409 && left > 0 => scale.value = self.get(&scale.path).await?,
                Err(failed) => return Err(failed),
            }
        }
        Ok(())
    }

    pub async fn pods(&self, namespace: &str, selector: &str) -> Result<Vec<Pod>, Failed> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        Ok(api.list(&ListParams::default().labels(selector)).await?.items)
    }

    /// What can be found out about one metric.
    pub async fn find(&self, namespace: &str, pods: &str, spec: &MetricSpec) -> Found {
        if let Some(of) = &spec.resource {
            return Found::OfPods(self.resource(namespace, pods, &of.name, None).await);
        }
        if let Some(of) = &spec.container_resource {
            return Found::OfPods(self.resource(namespace, pods, &of.name, Some(&of.container)).await);
        }
        if let Some(of) = &spec.pods {
            let path = format!("namespaces/{namespace}/pods/*/{}?labelSelector={}", part(&of.metric.name), part(pods));
            return Found::OfPods(self.custom(&path, &of.metric).await.and_then(|list| {
                let samples = custom_samples(&list);
                match samples.is_empty() {
                    true => Err("no metrics returned from custom metrics API".to_owned()),
                    false => Ok(samples),
                }
            }));
        }
        if let Some(of) = &spec.object {
            return Found::Total(self.object(namespace, &of.described_object, &of.metric).await);
        }
        if let Some(of) = &spec.external {
            return Found::Total(self.external(namespace, &of.metric).await);
        }
        Found::Total(Err("the metric names no source".to_owned()))
    }

    async fn resource(
        &self,
        namespace: &str,
        pods: &str,
        resource: &str,
        container: Option<&str>,
    ) -> Result<super::replicas::Samples, String> {
        let path = format!("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods?labelSelector={}", part(pods));
        let list = self.get(&path).await;
        let list =
            list.map_err(|failed| format!("unable to fetch metrics from resource metrics API: {}", failed.message))?;
        if list["items"].as_array().is_none_or(Vec::is_empty) {
            return Err("no metrics returned from resource metrics API".to_owned());
        }
        Ok(resource_samples(&list, resource, container))
    }

    async fn custom(&self, path: &str, metric: &MetricIdentifier) -> Result<Value, String> {
        let unable = |why: &str| format!("unable to fetch metrics from custom metrics API: {why}");
        let selector = selector(metric.selector.as_ref()).map_err(|why| unable(&why))?;
        let versions = self.versions(CUSTOM).await.map_err(|failed| unable(&failed.message))?;
        let version = versions.first().ok_or_else(|| unable("the group has no version"))?;
        let mark = if path.contains('?') { '&' } else { '?' };
        let metric = match selector.is_empty() {
            true => String::new(),
            false => format!("{mark}metricLabelSelector={}", part(&selector)),
        };
        self.get(&format!("{version}/{path}{metric}")).await.map_err(|failed| unable(&failed.message))
    }

    async fn object(
        &self,
        namespace: &str,
        about: &CrossVersionObjectReference,
        metric: &MetricIdentifier,
    ) -> Result<i128, String> {
        let unable = |why: &str| format!("unable to fetch metrics from custom metrics API: {why}");
        let is_core = about.api_version.as_deref().is_none_or(|version| !version.contains('/'));
        let path = if about.kind == "Namespace" && is_core {
            format!("namespaces/{namespace}/metrics/{}", part(&metric.name))
        } else {
            let (version, resource) = self.place(about).await.map_err(|failed| unable(&failed.message))?;
            let group = version.strip_prefix("/apis/").and_then(|version| version.split('/').next());
            let resource = group.map_or_else(|| resource.clone(), |group| format!("{resource}.{group}"));
            format!("namespaces/{namespace}/{resource}/{}/{}", part(&about.name), part(&metric.name))
        };
        object_amount(&self.custom(&path, metric).await?).map_err(|why| unable(&why))
    }

    async fn external(&self, namespace: &str, metric: &MetricIdentifier) -> Result<i128, String> {
        let selector = selector(metric.selector.as_ref())?;
        let path = format!(
            "/apis/{EXTERNAL}/v1beta1/namespaces/{namespace}/{}?labelSelector={}",
            part(&metric.name),
            part(&selector)
        );
        let list = self.get(&path).await;
        external_amount(
            &list.map_err(|failed| format!("unable to fetch metrics from external metrics API: {}", failed.message))?,
        )
    }
}

fn selector(selector: Option<&LabelSelector>) -> Result<String, String> {
    let Some(selector) = selector else { return Ok(String::new()) };
    let selector = Selector::try_from(selector.clone());
    Ok(selector.map_err(|error| format!("the selector of the metric cannot be used: {error}"))?.to_string())
}

/// A part of a path, or a value of a query.
pub fn part(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let one = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(one).collect()
}
