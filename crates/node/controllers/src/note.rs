//! An Event that a decision asks for.

use kube::Resource;

use crate::events::{Recorder, Weight};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub warning: bool,
    pub reason: &'static str,
    pub message: String,
}

impl Note {
    pub fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self { warning: false, reason, message: message.into() }
    }

    pub fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self { warning: true, reason, message: message.into() }
    }

    pub fn tell(&self, recorder: &Recorder, about: &impl Resource<DynamicType = ()>) {
        let weight = if self.warning { Weight::Warning } else { Weight::Normal };
        recorder.tell(about, weight, self.reason, self.message.clone());
    }
}
