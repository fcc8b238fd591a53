//! One request to the cluster, with what has to be written down before and after.

use std::sync::Arc;

use kinds::{EdgeId, ObjectKey};
use link::Key;
use serde_json::Value;
use server::Server;

use super::{
    answer::{Answer, Meaning},
    found::{Found, Mark, Record},
    inward::Shown,
    local, outward,
    plan::{Outcome, Wanted},
    remote::Remote,
};

pub enum What {
    Look,
    Apply { adopted: bool, known: bool, uid: String },
    Delete { uid: String, version: u64 },
    Release { uid: String },
    Forget,
}

/// What came of it.
pub struct Done {
    pub outcome: Outcome,
    /// What is to be shown here of the object.
    pub shown: Option<Shown>,
    /// Whose changes were taken back.
    pub overruled: Option<String>,
    /// Why the cluster is away.
    pub why: Option<String>,
}

impl From<Outcome> for Done {
    fn from(outcome: Outcome) -> Self {
        Self { outcome, shown: None, overruled: None, why: None }
    }
}

#[derive(Clone)]
pub struct Requests {
    pub server: Arc<Server>,
    pub remote: Remote,
    pub edge: EdgeId,
}

/// Ends a request early: the cluster did not answer, or there is nothing to ask for.
struct Early(Box<Done>);

impl From<String> for Early {
    fn from(why: String) -> Self {
        Self(Box::new(Done { why: Some(why), ..Outcome::Away.into() }))
    }
}

impl From<Outcome> for Early {
    fn from(outcome: Outcome) -> Self {
        Self(Box::new(outcome.into()))
    }
}

impl From<store::Error> for Early {
    fn from(error: store::Error) -> Self {
        Outcome::Refused(format!("this edge cannot write it down: {error}")).into()
    }
}

impl Requests {
    /// `record` is what is remembered of the object.
    pub async fn carry_out(&self, key: &Key, record: Option<Record>, what: What) -> Done {
        let Some(parsed) = ObjectKey::parse(key) else { return Outcome::Moot.into() };
        let done = match what {
            What::Look => self.look(key, &parsed, record).await,
            What::Apply { adopted, known, uid } => self.apply(key, &parsed, adopted, known, &uid).await,
            What::Delete { uid, version } => self.delete(&parsed, record, &uid, version).await,
            What::Release { uid } => self.release(&parsed, record, &uid).await,
            What::Forget => self.forget(key).await,
        };
        done.unwrap_or_else(|Early(done)| *done)
    }

    fn read(&self, key: &ObjectKey<'_>, value: &Value) -> Found {
        Found::read(key, value, &self.edge.to_string())
    }

    /// What the center wants of it at this moment.
    fn wanted(&self, key: &Key) -> Result<(Value, Wanted), Early> {
        local::outward_of(&self.server, key).ok_or_else(|| Outcome::Moot.into())
    }

    async fn look(&self, key: &Key, parsed: &ObjectKey<'_>, record: Option<Record>) -> Result<Done, Early> {
        let api_version = match (self.wanted(key), record) {
            (Ok((_, wanted)), _) => wanted.api_version,
            (Err(_), Some(record)) => record.api_version,
            (Err(early), None) => return Err(early),
        };
        let answer = self.remote.get(parsed, &api_version).await?;
        Ok(match self.meaning(parsed, &answer)? {
            Meaning::Missing => Outcome::Looked(None).into(),
            Meaning::Done => Outcome::Looked(Some(self.read(parsed, &answer.body))).into(),
            other => refused(other),
        })
    }

    async fn apply(
        &self,
        key: &Key,
        parsed: &ObjectKey<'_>,
        adopted: bool,
        known: bool,
        uid: &str,
    ) -> Result<Done, Early> {
        let (value, wanted) = self.wanted(key)?;
        if !known {
            local::remember(&self.server, key, &wanted.begun(adopted)).await?;
        }
        let value = outward::only(uid, outward::marked(value, &self.edge, adopted));
        let mut overruled = None;
        let mut answer = self.remote.apply(parsed, &wanted.api_version, &value, false).await?;
        let mut meaning = self.meaning(parsed, &answer)?;
        if let Meaning::Conflict(who) = meaning {
            // What the center sent is the center's; others are told so where they will look.
            tracing::info!(%key, who, "others changed in the cluster what is the center's; it is changed back");
            overruled = Some(format!("{} {who}", clock::now()));
            answer = self.remote.apply(parsed, &wanted.api_version, &value, true).await?;
            meaning = self.meaning(parsed, &answer)?;
        }
        match meaning {
            Meaning::Done => {}
            Meaning::Another(_) => return Ok(Outcome::Gone.into()),
            Meaning::Immutable(reason) if !adopted => return self.make_way(parsed, &wanted, reason).await,
            other => return Ok(refused(other)),
        }
        let mut body = answer.body;
        let found = self.read(parsed, &body);
        let record =
            Record { uid: found.uid.clone(), sent: wanted.hash, fields: found.fields, ..wanted.begun(adopted) };
        local::remember(&self.server, key, &record).await?;
        let shown = Some(Shown::read(&mut body));
        Ok(Done { shown, overruled, ..Outcome::Applied(found, record).into() })
    }

    /// It cannot become what it shall be: it goes, and another one is made when it is gone.
    async fn make_way(&self, key: &ObjectKey<'_>, wanted: &Wanted, reason: String) -> Result<Done, Early> {
        let answer = self.remote.get(key, &wanted.api_version).await?;
        if self.meaning(key, &answer)? != Meaning::Done {
            return Ok(Outcome::Refused(reason).into());
        }
        let found = self.read(key, &answer.body);
        if found.mark != (Mark::Ours { adopted: false }) {
            return Ok(Outcome::Refused(reason).into());
        }
        tracing::info!(%key, reason, "it cannot be changed in the cluster and is made anew");
        let answer = self.remote.delete(key, &wanted.api_version, &found.uid, found.version).await?;
        Ok(match self.meaning(key, &answer)? {
            Meaning::Done | Meaning::Missing => Outcome::Deleting.into(),
            other => refused(other),
        })
    }

    async fn delete(
        &self,
        key: &ObjectKey<'_>,
        record: Option<Record>,
        uid: &str,
        version: u64,
    ) -> Result<Done, Early> {
        let record = record.ok_or(Outcome::Moot)?;
        let answer = self.remote.delete(key, &record.api_version, uid, version).await?;
        Ok(match self.meaning(key, &answer)? {
            Meaning::Done => Outcome::Deleting.into(),
            Meaning::Missing => Outcome::Gone.into(),
            other => refused(other),
        })
    }

    async fn release(&self, key: &ObjectKey<'_>, record: Option<Record>, uid: &str) -> Result<Done, Early> {
        let record = record.ok_or(Outcome::Moot)?;
        let nothing = outward::only(uid, outward::nothing(key, &record.api_version, &record.kind));
        let answer = self.remote.apply(key, &record.api_version, &nothing, true).await?;
        Ok(match self.meaning(key, &answer)? {
            Meaning::Done | Meaning::Missing => Outcome::Released.into(),
            Meaning::Another(_) => Outcome::Gone.into(),
            other => refused(other),
        })
    }

    async fn forget(&self, key: &Key) -> Result<Done, Early> {
        local::forget(&self.server, key).await?;
        Ok(Outcome::Forgotten.into())
    }

    fn meaning(&self, key: &ObjectKey<'_>, answer: &Answer) -> Result<Meaning, Early> {
        match answer.meaning(key) {
            Meaning::Away(why) => Err(why.into()),
            meaning => Ok(meaning),
        }
    }
}

fn refused(meaning: Meaning) -> Done {
    let reason = match meaning {
        Meaning::Refused(reason) | Meaning::Immutable(reason) | Meaning::Another(reason) => reason,
        Meaning::Conflict(who) => format!("others keep changing it: {who}"),
        Meaning::Missing => "the cluster has no such namespace, or no such kind".to_owned(),
        Meaning::Done | Meaning::Away(_) => String::new(),
    };
    Outcome::Refused(reason).into()
}
