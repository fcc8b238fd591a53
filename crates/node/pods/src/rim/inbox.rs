//! What a pod's worker has not taken yet: the latest of each, so that it never grows.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::Pod;
use tokio::sync::Notify;

use crate::{admit::Refusal, runtime::Container};

#[derive(Debug, Default)]
pub struct News {
    pub pod: Option<Arc<Pod>>,
    pub is_gone: bool,
    pub containers: Option<(Duration, Vec<Container>)>,
    pub refusal: Option<Refusal>,
}

#[derive(Debug, Default)]
pub struct Inbox {
    news: Mutex<News>,
    arrived: Notify,
}

impl Inbox {
    pub fn put(&self, change: impl FnOnce(&mut News)) {
        change(&mut self.news.lock().unwrap_or_else(PoisonError::into_inner));
        self.arrived.notify_one();
    }

    pub fn take(&self) -> News {
        std::mem::take(&mut self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub async fn arrived(&self) {
        self.arrived.notified().await;
    }
}
