//! Whether a placed object shows the status that its edges report. Pure.

use placement::aggregate::{self, MOST_EDGES};
use serde_json::Value;

/// The account that writes the status reported by edges into the source object.
pub const SINGLETON: &str = "selvedge-singleton";

/// The statuses that a placement asks for at the source. A flag that is absent leaves the decision to the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// `spec.wantSingletonReportedState`: the status of the only edge, if there is one edge.
    pub one: Option<bool>,
    /// `spec.wantMultiWECReportedState`: the status of all edges together.
    pub several: Option<bool>,
}

/// A placement's answer for its objects. Of several placements that select an object, the greatest answer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Showing {
    /// Workloads show the status, unless somebody else writes it.
    Default,
    Never,
    /// All kinds show the status.
    Always,
}

impl Wants {
    pub fn read(spec: &Value) -> Self {
        let flag = |name: &str| spec.get(name).and_then(Value::as_bool);
        Self { one: flag("wantSingletonReportedState"), several: flag("wantMultiWECReportedState") }
    }

    pub fn showing(self, edges: usize) -> Showing {
        let flag = match edges {
            0 | 1 if self.several == Some(true) => self.several,
            0 | 1 => self.one,
            _ => self.several,
        };
        match flag {
            Some(true) => Showing::Always,
            Some(false) => Showing::Never,
            None => Showing::Default,
        }
    }

    /// The reason and the text of the condition StatusNotShown: a status was asked for with `true`, and not all objects
    /// show it. `other_kinds`: some of the objects report a status and are no workloads.
    pub fn unmet(self, edges: usize, other_kinds: bool) -> Option<(&'static str, String)> {
        let asks = self.one == Some(true) || self.several == Some(true);
        if !asks || edges <= 1 {
            return None;
        }
        if edges > MOST_EDGES && self.several != Some(false) {
            let text = format!(
                "{edges} edges are selected, and the status of an object is made of at most {MOST_EDGES}: ask with a \
                 StatusCollector"
            );
            return Some(("TooManyEdges", text));
        }
        let shown = match self.several {
            Some(true) => return None,
            Some(false) => "",
            None if other_kinds => " Without it, only workloads show one",
            None => return None,
        };
        let text = format!(
            "{edges} edges are selected, and wantSingletonReportedState shows the status of one: set \
             spec.wantMultiWECReportedState to true for one status of all of them.{shown}"
        );
        Some(("SeveralEdges", text))
    }
}

/// Whether an object on so many edges shows the status that they report. `showing` is the answer of its placements.
pub fn is_shown(showing: Option<Showing>, edges: usize, collection: &str, value: &Value) -> bool {
    let possible = (1..=MOST_EDGES).contains(&edges);
    possible
        && match showing {
            Some(Showing::Always) => true,
            Some(Showing::Default) => aggregate::is_workload(collection) && !is_others(value),
            Some(Showing::Never) | None => false,
        }
}

/// Whether the status was written by us.
pub fn is_ours(value: &Value) -> bool {
    writers(value).any(|manager| manager == SINGLETON)
}

/// Whether somebody else has written the status: a workspace may have controllers of its own.
pub fn is_others(value: &Value) -> bool {
    writers(value).any(|manager| manager != SINGLETON)
}

fn writers(value: &Value) -> impl Iterator<Item = &str> {
    let managers = value.pointer("/metadata/managedFields").and_then(Value::as_array).into_iter().flatten();
    managers.filter(|one| one["subresource"] == "status").map(|one| one["manager"].as_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn wants(one: Option<bool>, several: Option<bool>) -> Wants {
        Wants { one, several }
    }

    #[test]
    fn an_absent_flag_is_not_false() {
        let read = |spec: Value| Wants::read(&spec);
        assert_eq!(read(json!({})), wants(None, None));
        assert_eq!(read(json!({"wantSingletonReportedState": null})), wants(None, None));
        assert_eq!(read(json!({"wantSingletonReportedState": false})), wants(Some(false), None));
        assert_eq!(read(json!({"wantMultiWECReportedState": true})), wants(None, Some(true)));
    }

    #[test]
    fn the_flag_that_applies_decides() {
        use Showing::{Always, Default, Never};
        let (yes, no) = (Some(true), Some(false));
        for (one, several, with_one, with_two) in [
            (None, None, Default, Default),
            (yes, None, Always, Default),
            (no, None, Never, Default),
            (None, yes, Always, Always),
            (None, no, Default, Never),
            (yes, no, Always, Never),
            (no, yes, Always, Always),
            (no, no, Never, Never),
        ] {
            let wants = wants(one, several);
            assert_eq!((wants.showing(1), wants.showing(2)), (with_one, with_two), "{wants:?}");
        }
        assert_eq!([Default, Never].into_iter().max(), Some(Never), "an explicit no stands against a default");
        assert_eq!([Always, Never].into_iter().max(), Some(Always));
    }

    #[test]
    fn by_default_workloads_show_it_unless_somebody_else_writes_it() {
        let by = |manager: &str, subresource: &str| {
            let entry = json!({"manager": manager, "subresource": subresource});
            json!({"metadata": {"managedFields": [entry]}})
        };
        let (nobody, ours, theirs) = (json!({}), by(SINGLETON, "status"), by("controller", "status"));
        let default = Some(Showing::Default);
        for value in [&nobody, &ours, &by("kubectl", ""), &by("kubectl", "scale")] {
            assert!(is_shown(default, 1, "apps/deployments", value));
            assert!(is_shown(default, MOST_EDGES, "batch/cronjobs", value));
        }
        assert!(!is_shown(default, 1, "apps/deployments", &theirs));
        assert!(is_shown(Some(Showing::Always), 1, "apps/deployments", &theirs), "it was asked for");
        for collection in ["core/services", "core/persistentvolumeclaims", "example.com/ovens"] {
            assert!(!is_shown(default, 1, collection, &nobody));
            assert!(is_shown(Some(Showing::Always), 1, collection, &nobody));
        }
        for edges in [0, MOST_EDGES + 1] {
            assert!(!is_shown(Some(Showing::Always), edges, "apps/deployments", &nobody));
        }
        assert!(!is_shown(Some(Showing::Never), 1, "apps/deployments", &nobody));
        assert!(!is_shown(None, 1, "apps/deployments", &nobody), "no placement selects it");
    }

    #[test]
    fn only_a_status_that_was_asked_for_is_missed() {
        let (yes, no) = (Some(true), Some(false));
        let reason = |wants: Wants, edges, others| wants.unmet(edges, others).map(|(reason, _)| reason);
        for edges in [0, 1, 2, MOST_EDGES, MOST_EDGES + 1] {
            for wants in [wants(None, None), wants(no, None), wants(None, no), wants(no, no)] {
                assert_eq!(reason(wants, edges, true), None, "nobody asked");
            }
        }
        for others in [false, true] {
            assert_eq!(reason(wants(yes, None), 1, others), None);
            assert_eq!(reason(wants(None, yes), MOST_EDGES, others), None);
            assert_eq!(reason(wants(yes, no), 2, others), Some("SeveralEdges"));
            assert_eq!(reason(wants(yes, no), MOST_EDGES + 1, others), Some("SeveralEdges"));
            assert_eq!(reason(wants(None, yes), MOST_EDGES + 1, others), Some("TooManyEdges"));
            assert_eq!(reason(wants(yes, None), MOST_EDGES + 1, others), Some("TooManyEdges"));
        }
        assert_eq!(reason(wants(yes, None), 2, true), Some("SeveralEdges"));
        assert_eq!(reason(wants(yes, None), 2, false), None, "all of its objects show one by default");
    }
}
