//! PersistentVolumes and their claims: which belong together, who holds whom, and directories of this machine for who has none.

mod bind;
mod claim;
mod directories;
mod ephemeral;
mod held;
mod local;
mod matching;
#[cfg(test)]
mod model;
mod protect;
#[cfg(test)]
mod tests;
mod volume;

pub use bind::controller as binder;
pub use directories::{controller as directories, make_default_class};
pub use ephemeral::controller as ephemeral;
pub use held::{of_claims, of_volumes};
#[cfg(test)]
pub use tests::CASES;
