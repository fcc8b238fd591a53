//! Small numbers for long names, as long as they are in use.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, LazyLock},
};

use crate::Id;

#[derive(Default)]
pub struct Names {
    /// Many names have the same workspace.
    workspaces: HashSet<Arc<str>>,
    numbers: HashMap<Id, u32>,
    names: Vec<Option<Id>>,
    free: Vec<u32>,
}

static NOBODY: LazyLock<Id> = LazyLock::new(|| Id::new("", ""));

impl Names {
    pub fn find(&self, id: &Id) -> Option<u32> {
        self.numbers.get(id).copied()
    }

    /// The number of a name, given to it now if it has none.
    pub fn of(&mut self, id: &Id) -> u32 {
        if let Some(number) = self.find(id) {
            return number;
        }
        let workspace = self.workspaces.get(&id.workspace).cloned().unwrap_or_else(|| id.workspace.clone());
        self.workspaces.insert(workspace.clone());
        let id = Id { workspace, name: id.name.clone() };
        let number = self.free.pop().unwrap_or(self.names.len() as u32);
        match self.names.get_mut(number as usize) {
            Some(place) => *place = Some(id.clone()),
            None => self.names.push(Some(id.clone())),
        }
        self.numbers.insert(id, number);
        number
    }

    pub fn get(&self, number: u32) -> &Id {
        self.names.get(number as usize).and_then(Option::as_ref).unwrap_or(&NOBODY)
    }

    /// Nobody may use the number any more.
    pub fn forget(&mut self, number: u32) {
        if let Some(id) = self.names.get_mut(number as usize).and_then(Option::take) {
            self.numbers.remove(&id);
            self.free.push(number);
        }
    }
}
