//! Old owners meet a changed schema: what has become atomic is owned as a whole.

use schema::Shape;

use super::{Atom, Ty};
use crate::apply::element::PathElement;
use crate::apply::fieldset::FieldSet;

impl Ty<'_> {
    /// The set as it must be today, if it was written when something was not atomic yet.
    pub(crate) fn reconcile<'a>(self, set: &FieldSet<'a>) -> Option<FieldSet<'a>> {
        let mut atomic = FieldSet::new();
        self.find_atomic(set, &mut Vec::new(), &mut atomic);
        if atomic.is_empty() {
            return None;
        }
        let mut out = set.clone();
        out.subtract_deep(&atomic);
        Some(out.union(atomic))
    }

    fn find_atomic<'a>(self, set: &FieldSet<'a>, path: &mut Vec<PathElement<'a>>, atomic: &mut FieldSet<'a>) {
        if matches!(self.shape(), Shape::Any | Shape::FieldsV1) {
            return;
        }
        match self.atom(None) {
            Atom::AtomicList(_) => {
                if !set.is_empty() {
                    atomic.insert(path);
                }
            }
            Atom::Map(fields) if fields.atomic => {
                if !set.is_empty() {
                    atomic.insert(path);
                }
            }
            Atom::Map(_) | Atom::List(..) => {
                for (element, _, below) in set.nodes() {
                    let ty = match (self.atom(None), element) {
                        (Atom::Map(fields), PathElement::Field(name)) => fields.ty(name),
                        (Atom::List(items, _), _) => Some(items),
                        _ => None,
                    };
                    if let (Some(ty), false) = (ty, below.is_empty()) {
                        path.push(element.clone());
                        ty.find_atomic(below, path, atomic);
                        path.pop();
                    }
                }
            }
            Atom::Scalar(_) => {}
        }
    }
}
