//! A change of a Deployment's size in the middle of a rollout is shared out among its sets, each by its size: should the new one not work,
//! what was added is not all broken. Pure.

#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub replicas: i32,
    /// How large the Deployment could be when this set got its size.
    pub max: Option<i32>,
}

/// The new sizes. `parts` have the largest first; `change` is how many there are to add, or to take away, and `allowed` what there
/// may be afterwards. `known` stands for a `max` that nobody wrote.
pub fn out(parts: &[Part], change: i32, wanted: i32, allowed: i32, known: i32) -> Vec<i32> {
    let mut left = change;
    let mut sizes: Vec<i32> = Vec::with_capacity(parts.len());
    for part in parts {
        let fraction = if wanted == 0 { -part.replicas } else { fraction(part, allowed, known) };
        let share = if change > 0 { fraction.min(left) } else { fraction.max(left) };
        let share = if left == 0 { 0 } else { share };
        left -= share;
        sizes.push(part.replicas + share);
    }
    if let Some(first) = sizes.first_mut() {
        *first += left;
    }
    sizes.into_iter().map(|size| size.max(0)).collect()
}

fn fraction(part: &Part, allowed: i32, known: i32) -> i32 {
    let before = part.max.filter(|max| *max > 0).unwrap_or(known);
    if before <= 0 {
        return 0;
    }
    let exact = f64::from(part.replicas) * f64::from(allowed) / f64::from(before);
    // Within i32 unless somebody wrote nonsense into an annotation; the cast saturates then.
    #[allow(clippy::cast_possible_truncation, reason = "it saturates, and sizes are bounded by what is left")]
    let size = exact.round() as i32;
    size.saturating_sub(part.replicas)
}
