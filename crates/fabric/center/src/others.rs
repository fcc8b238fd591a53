//! Several centers on one store: what each says, in the store, of the edges that are connected to it, so that the one that leads knows of all.
//!
//! `~centers/<center>` is written when something changed, once a second at most, and every few seconds to say that the center is still there.
//! An edge that is in sync, has no part in a rollout and reported nothing lately is not in it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use kinds::EdgeId;
use placement::{account, health::Health};
use serde::{Deserialize, Serialize};
use server::Server;
use store::{Commit, Op, Range};
use tokio::sync::broadcast::{Receiver, error::TryRecvError};

use crate::{Fleet, accounts, news::News};

const CENTERS: &str = "~centers/";
const EVERY: Duration = Duration::from_secs(1);
const BEAT: Duration = Duration::from_secs(5);
/// A center that said nothing for so long is gone,
const SILENT: Duration = Duration::from_secs(15);
/// and forgotten after so long.
const FORGOTTEN: Duration = Duration::from_secs(300);
/// An edge that reported something is mentioned for so long.
const LATELY: Duration = Duration::from_secs(15);
/// So many edges are spoken of. Of the others nobody says that they are in sync.
const MOST: usize = 5000;
/// So many refused objects of an edge are named.
const REFUSED: usize = 5;

/// What one center says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Voice {
    beat: u64,
    edges: BTreeMap<String, Told>,
    more: bool,
}

/// Of an edge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Told {
    pub in_sync: bool,
    /// It has acknowledged everything but what it refused.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub delivered: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stuck: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<String, String>,
    /// Counts what it reports: the reports themselves are in the store.
    reports: u64,
    /// How it fares with rollouts, by the uids of their placements.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub steps: BTreeMap<String, Step>,
}

impl Default for Told {
    fn default() -> Self {
        Self {
            in_sync: true,
            delivered: false,
            stuck: None,
            refused: BTreeMap::new(),
            reports: 0,
            steps: BTreeMap::new(),
        }
    }
}

/// How an edge fares with a revision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub revision: u64,
    pub acked: bool,
    /// Empty if it is on its way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
    healthy: bool,
}

impl Step {
    pub fn new(revision: u64, acked: bool, health: &Health) -> Self {
        let failed = match health {
            Health::Failed(why) => Some(why.clone()),
            _ => None,
        };
        Self { revision, acked, failed, healthy: *health == Health::Healthy }
    }

    pub fn health(&self) -> Health {
        match (&self.failed, self.healthy) {
            (Some(why), _) => Health::Failed(why.clone()),
            (None, true) => Health::Healthy,
            (None, false) => Health::Progressing,
        }
    }
}

#[derive(Default)]
pub struct Others {
    heard: Mutex<HashMap<String, Heard>>,
}

struct Heard {
    voice: Voice,
    /// When it last said something new.
    at: Instant,
    /// That it is gone was noticed.
    missed: bool,
}

impl Heard {
    fn lives(&self) -> bool {
        self.at.elapsed() < SILENT
    }
}

impl Others {
    /// What a center says of an edge that it has; `None` if that center is gone.
    pub fn of(&self, center: &str, edge: &EdgeId) -> Option<Told> {
        let heard = self.heard();
        let heard = heard.get(center).filter(|heard| heard.lives())?;
        let told = heard.voice.edges.get(&edge.to_string()).cloned();
        Some(told.unwrap_or_else(|| Told { in_sync: !heard.voice.more, ..Told::default() }))
    }

    fn heard(&self) -> MutexGuard<'_, HashMap<String, Heard>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up what centers say now: the edges of which something else is said than before, and whether they reported something.
    fn listen(&self, voices: HashMap<String, Voice>) -> BTreeMap<String, bool> {
        let (mut heard, mut news) = (self.heard(), BTreeMap::new());
        for (center, voice) in voices {
            let before = heard.get(&center);
            if before.is_some_and(|heard| heard.voice.beat == voice.beat) {
                continue;
            }
            let nothing = BTreeMap::new();
            let old = before.map_or(&nothing, |heard| &heard.voice.edges);
            let named: BTreeSet<&String> = old.keys().chain(voice.edges.keys()).collect();
            for edge in named {
                let (was, is) = (old.get(edge), voice.edges.get(edge));
                if was != is {
                    let reports = |told: Option<&Told>| told.map_or(0, |told| told.reports);
                    let reported = is.is_some() && reports(was) != reports(is);
                    *news.entry(edge.clone()).or_insert(false) |= reported;
                }
            }
            heard.insert(center, Heard { voice, at: Instant::now(), missed: false });
        }
        news
    }
}

/// Speaks and listens until the server stops.
pub async fn run(fleet: Arc<Fleet>, server: Arc<Server>, me: String) {
    let mut news = fleet.news.subscribe();
    let mut reports: HashMap<EdgeId, (u64, Instant)> = HashMap::new();
    let (mut said, mut at) = (Voice::default(), None::<Instant>);
    let mut shutdown = server.shutdown.clone();
    let key = format!("{CENTERS}{me}");
    while !*shutdown.borrow() {
        drain(&mut news, &mut reports);
        let (edges, more) = speak(&fleet, &server, &mut reports);
        if edges != said.edges || more != said.more || at.is_none_or(|at| at.elapsed() >= BEAT) {
            said = Voice { beat: said.beat + 1, edges, more };
            let value = serde_json::to_vec(&said).unwrap_or_default().into();
            let put = Commit { compares: Vec::new(), ops: vec![Op::Put { key: key.clone(), value }] };
            match fleet.store().commit(put).await {
                Ok(_) => at = Some(Instant::now()),
                Err(error) => tracing::debug!(%error, "other centers could not be told of this one's edges"),
            }
        }
        if let Err(error) = hear(&fleet, &me).await {
            tracing::debug!(%error, "other centers could not be heard");
        }
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            _ = shutdown.wait_for(|down| *down) => {}
        }
    }
    let gone = Commit { compares: Vec::new(), ops: vec![Op::Delete { key }] };
    let _ = tokio::time::timeout(EVERY, fleet.store().commit(gone)).await;
}

fn drain(news: &mut Receiver<News>, reports: &mut HashMap<EdgeId, (u64, Instant)>) {
    loop {
        match news.try_recv() {
            Ok(News::Reports(edge, _)) => {
                let count = reports.get(&edge).map_or(0, |(count, _)| *count);
                reports.insert(edge, (count + 1, Instant::now()));
            }
            Ok(News::Edge(_)) => {}
            // Whoever it was: all that ever reported did so again.
            Err(TryRecvError::Lagged(_)) => {
                reports.values_mut().for_each(|(count, at)| (*count, *at) = (*count + 1, Instant::now()));
            }
            Err(TryRecvError::Empty | TryRecvError::Closed) => return,
        }
    }
}

fn speak(
    fleet: &Fleet,
    server: &Server,
    reports: &mut HashMap<EdgeId, (u64, Instant)>,
) -> (BTreeMap<String, Told>, bool) {
    let mut steps = fleet.rollouts.steps(fleet);
    let (mut all, mut more) = (BTreeMap::new(), false);
    for edge in fleet.edges.list(None) {
        if !fleet.is_connected(&edge.id) {
            continue;
        }
        let (account::Edge { in_sync, delivered, stuck, refused, .. }, ..) =
            accounts::standing(fleet, server, &edge.id);
        let lately = reports.get(&edge.id).filter(|(_, at)| at.elapsed() < LATELY);
        let told = Told {
            in_sync,
            // It is implied by the other, and not said then.
            delivered: delivered && !in_sync && refused.len() <= REFUSED,
            stuck: stuck.map(|why| why.to_string()),
            refused: refused.iter().take(REFUSED).map(|(key, why)| (key.to_string(), why.to_string())).collect(),
            reports: lately.map_or(0, |(count, _)| *count),
            steps: steps.remove(&edge.id).unwrap_or_default(),
        };
        if told == Told::default() {
            continue;
        }
        if all.len() == MOST {
            more = true;
            break;
        }
        all.insert(edge.id.to_string(), told);
    }
    (all, more)
}

async fn hear(fleet: &Fleet, me: &str) -> Result<(), store::Error> {
    let page = fleet.store().range(Range::prefix(CENTERS), 0, None).await?;
    let of = |entry: &store::Entry| {
        let center = entry.key.strip_prefix(CENTERS).filter(|center| *center != me)?;
        Some((center.to_owned(), serde_json::from_slice(&entry.value).ok()?))
    };
    let voices: HashMap<String, Voice> = page.entries.iter().filter_map(of).collect();
    let (silent, ended) = {
        let mut heard = fleet.others.heard();
        let before = heard.len();
        heard.retain(|center, _| voices.contains_key(center));
        let mut ended = heard.len() < before;
        for one in heard.values_mut().filter(|heard| !heard.lives() && !heard.missed) {
            (one.missed, ended) = (true, true);
        }
        let old = heard.iter().filter(|(_, heard)| heard.at.elapsed() > FORGOTTEN);
        (old.map(|(center, _)| center.clone()).collect::<Vec<_>>(), ended)
    };
    if ended {
        // Its edges are nowhere until they come to another center.
        for edge in fleet.edges.list(None).into_iter().filter(|edge| !fleet.is_connected(&edge.id)) {
            fleet.news.tell(|| News::Edge(edge.id.clone()));
        }
    }
    for (edge, reported) in fleet.others.listen(voices) {
        let Ok(edge) = edge.parse::<EdgeId>() else { continue };
        if reported {
            fleet.accounts.again(&edge);
        }
        fleet.news.tell(|| News::Edge(edge));
    }
    if !silent.is_empty() && fleet.lead.is_here() {
        let ops = silent.into_iter().map(|center| Op::Delete { key: format!("{CENTERS}{center}") }).collect();
        fleet.store().commit(Commit { compares: Vec::new(), ops }).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voice(beat: u64, edges: &[(&str, Told)]) -> HashMap<String, Voice> {
        let edges = edges.iter().map(|(name, told)| ((*name).to_owned(), told.clone())).collect();
        [("c".to_owned(), Voice { beat, edges, more: false })].into()
    }

    #[test]
    fn what_is_new_is_told_once() {
        let (others, edge) = (Others::default(), EdgeId::new("root", "a"));
        assert_eq!(others.of("c", &edge), None, "nobody has heard of that center");
        let behind = Told { in_sync: false, ..Told::default() };
        assert_eq!(others.listen(voice(1, &[("root:a", behind.clone())])), [("root:a".to_owned(), false)].into());
        assert_eq!(others.of("c", &edge), Some(behind.clone()));
        assert!(others.listen(voice(1, &[("root:a", behind.clone())])).is_empty());
        let reported = Told { reports: 3, ..behind };
        assert_eq!(others.listen(voice(2, &[("root:a", reported)])), [("root:a".to_owned(), true)].into());
        assert_eq!(others.listen(voice(3, &[])), [("root:a".to_owned(), false)].into());
        assert_eq!(others.of("c", &edge), Some(Told::default()), "of whom nothing is said all is well");
    }

    #[test]
    fn steps_say_what_they_were_made_of() {
        for health in [Health::Healthy, Health::Progressing, Health::Failed("x".into())] {
            let step = Step::new(3, true, &health);
            let text = serde_json::to_string(&step).unwrap();
            assert_eq!(serde_json::from_str::<Step>(&text).unwrap().health(), health);
        }
    }
}
