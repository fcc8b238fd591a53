//! Who selects whom, by labels: many with selectors on one side, many with labels on the other. Nothing is remembered of pairs; each
//! side finds the other through an index, so an edit costs what it affects.

use std::{
    collections::{BTreeSet, HashMap},
    hash::Hash,
};

use schema::selector::{LabelSelector, Operator, Requirement};

use crate::facts::{Labels, Selectors, matches};

/// `A` has selectors, one of which has to match; `B` has labels.
#[derive(Debug)]
pub struct Join<A, B> {
    selectors: HashMap<A, Sought>,
    labels: HashMap<B, Labels>,
    /// Who has a label, with a value or with any.
    posted: HashMap<Anchor, BTreeSet<B>>,
    /// Who looks for it.
    anchored: HashMap<Anchor, BTreeSet<A>>,
    #[cfg(test)]
    pub looked: std::cell::Cell<usize>,
}

#[derive(Debug)]
struct Sought {
    selectors: Selectors,
    /// Which of its [`options`] each selector is found by.
    by: Box<[u8]>,
}

impl Sought {
    fn anchors(&self) -> impl Iterator<Item = Anchor> {
        let of = |(selector, by): (&LabelSelector, &u8)| options(selector).into_iter().nth(usize::from(*by));
        self.selectors.iter().zip(&self.by).filter_map(of).flatten()
    }
}

/// What one must have to be matched: the first part of a selector that says so.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Anchor {
    Anything,
    Key(Box<str>),
    Pair(Box<str>, Box<str>),
}

impl<A, B> Default for Join<A, B> {
    fn default() -> Self {
        Self {
            selectors: HashMap::new(),
            labels: HashMap::new(),
            posted: HashMap::new(),
            anchored: HashMap::new(),
            #[cfg(test)]
            looked: std::cell::Cell::default(),
        }
    }
}

impl<A: Clone + Ord + Hash, B: Clone + Ord + Hash> Join<A, B> {
    pub fn set_selectors(&mut self, a: &A, selectors: Option<&Selectors>) {
        if let Some(before) = self.selectors.remove(a) {
            for anchor in before.anchors() {
                take(&mut self.anchored, &anchor, a);
            }
        }
        if let Some(selectors) = selectors {
            let by = selectors.iter().map(|selector| self.best(selector)).collect();
            let sought = Sought { selectors: selectors.clone(), by };
            for anchor in sought.anchors() {
                self.anchored.entry(anchor).or_default().insert(a.clone());
            }
            self.selectors.insert(a.clone(), sought);
        }
    }

    pub fn set_labels(&mut self, b: &B, labels: Option<&Labels>) {
        if let Some(before) = self.labels.remove(b) {
            for anchor in posts(&before) {
                take(&mut self.posted, &anchor, b);
            }
        }
        if let Some(labels) = labels {
            for anchor in posts(labels) {
                self.posted.entry(anchor).or_default().insert(b.clone());
            }
            self.labels.insert(b.clone(), labels.clone());
        }
    }

    /// Those whom `a` selects.
    pub fn selected_by(&self, a: &A) -> BTreeSet<B> {
        let mut found = BTreeSet::new();
        for selector in self.selectors.get(a).into_iter().flat_map(|sought| sought.selectors.iter()) {
            // The requirement that the fewest can meet decides who is looked at.
            let lists = |anchors: Vec<Anchor>| -> Vec<&BTreeSet<B>> {
                anchors.iter().filter_map(|anchor| self.posted.get(anchor)).collect()
            };
            let fewest = options(selector).into_iter().map(lists);
            let fewest = fewest.min_by_key(|lists| lists.iter().map(|list| list.len()).sum::<usize>());
            let looked_at = fewest.into_iter().flatten().flatten();
            let is_selected = |b: &&B| {
                self.look();
                self.labels.get(b).is_some_and(|labels| matches(selector, labels))
            };
            found.extend(looked_at.filter(is_selected).cloned());
        }
        found
    }

    /// Those who select `b`.
    pub fn selecting(&self, b: &B) -> BTreeSet<A> {
        let Some(labels) = self.labels.get(b) else { return BTreeSet::new() };
        let looked_at = posts(labels).filter_map(|anchor| self.anchored.get(&anchor)).flatten();
        let selects = |a: &&A| {
            self.look();
            self.selectors.get(a).is_some_and(|all| all.selectors.iter().any(|one| matches(one, labels)))
        };
        looked_at.filter(selects).cloned().collect()
    }

    /// The requirement by which a selector is best found: that which the fewest have, and by which the fewest others are found.
    fn best(&self, selector: &LabelSelector) -> u8 {
        fn total<T>(index: &HashMap<Anchor, BTreeSet<T>>, anchors: &[Anchor]) -> usize {
            anchors.iter().filter_map(|anchor| index.get(anchor)).map(BTreeSet::len).sum()
        }
        let cost = |(_, anchors): &(u8, Vec<Anchor>)| (total(&self.posted, anchors), total(&self.anchored, anchors));
        (0..=u8::MAX).zip(options(selector)).min_by_key(cost).map_or(0, |(at, _)| at)
    }

    /// Somebody was held against a selector: the work that there is.
    fn look(&self) {
        #[cfg(test)]
        self.looked.set(self.looked.get() + 1);
    }

    pub fn is_empty(&self) -> bool {
        self.selectors.is_empty() && self.labels.is_empty()
    }
}

fn take<T: Ord>(index: &mut HashMap<Anchor, BTreeSet<T>>, anchor: &Anchor, what: &T) {
    if let Some(set) = index.get_mut(anchor) {
        set.remove(what);
        if set.is_empty() {
            index.remove(anchor);
        }
    }
}

/// Under which anchors labels are found.
fn posts(labels: &Labels) -> impl Iterator<Item = Anchor> {
    let both = |(key, value): (&str, &str)| [Anchor::Key(key.into()), Anchor::Pair(key.into(), value.into())];
    labels.iter().flat_map(both).chain([Anchor::Anything])
}

/// Whatever a selector matches is found under one of the anchors of each of these.
fn options(selector: &LabelSelector) -> Vec<Vec<Anchor>> {
    if selector.matches_nothing() {
        return Vec::new();
    }
    let of = |requirement: &Requirement| -> Option<Vec<Anchor>> {
        let key = || Box::<str>::from(requirement.key.as_str());
        match requirement.operator {
            Operator::Equals | Operator::DoubleEquals | Operator::In => {
                Some(requirement.values.iter().map(|value| Anchor::Pair(key(), value.as_str().into())).collect())
            }
            Operator::Exists | Operator::GreaterThan | Operator::LessThan => Some(vec![Anchor::Key(key())]),
            Operator::NotEquals | Operator::NotIn | Operator::DoesNotExist => None,
        }
    };
    let found: Vec<_> = selector.requirements().iter().filter_map(of).collect();
    if found.is_empty() { vec![vec![Anchor::Anything]] } else { found }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn selector() -> impl Strategy<Value = LabelSelector> {
        let requirement = (0u8..3, 0u8..4, proptest::collection::vec(0u8..3, 1..3));
        proptest::collection::vec(requirement, 0..3).prop_map(|all| {
            let text: Vec<String> = all
                .into_iter()
                .map(|(key, operator, values)| {
                    let values: Vec<String> = values.iter().map(|v| format!("v{v}")).collect();
                    match operator {
                        0 => format!("k{key} in ({})", values.join(",")),
                        1 => format!("k{key} notin ({})", values.join(",")),
                        2 => format!("k{key}"),
                        _ => format!("!k{key}"),
                    }
                })
                .collect();
            LabelSelector::parse(&text.join(",")).unwrap()
        })
    }

    fn labels() -> impl Strategy<Value = Labels> {
        proptest::collection::btree_map(0u8..3, 0u8..3, 0..3).prop_map(|all| {
            crate::facts::map(
                &all.into_iter()
                    .map(|(k, v)| (format!("k{k}"), format!("v{v}").into()))
                    .collect::<serde_json::Map<_, _>>()
                    .into(),
            )
        })
    }

    #[derive(Clone, Debug)]
    enum Edit {
        Selectors(u8, Option<Selectors>),
        Labels(u8, Option<Labels>),
    }

    fn edit() -> impl Strategy<Value = Edit> {
        let selectors =
            proptest::option::weighted(0.8, proptest::collection::vec(selector(), 0..3).prop_map(Selectors::from));
        prop_oneof![
            (0u8..5, selectors).prop_map(|(a, s)| Edit::Selectors(a, s)),
            (0u8..6, proptest::option::weighted(0.8, labels())).prop_map(|(b, l)| Edit::Labels(b, l)),
        ]
    }

    proptest! {
        #[test]
        fn the_index_finds_what_looking_at_all_would(edits in proptest::collection::vec(edit(), 0..40)) {
            let mut join = Join::<u8, u8>::default();
            let (mut left, mut right) = (BTreeMap::new(), BTreeMap::new());
            for edit in edits {
                match edit {
                    Edit::Selectors(a, selectors) => {
                        join.set_selectors(&a, selectors.as_ref());
                        match selectors {
                            Some(selectors) => drop(left.insert(a, selectors)),
                            None => drop(left.remove(&a)),
                        }
                    }
                    Edit::Labels(b, labels) => {
                        join.set_labels(&b, labels.as_ref());
                        match labels {
                            Some(labels) => drop(right.insert(b, labels)),
                            None => drop(right.remove(&b)),
                        }
                    }
                }
                let pair = |a: &u8, b: &u8| match (left.get(a), right.get(b)) {
                    (Some(selectors), Some(labels)) => selectors.iter().any(|s| matches(s, labels)),
                    _ => false,
                };
                for a in 0..5 {
                    let want: BTreeSet<u8> = (0..6).filter(|b| pair(&a, b)).collect();
                    prop_assert_eq!(join.selected_by(&a), want);
                }
                for b in 0..6 {
                    let want: BTreeSet<u8> = (0..5).filter(|a| pair(a, &b)).collect();
                    prop_assert_eq!(join.selecting(&b), want);
                }
            }
            for a in 0..5 { join.set_selectors(&a, None); }
            for b in 0..6 { join.set_labels(&b, None); }
            prop_assert!(join.is_empty() && join.posted.is_empty() && join.anchored.is_empty(), "nothing is left behind");
        }
    }
}
