//! Keeps accounts: how placements fare, what summaries say, how many edges run an object. What edges report and what changes at the
//! center goes into pure machines of the `placement` crate; what they say is written to objects, at a pace.
//!
//! One task does all of it. Whatever happens is put into its [`Inbox`], where the same twice is once; it never scans what was not
//! touched, and what edges reported is read from the store only for the rows that some collector asks for.

mod backlog;
mod board;
mod inbox;
mod keeper;
mod pace;
mod rows;
mod said;
mod source;
mod standing;
mod wants;
mod write;

use std::sync::Arc;

use cache::Change;
use kinds::EdgeId;
use server::Server;

use crate::{Fleet, news::News};
use board::Board;
use inbox::Inbox;
pub use said::{lost, settle, shown};
pub use standing::of as standing;

pub const COLLECTORS: &str = "edge.selvedge.dev/statuscollectors";
pub const COMBINED: &str = "edge.selvedge.dev/combinedstatuses";

/// What others see of it.
#[derive(Default)]
pub struct Accounts {
    inbox: Inbox,
    board: Board,
}

impl Accounts {
    /// Whether anybody wants to know.
    pub fn listens(&self) -> bool {
        self.inbox.is_open()
    }

    /// Edges are heard of.
    pub fn news(&self, news: &News) {
        self.inbox.news(news);
    }

    /// What is known of an edge is to be looked at again, its reports as well.
    pub fn again(&self, edge: &EdgeId) {
        self.inbox.again(edge);
    }

    /// What an edge reported in a former life does not count any more.
    pub fn void(&self, edge: &EdgeId) {
        self.inbox.void(edge);
    }

    /// Sees every change at the center. Quick.
    pub fn observe(&self, collection: &str, change: &Change) {
        self.inbox.observe(collection, change);
    }

    pub fn metrics(&self, out: &mut String) {
        self.board.text(out);
    }

    /// Keeps accounts until the server stops.
    pub async fn run(fleet: Arc<Fleet>, server: Arc<Server>) {
        keeper::run(fleet, server).await;
    }
}
