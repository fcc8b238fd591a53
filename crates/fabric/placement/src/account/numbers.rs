//! Names stand for small numbers where there are many pairs of them.

use std::{collections::HashMap, sync::Arc};

#[derive(Debug)]
pub struct Numbers<T> {
    named: HashMap<Arc<str>, u32>,
    all: Vec<Option<(Arc<str>, T)>>,
    free: Vec<u32>,
}

impl<T> Default for Numbers<T> {
    fn default() -> Self {
        Self { named: HashMap::new(), all: Vec::new(), free: Vec::new() }
    }
}

impl<T: Default> Numbers<T> {
    pub fn find(&self, name: &str) -> Option<u32> {
        self.named.get(name).copied()
    }

    /// The number of a name, given to it now if it has none.
    pub fn entry(&mut self, name: &Arc<str>) -> u32 {
        if let Some(number) = self.named.get(name) {
            return *number;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.all.push(None);
            // Four billion edges are not in sight.
            (self.all.len() - 1) as u32
        });
        self.all[number as usize] = Some((name.clone(), T::default()));
        self.named.insert(name.clone(), number);
        number
    }

    pub fn get(&self, number: u32) -> Option<&T> {
        self.all.get(number as usize)?.as_ref().map(|(_, one)| one)
    }

    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.all.get_mut(number as usize)?.as_mut().map(|(_, one)| one)
    }

    pub fn name(&self, number: u32) -> Option<&Arc<str>> {
        self.all.get(number as usize)?.as_ref().map(|(name, _)| name)
    }

    pub fn remove(&mut self, number: u32) {
        if let Some((name, _)) = self.all.get_mut(number as usize).and_then(Option::take) {
            self.named.remove(&name);
            self.free.push(number);
        }
    }

    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.all.iter().flatten().map(|(_, one)| one)
    }
}
