//! What admission remembers of one call.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

#[derive(Default)]
pub struct Notes {
    /// The server changes something on behalf of a request that was admitted already.
    exempt: bool,
    annotations: Mutex<BTreeMap<String, String>>,
}

impl Notes {
    pub fn exempt() -> Self {
        Self { exempt: true, ..Self::default() }
    }

    pub fn is_exempt(&self) -> bool {
        self.exempt
    }

    /// Something for the audit log, under a key that names who says it.
    pub fn annotate(&self, key: String, value: String) {
        self.annotations.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_insert(value);
    }

    /// Everything that was noted for the audit log.
    pub fn annotations(&self) -> BTreeMap<String, String> {
        self.annotations.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
