//! What the journal has that the database lacks, and whether anything is missing, after a crash or a copy.

use std::{fs::File, path::Path};

use super::{
    fault::RESTORE,
    journal::{self, Found, Journal, JournalDir},
    schema,
};
use crate::{Batch, Error, Revision};

/// What the journal has that follows the database's last revision.
pub(super) struct InJournal<F = File> {
    pub(super) journal: Option<Journal<F>>,
    pub(super) unsettled: Vec<Batch>,
    /// Why acknowledged writes may be missing.
    pub(super) damage: Option<String>,
}

/// `named` is the id of the journal that the database names. `is_copy` says that the database was copied by `VACUUM
/// INTO`, which leaves the journal behind. `path` is the directory as messages name it.
pub(super) fn read_journal<D: JournalDir + ?Sized>(
    dir: &D,
    path: &Path,
    named: u64,
    settled: Revision,
    is_copy: bool,
) -> Result<InJournal<D::File>, Error> {
    let path = path.join(journal::FILE);
    let database = schema::FILE;
    let opened = Journal::open(dir, named, settled)
        .map_err(|error| Error::Unusable(format!("cannot read {}: {error}. {RESTORE}", path.display())))?;
    let none = || InJournal { journal: None, unsettled: Vec::new(), damage: None };
    let damaged = |what: String| InJournal { damage: Some(format!("{} {what}", path.display())), ..none() };
    let belongs = format!("does not belong to the {database} beside it, which ends at revision {settled}");
    Ok(match opened {
        journal::Opened::Missing if named == 0 || is_copy => none(),
        journal::Opened::Missing => damaged(format!("is missing, but {database} needs it")),
        journal::Opened::Ours(journal, Found { batches, damage, .. }) => InJournal {
            // A damaged one is not written to.
            journal: damage.is_none().then_some(journal),
            unsettled: batches,
            damage: damage.map(|what| format!("{} {what}", path.display())),
        },
        journal::Opened::First(mut batches) if named == 0 => {
            batches.retain(|batch| batch.revision > settled);
            if batches.iter().zip(settled + 1..).any(|(batch, next)| batch.revision != next) {
                damaged(belongs)
            } else {
                InJournal { unsettled: batches, ..none() }
            }
        }
        // One that was never used, or that is left from before the store was last closed in order.
        journal::Opened::Foreign(revision) if named == 0 && revision.is_none_or(|revision| revision <= settled) => {
            none()
        }
        journal::Opened::First(_) | journal::Opened::Foreign(_) => damaged(belongs),
    })
}
