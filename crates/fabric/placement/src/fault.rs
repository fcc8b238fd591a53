//! What is wrong with an object on its way to an edge, for the people who placed it.

use crate::Id;

/// The object is held back, on these Locations only; everything else goes on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// As the link names it: `apps/deployments/commonstuff/commond`.
    pub object: String,
    /// Where it shows. `None`: everywhere.
    pub location: Option<Id>,
    /// The JSONPath that it is about, if any.
    pub path: String,
    pub reason: String,
}

impl Fault {
    /// Not yet said of which object.
    pub fn new(path: &str, reason: impl Into<String>) -> Self {
        Self { object: String::new(), location: None, path: path.to_owned(), reason: reason.into() }
    }

    /// Says of which object, and where.
    pub fn of(self, object: &str, location: Option<&Id>) -> Self {
        Self { object: object.to_owned(), location: location.cloned(), ..self }
    }
}
