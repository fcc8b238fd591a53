//! Makes new input out of old: flips, cuts, copies, splices, numbers at their limits, words that mean something.

use rand::{Rng, rngs::StdRng};
use serde_json::{Value, json};

/// Words that decoders look for.
const WORDS: &[&[u8]] = &[
    b"null",
    b"true",
    b"-0",
    b"1e400",
    b"-9223372036854775808",
    b"18446744073709551616",
    b"0.1",
    b"\"\"",
    b"{}",
    b"[]",
    b"{\"",
    b"\":",
    b"\\u0000",
    b"\\ud800",
    b"$patch",
    b"$retainKeys",
    b"$setElementOrder/containers",
    b"$deleteFromPrimitiveList/finalizers",
    b"delete",
    b"replace",
    b"merge",
    b"metadata",
    b"name",
    b"~1",
    b"~0",
    b"/-",
    b"&a",
    b"*a",
    b"<<: ",
    b"- ",
    b"\n",
    b"\n  ",
    b": ",
    b"|-\n",
    b"!!binary ",
    b"? ",
    b"---\n",
    b"in (",
    b"notin",
    b",",
    b"!",
    b"==",
    b"!=",
    b"self.",
    b"oldSelf",
    b".all(x, ",
    b"..",
    b"%2f",
    b"Ki",
    b"m",
    b"e3",
    b"\xff",
    b"\xf0\x9f\x92\xa9",
    b"\xe2\x80\xa8",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
    b"k8s\0",
];
const MAX: usize = 16 << 10;

pub(crate) struct Mutator {
    random: StdRng,
    corpus: Vec<Vec<u8>>,
}

impl Mutator {
    pub(crate) fn new(random: StdRng, corpus: Vec<Vec<u8>>) -> Self {
        Self { random, corpus }
    }

    pub(crate) fn corpus(&self) -> &[Vec<u8>] {
        &self.corpus
    }

    pub(crate) fn next_input(&mut self) -> Vec<u8> {
        let mut input = self.pick();
        // Bytes alone seldom get past the parser: half of the time the tree is changed instead, and stays JSON.
        if self.random.random()
            && let Ok(mut value) = serde_json::from_slice::<Value>(&input)
        {
            for _ in 0..self.random.random_range(1..5) {
                self.mutate_tree(&mut value, 0);
            }
            return value.to_string().into_bytes();
        }
        for _ in 0..self.random.random_range(1..8) {
            self.mutate(&mut input);
        }
        input.truncate(MAX);
        input
    }

    /// Walks down at random and changes what it finds there.
    fn mutate_tree(&mut self, value: &mut Value, depth: usize) {
        let deeper = depth < 12 && self.random.random_range(0..8) != 0;
        match value {
            Value::Object(map) if deeper && !map.is_empty() => {
                let at = self.random.random_range(0..map.len());
                let key = map.keys().nth(at).cloned().unwrap_or_default();
                match self.random.random_range(0..20) {
                    0 => drop(map.remove(&key)),
                    1 => {
                        let moved = map.remove(&key).unwrap_or_default();
                        let other = self.odd();
                        map.insert(other.as_str().unwrap_or("x").to_owned(), moved);
                    }
                    _ => map.values_mut().nth(at).into_iter().for_each(|v| self.mutate_tree(v, depth + 1)),
                }
            }
            Value::Array(list) if deeper && !list.is_empty() => {
                let at = self.random.random_range(0..list.len());
                match self.random.random_range(0..8) {
                    0 => drop(list.remove(at)),
                    1 => list.push(list[at].clone()),
                    _ => self.mutate_tree(&mut list[at], depth + 1),
                }
            }
            _ => *value = self.odd(),
        }
    }

    fn odd(&mut self) -> Value {
        match self.random.random_range(0..12) {
            0 => Value::Null,
            1 => Value::Bool(self.random.random()),
            2 => json!([]),
            3 => json!({}),
            4 => json!([null, {}, [], "x", 1]),
            5 => json!({"name": null, "key": 1, "": {}}),
            6 => Value::from(self.random.random::<i64>()),
            7 => Value::from(self.random.random_range(-3..100_000)),
            8 => Value::from(self.random.random::<f64>() * 1e300),
            9 => Value::from("x".repeat(self.random.random_range(0..300))),
            _ => {
                let word = WORDS[self.random.random_range(0..WORDS.len())];
                Value::from(String::from_utf8_lossy(word))
            }
        }
    }

    fn pick(&mut self) -> Vec<u8> {
        let at = self.random.random_range(0..self.corpus.len());
        self.corpus[at].clone()
    }

    /// A place in the input, its end included.
    fn place(&mut self, input: &[u8]) -> usize {
        self.random.random_range(0..=input.len())
    }

    fn stretch(&mut self, input: &[u8]) -> std::ops::Range<usize> {
        let (a, b) = (self.place(input), self.place(input));
        // Mostly short ones, so that the rest keeps its sense.
        let end = a.max(b).min(a.min(b) + self.random.random_range(1..40));
        a.min(b)..end
    }

    fn mutate(&mut self, input: &mut Vec<u8>) {
        match self.random.random_range(0..9) {
            0 if !input.is_empty() => {
                let at = self.random.random_range(0..input.len());
                input[at] ^= 1 << self.random.random_range(0..8);
            }
            1 if !input.is_empty() => {
                let at = self.random.random_range(0..input.len());
                input[at] = self.random.random();
            }
            2 => {
                let cut = self.stretch(input);
                input.drain(cut);
            }
            3 => {
                let (from, to) = (self.stretch(input), self.place(input));
                let copy = input[from].to_vec();
                input.splice(to..to, copy);
            }
            4 | 5 => {
                let word = WORDS[self.random.random_range(0..WORDS.len())];
                let at = self.place(input);
                input.splice(at..at, word.iter().copied());
            }
            6 => {
                let other = self.pick();
                let (from, to) = (self.stretch(&other), self.stretch(input));
                input.splice(to, other[from].iter().copied());
            }
            7 => {
                // The same few bytes again and again: depth, and long runs.
                let from = self.stretch(input);
                let copy = input[from.start..from.end.min(from.start + 6)].to_vec();
                let times = self.random.random_range(2..600);
                let at = self.place(input);
                input.splice(at..at, copy.repeat(times));
            }
            _ => {
                let at = self.place(input);
                input.truncate(at);
            }
        }
    }
}
