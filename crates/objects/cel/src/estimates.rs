//! Estimates of costs against those that upstream computes for the same rules and schemas.

use schema::json_schema::Node;
use serde_json::{Value, json};

use super::{Expression, cost::Bound};

fn estimate(schema: &Value, rule: &str) -> u64 {
    let node = Node::compile(schema);
    let bound = Bound::of(&node, false).expect("a schema that rules can reach");
    Expression::parse(rule).expect("a rule").most(&bound)
}

fn of(ty: &str) -> Value {
    match ty {
        "int-or-string" => json!({"x-kubernetes-int-or-string": true}),
        "duration" | "date" | "date-time" | "byte" => json!({"type": "string", "format": ty}),
        "list" => json!({"type": "array", "items": {"type": "number"}}),
        "map" => json!({"type": "object", "additionalProperties": {"type": "number"}}),
        _ => json!({"type": ty}),
    }
}

fn list(ty: &str, most: Option<i64>) -> Value {
    let mut schema = json!({"type": "array", "items": of(ty)});
    if let Some(most) = most {
        schema["maxItems"] = most.into();
    }
    schema
}

fn map(ty: &str, most: Option<i64>) -> Value {
    let mut schema = json!({"type": "object", "additionalProperties": of(ty)});
    if let Some(most) = most {
        schema["maxProperties"] = most.into();
    }
    schema
}

fn text(most: Option<i64>) -> Value {
    let mut schema = of("string");
    if let Some(most) = most {
        schema["maxLength"] = most.into();
    }
    schema
}

#[test]
fn lists_and_maps() {
    type Make = fn(&str, Option<i64>) -> Value;
    let cases: [(Make, &str, &str, u64, i64, u64); 28] = [
        (list, "number", "self.all(x, true)", 4_718_591, 10, 32),
        (list, "string", "self.all(x, true)", 3_145_727, 20, 62),
        (list, "boolean", "self.all(x, true)", 1_887_437, 5, 17),
        (list, "list", "self.all(x, true)", 3_145_727, 100, 302),
        (list, "int-or-string", "self.all(x, true)", 4_718_591, 10, 32),
        (list, "duration", "self.all(x, true)", 2_359_295, 5, 17),
        (list, "date", "self.all(x, true)", 725_936, 15, 47),
        (list, "date-time", "self.all(x, true)", 428_963, 25, 77),
        (list, "number", "self[1] == 0.0", 2, 5000, 2),
        (list, "string", "self[1] == self[1]", 314_577, 8, 314_577),
        (list, "int-or-string", "self[0] == 5", 3, 10, 3),
        (list, "boolean", "self[0] == false", 2, 25, 2),
        (list, "list", "self[0][0] == -1.0", 3, 51, 3),
        (list, "map", "self.all(x, x.y == 25.2)", 6_291_452, 12, 74),
        (list, "map", "self[0].x > 2.0", 4, 3000, 4),
        (list, "duration", "self[0].getHours() == 2", 4, 525, 4),
        (list, "date-time", "self[2].getMinutes() == 45", 4, 99, 4),
        (map, "number", "self.all(x, true)", 1_348_169, 10, 32),
        (map, "number", "has(self.x)", 1, 100, 1),
        (map, "string", "self.all(x, true)", 1_179_647, 3, 11),
        (map, "boolean", "self.all(x, true)", 943_718, 100, 302),
        (map, "int-or-string", "self.all(x, true)", 1_348_169, 15, 47),
        (map, "list", "self.all(x, true)", 1_179_647, 25, 77),
        (map, "map", "self.all(x, true)", 1_179_647, 10, 32),
        (map, "duration", "self.all(x, true)", 1_048_577, 5, 17),
        (map, "date-time", "self[\"a\"] == self[\"b\"]", 8, 7, 8),
        (map, "duration", "self[\"c\"] == self[\"d\"]", 8, 42, 8),
        (map, "integer", "oldSelf.size() == self.size()", 5, 10, 5),
    ];
    for (make, ty, rule, unbounded, most, bounded) in cases {
        assert_eq!(estimate(&make(ty, None), rule), unbounded, "{ty}: {rule}");
        assert_eq!(estimate(&make(ty, Some(most)), rule), bounded, "{ty}, at most {most}: {rule}");
    }
    for (rule, bounded) in
        [("self.all(x, self.all(y, true))", 352), ("self.all(x, self.all(y, self.all(z, true)))", 3552)]
    {
        assert!(estimate(&list("number", None), rule) > 10_000_000, "{rule}");
        assert_eq!(estimate(&list("number", Some(10)), rule), bounded, "{rule}");
    }
}

#[test]
fn texts() {
    for (rule, unbounded, most, bounded) in [
        ("self.contains('test')", 314_574, 10, 5),
        ("self.startsWith('test')", 2, 15, 2),
        ("self.endsWith('test')", 2, 30, 2),
        ("size(self + \"hello\") > size(\"hello\")", 314_578, 4, 7),
        ("self.matches(\"x\")", 314_574, 50, 22),
        ("\"\".matches(\"(((((((((())))))))))[0-9]\")", 7, 10, 7),
        ("self.matches(\"\")", 1, 100, 1),
        ("self == \"x\"", 2, 0, 1),
        ("self.find('[0-9]+') == ''", 629_147, 10, 11),
        ("self.lowerAscii() == 'lower!'", 314_575, 10, 6),
    ] {
        assert_eq!(estimate(&text(None), rule), unbounded, "{rule}");
        assert_eq!(estimate(&text(Some(most)), rule), bounded, "at most {most}: {rule}");
    }
    let chosen = json!({"type": "string", "enum": ["A", "B", "C", "LongValue"]});
    assert_eq!(estimate(&chosen, "self.contains('A')"), 2);
    let mut bounded = chosen.clone();
    bounded["maxLength"] = 1000.into();
    assert_eq!(estimate(&bounded, "self.contains('A')"), 401);
    let mut either = of("int-or-string");
    assert_eq!(estimate(&either, "isQuantity(self)"), 314_574);
    either["maxLength"] = 20.into();
    assert_eq!(estimate(&either, "isQuantity(self)"), 9);
}

#[test]
fn addresses_quantities_and_formats() {
    for (rule, bounded) in [
        ("isIP(self)", 5),
        ("ip(self) == ip(self)", 11),
        ("ip.isCanonical(self)", 9),
        ("quantity(self) == quantity('1')", 7),
        ("cidr('10.0.0.0/8').containsIP(self)", 1 + 1 + 4 + 4),
        ("cidr('10.0.0.0/8').containsIP(ip(self))", 1 + 5 + 4),
        ("cidr('10.0.0.0/8').containsCIDR(self)", 1 + 1 + 4 + 7),
        ("semver(self).major() == 1", 7),
    ] {
        assert_eq!(estimate(&text(Some(10)), rule), bounded, "{rule}");
    }
    // Four bytes for each of ten characters, at a tenth, by the 32 of a format's expression.
    assert_eq!(estimate(&text(Some(10)), "!format.dns1123Label().validate(self).hasValue()"), 1 + 1 + 128 + 1 + 1);
    assert!(estimate(&text(None), "!format.dns1123Label().validate(self).hasValue()") > 10_000_000);
}

#[test]
fn lists_of_texts() {
    let texts = |most: Option<i64>| {
        let mut schema = list("string", most);
        schema["items"] = text(most);
        schema
    };
    for (rule, unbounded, bounded) in
        [("self.join(' ') == 'aa bb'", 329_853_068_905, 43), ("self.isSorted() == true", 329_854_432_052, 52)]
    {
        assert_eq!(estimate(&texts(None), rule), unbounded, "{rule}");
        assert_eq!(estimate(&texts(Some(10)), rule), bounded, "at most 10: {rule}");
    }
}
