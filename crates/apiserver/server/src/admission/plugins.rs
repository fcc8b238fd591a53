//! The steps of admission by upstream's names, each of which can be switched off.

use std::fmt;

/// What can be switched. The order is upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Plugin {
    NamespaceLifecycle,
    LimitRanger,
    ServiceAccount,
    NodeRestriction,
    TaintNodesByCondition,
    AlwaysPullImages,
    PodSecurity,
    Priority,
    DefaultTolerationSeconds,
    PersistentVolumeClaimResize,
    StorageObjectInUseProtection,
    RuntimeClass,
    CertificateApproval,
    CertificateSigning,
    CertificateSubjectRestriction,
    DefaultStorageClass,
    DefaultIngressClass,
    PodTopologyLabels,
    DenyServiceExternalIPs,
    MutatingAdmissionPolicy,
    MutatingAdmissionWebhook,
    ValidatingAdmissionPolicy,
    ValidatingAdmissionWebhook,
    ResourceQuota,
}

use Plugin::{AlwaysPullImages, DenyServiceExternalIPs};

/// Every plugin there is here.
const ALL: [Plugin; 24] = [
    Plugin::NamespaceLifecycle,
    Plugin::LimitRanger,
    Plugin::ServiceAccount,
    Plugin::NodeRestriction,
    Plugin::TaintNodesByCondition,
    Plugin::AlwaysPullImages,
    Plugin::PodSecurity,
    Plugin::Priority,
    Plugin::DefaultTolerationSeconds,
    Plugin::PersistentVolumeClaimResize,
    Plugin::StorageObjectInUseProtection,
    Plugin::RuntimeClass,
    Plugin::CertificateApproval,
    Plugin::CertificateSigning,
    Plugin::CertificateSubjectRestriction,
    Plugin::DefaultStorageClass,
    Plugin::DefaultIngressClass,
    Plugin::PodTopologyLabels,
    Plugin::DenyServiceExternalIPs,
    Plugin::MutatingAdmissionPolicy,
    Plugin::MutatingAdmissionWebhook,
    Plugin::ValidatingAdmissionPolicy,
    Plugin::ValidatingAdmissionWebhook,
    Plugin::ResourceQuota,
];

/// Those that nobody wants unless they ask for them.
const OPTIONAL: [Plugin; 2] = [AlwaysPullImages, DenyServiceExternalIPs];

impl fmt::Display for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Which plugins are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plugins(u32);

impl Default for Plugins {
    fn default() -> Self {
        let on = ALL.into_iter().filter(|plugin| !OPTIONAL.contains(plugin));
        Self(on.fold(0, |set, plugin| set | bit(plugin)))
    }
}

const fn bit(plugin: Plugin) -> u32 {
    1 << plugin as u32
}

impl Plugins {
    /// The usual ones, with those of the first list and without those of the second.
    pub fn chosen(enabled: &[String], disabled: &[String]) -> Result<Self, String> {
        let mut chosen = Self::default();
        for name in enabled {
            chosen.0 |= bit(find(name)?);
        }
        for name in disabled {
            if enabled.contains(name) {
                return Err(format!("admission plugin {name:?} is both enabled and disabled: name it once"));
            }
            chosen.0 &= !bit(find(name)?);
        }
        Ok(chosen)
    }

    pub fn has(self, plugin: Plugin) -> bool {
        self.0 & bit(plugin) != 0
    }
}

fn find(name: &str) -> Result<Plugin, String> {
    ALL.into_iter().find(|plugin| plugin.to_string() == name).ok_or_else(|| {
        let known: Vec<String> = ALL.iter().map(ToString::to_string).collect();
        format!("there is no admission plugin {name:?}: choose from {}", known.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn chosen_by_name() {
        let usual = Plugins::default();
        assert!(usual.has(Plugin::PodSecurity) && !usual.has(AlwaysPullImages));
        let chosen = Plugins::chosen(&names(&["AlwaysPullImages"]), &names(&["PodSecurity", "ResourceQuota"])).unwrap();
        assert!(chosen.has(AlwaysPullImages) && !chosen.has(Plugin::PodSecurity) && !chosen.has(Plugin::ResourceQuota));
        assert!(Plugins::chosen(&names(&["PodPolice"]), &[]).unwrap_err().contains("choose from NamespaceLifecycle, "));
        assert!(Plugins::chosen(&names(&["Priority"]), &names(&["Priority"])).is_err());
    }
}
