//! A unified diff of two texts, in the form the usual libraries give it.

const CONTEXT: usize = 3;
/// Beyond this many changed lines a diff tells nobody anything, and comparing costs their square.
const MAX_CHANGED: usize = 4000;

#[derive(Clone, Copy)]
struct Block {
    old: usize,
    new: usize,
    length: usize,
}

pub(crate) fn unified(old: &str, new: &str) -> String {
    let (a, b): (Vec<&str>, Vec<&str>) = (old.split('\n').collect(), new.split('\n').collect());
    let mut blocks = Vec::new();
    let prefix = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
    let rest = a.len().min(b.len()) - prefix;
    let suffix = a.iter().rev().zip(b.iter().rev()).take(rest).take_while(|(x, y)| x == y).count();
    blocks.push(Block { old: 0, new: 0, length: prefix });
    let (a_end, b_end) = (a.len() - suffix, b.len() - suffix);
    if a_end - prefix + b_end - prefix <= MAX_CHANGED {
        matching(&a, &b, (prefix, a_end), (prefix, b_end), &mut blocks);
    }
    blocks.push(Block { old: a_end, new: b_end, length: suffix });
    blocks.push(Block { old: a.len(), new: b.len(), length: 0 });
    write(&a, &b, &blocks)
}

/// The longest run of equal lines, then what is before and after it.
fn matching(a: &[&str], b: &[&str], (a0, a1): (usize, usize), (b0, b1): (usize, usize), blocks: &mut Vec<Block>) {
    let mut best = Block { old: a0, new: b0, length: 0 };
    let mut runs = vec![0usize; b1 - b0 + 1];
    for (i, old) in a.iter().enumerate().take(a1).skip(a0) {
        let mut diagonal = 0;
        for (j, new) in b.iter().enumerate().take(b1).skip(b0) {
            let above = runs[j - b0 + 1];
            let length = if old == new { diagonal + 1 } else { 0 };
            runs[j - b0 + 1] = length;
            if length > best.length {
                best = Block { old: i + 1 - length, new: j + 1 - length, length };
            }
            diagonal = above;
        }
    }
    if best.length > 0 {
        matching(a, b, (a0, best.old), (b0, best.new), blocks);
        blocks.push(best);
        matching(a, b, (best.old + best.length, a1), (best.new + best.length, b1), blocks);
    }
}

fn write(a: &[&str], b: &[&str], blocks: &[Block]) -> String {
    let mut text = String::new();
    let mut hunk: Vec<String> = Vec::new();
    let (mut a_start, mut b_start, mut a_len, mut b_len) = (0, 0, 0, 0);
    let (mut at_a, mut at_b) = (0, 0);
    let flush = |hunk: &mut Vec<String>, text: &mut String, ranges: (usize, usize, usize, usize)| {
        if hunk.iter().any(|line| !line.starts_with(' ')) {
            text.push_str(&format!("@@ -{} +{} @@\n", range(ranges.0, ranges.1), range(ranges.2, ranges.3)));
            for line in hunk.iter() {
                text.push_str(line);
                text.push('\n');
            }
        }
        hunk.clear();
    };
    for (n, block) in blocks.iter().enumerate() {
        for line in &a[at_a..block.old] {
            hunk.push(format!("-{line}"));
            a_len += 1;
        }
        for line in &b[at_b..block.new] {
            hunk.push(format!("+{line}"));
            b_len += 1;
        }
        let last =
            n + 2 >= blocks.len() || blocks[n + 1..].iter().all(|later| later.length == 0 && later.old == a.len());
        let first = hunk.is_empty() && text.is_empty() && n == 0;
        let lines = &a[block.old..block.old + block.length];
        if first || block.length > 2 * CONTEXT || last {
            let tail = if first { 0 } else { block.length.min(CONTEXT) };
            for line in &lines[..tail] {
                hunk.push(format!(" {line}"));
            }
            flush(&mut hunk, &mut text, (a_start, a_len + tail, b_start, b_len + tail));
            let lead = if last { 0 } else { block.length.min(CONTEXT) };
            a_start = block.old + block.length - lead;
            b_start = block.new + block.length - lead;
            (a_len, b_len) = (lead, lead);
            for line in &lines[block.length - lead..] {
                hunk.push(format!(" {line}"));
            }
        } else {
            for line in lines {
                hunk.push(format!(" {line}"));
            }
            a_len += block.length;
            b_len += block.length;
        }
        at_a = block.old + block.length;
        at_b = block.new + block.length;
    }
    text
}

fn range(start: usize, length: usize) -> String {
    match length {
        1 => (start + 1).to_string(),
        0 => format!("{start},0"),
        _ => format!("{},{length}", start + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diffs() {
        let numbered = |from: usize, to: usize| (from..=to).map(|n| n.to_string()).collect::<Vec<_>>().join("\n");
        let a = numbered(1, 20);
        assert_eq!(unified(&a, &a), "");
        assert_eq!(
            unified(&a, &a.replace("\n10\n", "\nten\n")),
            "@@ -7,7 +7,7 @@\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13\n"
        );
        assert_eq!(unified("1\n2\n3\n4\n5", "2\n3\n4\n5"), "@@ -1,4 +1,3 @@\n-1\n 2\n 3\n 4\n");
        let two = a.replace("\n3\n", "\nthree\n").replace("\n18\n", "\n");
        assert_eq!(
            unified(&a, &two),
            "@@ -1,6 +1,6 @@\n 1\n 2\n-3\n+three\n 4\n 5\n 6\n@@ -15,6 +15,5 @@\n 15\n 16\n 17\n-18\n 19\n 20\n"
        );
    }
}
