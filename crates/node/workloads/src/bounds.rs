//! Numbers that are given as a count or as a percentage of something.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Nothing if it is neither a number nor a percentage.
pub fn of(value: &IntOrString, total: i32, round_up: bool) -> Option<i32> {
    match value {
        IntOrString::Int(count) => Some(*count),
        IntOrString::String(text) => {
            let percent: i64 = text.trim().strip_suffix('%')?.parse().ok()?;
            let product = percent.checked_mul(i64::from(total))?;
            let (whole, rest) = (product.div_euclid(100), product.rem_euclid(100));
            i32::try_from(whole + i64::from(round_up && rest > 0)).ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_round_as_asked() {
        for (text, total, up, down) in
            [("25%", 10, 3, 2), ("50%", 4, 2, 2), ("0%", 9, 0, 0), ("100%", 7, 7, 7), ("1%", 1, 1, 0)]
        {
            let value = IntOrString::String(text.into());
            assert_eq!(
                (of(&value, total, true), of(&value, total, false)),
                (Some(up), Some(down)),
                "{text} of {total}"
            );
        }
        assert_eq!(of(&IntOrString::Int(3), 100, true), Some(3));
        for text in ["", "25", "x%", "99999999999999999999%", "%"] {
            assert_eq!(of(&IntOrString::String(text.into()), 100, true), None, "{text}");
        }
    }
}
