//! What a client is warned of, in `Warning` headers. Their number and size are bounded, as clients refuse answers with
//! too many headers.

/// All warnings together are no longer than this, as upstream has it.
const MOST_BYTES: usize = 4 << 10;
/// Once that is exceeded, each is cut to this length.
const CUT: usize = 256;
/// Some clients take no more than 100 headers.
const MOST: usize = 50;

/// Warnings in the order in which they came, each once.
#[derive(Debug, Default)]
pub struct Warnings {
    texts: Vec<String>,
    bytes: usize,
    cut: bool,
}

impl Warnings {
    pub fn add(&mut self, text: String) {
        if self.texts.len() >= MOST || (self.cut && self.bytes >= MOST_BYTES) {
            return;
        }
        let text = if self.cut { shortened(text) } else { text };
        if text.is_empty() || self.texts.contains(&text) {
            return;
        }
        self.bytes += text.len();
        self.texts.push(text);
        if self.bytes > MOST_BYTES && !self.cut {
            self.cut = true;
            self.texts = std::mem::take(&mut self.texts).into_iter().map(shortened).collect();
            self.bytes = self.texts.iter().map(String::len).sum();
        }
        if self.bytes > MOST_BYTES {
            // The last one did not fit.
            self.bytes -= self.texts.pop().map_or(0, |text| text.len());
            self.bytes = self.bytes.max(MOST_BYTES);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(String::as_str)
    }
}

fn shortened(mut text: String) -> String {
    let end = (0..=CUT.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.truncate(end);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_told_whole() {
        let mut warnings = Warnings::default();
        for text in ["one", "two", "one", &"x".repeat(3000)] {
            warnings.add(text.to_owned());
        }
        assert_eq!(warnings.iter().map(str::len).collect::<Vec<_>>(), [3, 3, 3000]);
    }

    #[test]
    fn many_are_bounded_in_number_and_size() {
        let mut warnings = Warnings::default();
        for i in 0..10_000 {
            warnings.add(format!("{i} {}", "\u{e9}".repeat(200)));
        }
        assert!(warnings.iter().map(str::len).sum::<usize>() <= MOST_BYTES);
        assert!(warnings.iter().count() >= MOST_BYTES / CUT - 1 && warnings.iter().all(|text| text.len() <= CUT));
        let mut short = Warnings::default();
        (0..10_000).for_each(|i| short.add(i.to_string()));
        assert_eq!(short.iter().count(), MOST);
        let mut one = Warnings::default();
        one.add("y".repeat(100_000));
        assert_eq!(one.iter().map(str::len).collect::<Vec<_>>(), [CUT]);
    }
}
