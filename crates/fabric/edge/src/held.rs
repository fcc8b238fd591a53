//! What an edge remembers of an object that the center sent.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// Beside the object itself: enough to tell the center's part of it from what was added here, and whether the center knows
/// what became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Held {
    /// Key and content as they came, as [`link::entry_hash`] has it, in hexadecimal.
    #[serde(with = "hexadecimal")]
    pub hash: u128,
    /// The workspace at the center.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// The labels that the center sent, but for the one that every object has from it.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub labels: BTreeSet<String>,
    /// The annotations, but for the one with the source.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub annotations: BTreeSet<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub finalizers: BTreeSet<String>,
    /// It was here before the center sent it, as it is on every server, and stays when the center takes its own away.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub adopted: bool,
    /// A namespace that was made on this edge and belongs to it. Its workspace only asked for it to be there, and
    /// nothing of that workspace comes into it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub foreign: bool,
    /// The state that the center has acked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reported: Option<Reported>,
    /// A HorizontalPodAutoscaler of this edge sets the number of its replicas. It is looked up whenever this is read, and not kept.
    #[serde(skip)]
    pub is_autoscaled: bool,
}

impl Held {
    /// Reads a record. From one that is damaged nobody knows whether the object was here before the center sent it, so
    /// the object counts as adopted: it stays when the center takes its own away. The center sends it again.
    pub fn read(key: &str, record: &[u8]) -> Self {
        serde_json::from_slice(record).unwrap_or_else(|error| {
            tracing::error!(
                key,
                %error,
                "the record of an object of the center is damaged: the object is never deleted here on behalf of the \
                 center; delete it by hand if it is not needed any more"
            );
            Self { adopted: true, ..Self::default() }
        })
    }
}

/// A state by its hash. One of another epoch is void.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reported {
    pub epoch: u64,
    #[serde(with = "hexadecimal")]
    pub hash: u128,
}

pub(crate) mod hexadecimal {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(hash: &u128, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(&format_args!("{hash:032x}"))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(text: D) -> Result<u128, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(text)?;
        u128::from_str_radix(&text, 16).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back() {
        let reported = Some(Reported { epoch: 3, hash: 1 });
        let held =
            Held { hash: 7, source: "root".into(), labels: ["a".to_owned()].into(), reported, ..Held::default() };
        let text = serde_json::to_string(&held).unwrap();
        assert!(text.contains("\"00000000000000000000000000000007\"") && !text.contains("finalizers"), "{text}");
        assert_eq!(serde_json::from_str::<Held>(&text).unwrap(), held);
    }
}
