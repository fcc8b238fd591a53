//! What `/metrics` shows of placements and summaries.

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{Mutex, PoisonError},
};

use placement::{Id, account::Standing, summary::Summary};
use serde_json::Value;

/// So many groups of a collector are shown, and so many lines in all: whoever collects metrics pays for each.
const GROUPS: usize = 100;
const LINES: usize = 10_000;

#[derive(Default)]
pub struct Board {
    placements: Mutex<BTreeMap<Id, [usize; 4]>>,
    collectors: Mutex<BTreeMap<Id, Vec<String>>>,
}

impl Board {
    pub fn placement(&self, id: &Id, standing: Option<&Standing>) {
        let mut all = self.placements.lock().unwrap_or_else(PoisonError::into_inner);
        match standing {
            Some(s) => drop(all.insert(id.clone(), [s.in_sync, s.behind, s.offline, s.failing])),
            None => drop(all.remove(id)),
        }
    }

    pub fn collector(&self, id: &Id, summary: Option<&Summary>) {
        let lines = summary.map(|summary| lines(id, summary));
        let mut all = self.collectors.lock().unwrap_or_else(PoisonError::into_inner);
        match lines {
            Some(lines) => drop(all.insert(id.clone(), lines)),
            None => drop(all.remove(id)),
        }
    }

    pub fn text(&self, out: &mut String) {
        out.push_str("# HELP selvedge_placement_edges Edges that a placement reaches, by how they stand.\n# TYPE selvedge_placement_edges gauge\n");
        for (id, counts) in self.placements.lock().unwrap_or_else(PoisonError::into_inner).iter().take(LINES / 4) {
            let (workspace, name) = (escape(&id.workspace), escape(&id.name));
            for (state, count) in ["in_sync", "behind", "offline", "failing"].iter().zip(counts) {
                let _ = writeln!(
                    out,
                    "selvedge_placement_edges{{workspace=\"{workspace}\",placement=\"{name}\",state=\"{state}\"}} {count}"
                );
            }
        }
        out.push_str("# HELP selvedge_combined_status What StatusCollectors combine, by group and field.\n# TYPE selvedge_combined_status gauge\n");
        let collectors = self.collectors.lock().unwrap_or_else(PoisonError::into_inner);
        for line in collectors.values().flatten().take(LINES) {
            out.push_str(line);
        }
    }
}

fn lines(id: &Id, summary: &Summary) -> Vec<String> {
    let (workspace, name) = (escape(&id.workspace), escape(&id.name));
    let mut lines = Vec::new();
    for (values, fields) in summary.groups().take(GROUPS) {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let group: Vec<String> = values.iter().map(|(name, value)| format!("{name}={}", text(value))).collect();
        let group = escape(&group.join(","));
        for (field, value) in fields.iter().filter_map(|(field, value)| Some((escape(field), value.as_f64()?))) {
            lines.push(format!(
                "selvedge_combined_status{{workspace=\"{workspace}\",collector=\"{name}\",group=\"{group}\",field=\"{field}\"}} {value}\n"
            ));
        }
    }
    lines
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
