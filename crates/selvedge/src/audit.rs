//! What can be said about the audit log, under upstream's names.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

#[derive(Args, Clone, Debug, Default, Deserialize)]
#[command(next_help_heading = "Audit log")]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AuditSettings {
    /// Write down who did what, as JSON lines, in this file (`-`: the standard output). Without it nothing is.
    #[arg(long, env = "SELVEDGE_AUDIT_LOG_PATH")]
    pub audit_log_path: Option<PathBuf>,
    /// What is written down: a Policy of audit.k8s.io/v1. Without it, every write without its body.
    #[arg(long, env = "SELVEDGE_AUDIT_POLICY_FILE")]
    pub audit_policy_file: Option<PathBuf>,
    /// Megabytes of a log before a new one is begun. [default: 100]
    #[arg(long, env = "SELVEDGE_AUDIT_LOG_MAXSIZE")]
    pub audit_log_maxsize: Option<u64>,
    /// Days that old logs are kept; 0 is for ever. [default: 0]
    #[arg(long, env = "SELVEDGE_AUDIT_LOG_MAXAGE")]
    pub audit_log_maxage: Option<u64>,
    /// Old logs that are kept; 0 is all. [default: 10]
    #[arg(long, env = "SELVEDGE_AUDIT_LOG_MAXBACKUP")]
    pub audit_log_maxbackup: Option<usize>,
    /// Events (of a kilobyte) that may wait to be written. [default: 10000]
    #[arg(long, env = "SELVEDGE_AUDIT_LOG_BATCH_BUFFER_SIZE")]
    pub audit_log_batch_buffer_size: Option<usize>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit_log_path: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit_policy_file: Option<PathBuf>,
    pub audit_log_maxsize: u64,
    pub audit_log_maxage: u64,
    pub audit_log_maxbackup: usize,
    pub audit_log_batch_buffer_size: usize,
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self {
            audit_log_path: None,
            audit_policy_file: None,
            audit_log_maxsize: 100,
            audit_log_maxage: 0,
            audit_log_maxbackup: 10,
            audit_log_batch_buffer_size: 10_000,
        }
    }
}

impl AuditConfig {
    pub fn lay(&mut self, over: AuditSettings) {
        self.audit_log_path = over.audit_log_path.or(self.audit_log_path.take());
        self.audit_policy_file = over.audit_policy_file.or(self.audit_policy_file.take());
        self.audit_log_maxsize = over.audit_log_maxsize.unwrap_or(self.audit_log_maxsize);
        self.audit_log_maxage = over.audit_log_maxage.unwrap_or(self.audit_log_maxage);
        self.audit_log_maxbackup = over.audit_log_maxbackup.unwrap_or(self.audit_log_maxbackup);
        self.audit_log_batch_buffer_size = over.audit_log_batch_buffer_size.unwrap_or(self.audit_log_batch_buffer_size);
    }

    pub fn options(&self) -> Option<audit::Options> {
        let log = audit::LogOptions {
            path: self.audit_log_path.clone()?,
            max_size: self.audit_log_maxsize,
            max_age: self.audit_log_maxage,
            max_backup: self.audit_log_maxbackup,
            buffer: self.audit_log_batch_buffer_size.max(1),
        };
        Some(audit::Options { log, policy: self.audit_policy_file.clone() })
    }
}
