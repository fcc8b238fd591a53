//! `resource.Quantity`: parsing, comparing and the canonical form.
