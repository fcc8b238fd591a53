use std::sync::Arc;

use serde_json::json;

use super::*;

fn eval(source: &str) -> Result<Value, Failure> {
    let expression = Expression::parse(source).unwrap_or_else(|why| panic!("{source}: {why}"));
    let object = json::untyped(&json!({ "a": 1, "s": "text", "l": [1, 2, 3], "m": { "k": "v" }, "n": null }));
    expression.evaluate(&[("self", object)], &mut COST_OF_ALL.clone())
}

#[test]
fn messages_are_maps() {
    let made = eval(
        "Object{spec: Object.spec{replicas: self.a, ?gone: self.?nope, a__dash__b: [1]}, metadata: Object.metadata{__namespace__: 'x'}}",
    );
    let want = json!({"spec": {"replicas": 1, "a-b": [1]}, "metadata": {"namespace": "x"}});
    assert_eq!(to_json(&made.unwrap()), Some(want));
    let patch = eval("[JSONPatch{op: 'add', path: '/a/' + jsonpatch.escapeKey('x/y~'), value: self.m}]").unwrap();
    assert_eq!(to_json(&patch), Some(json!([{"op": "add", "path": "/a/x~1y~0", "value": {"k": "v"}}])));
    assert!(Expression::parse("Other{a: 1}").is_err());
}

#[test]
fn expressions_that_hold() {
    for source in [
        "1 + 2 * 3 == 7 && (1 + 2) * 3 == 9 && -3 + 5 == 2 && 7 / 2 == 3 && 7 % 4 == 3",
        "1.5 + 2.0 == 3.5 && 1 < 1.5 && 2u > 1u && 1 == 1.0 && -9223372036854775808 < 0",
        "'a' + \"b\" == 'ab' && r'\\d' == '\\\\d' && '\\x41\\u00e9' == 'Aé' && '''x''' == 'x' && b'a' == bytes('a')",
        "self.a == 1 && has(self.a) && !has(self.b) && self['s'] == 'text' && 'a' in self && !('b' in self)",
        "self.l.all(x, x > 0) && self.l.exists(x, x == 2) && self.l.exists_one(x, x > 2) && 2 in self.l",
        "self.l.map(x, x * 2) == [2, 4, 6] && self.l.map(x, x > 1, x) == [2, 3] && self.l.filter(x, x < 3) == [1, 2]",
        "self.l.all(i, v, v == i + 1) && self.m.all(k, v, k == 'k' && v == 'v') && self.m.exists(k, k == 'k')",
        "self.l.transformList(i, v, v + i) == [1, 3, 5] && self.m.transformMap(k, v, v + k) == {'k': 'vk'}",
        "self.l.sortBy(x, -x) == [3, 2, 1] && cel.bind(x, 3, x * x) == 9",
        "true || self.nope && false || self.l[9] == 1 || true",
        "self.?a.orValue(2) == 1 && self.?b.orValue(2) == 2 && !self.?b.hasValue() && self[?'a'].value() == 1",
        "optional.of(1).optMap(x, x + 1).value() == 2 && optional.none().or(optional.of(3)).value() == 3",
        "size(self.l) == 3 && self.s.size() == 4 && size('é') == 1 && self.m.size() == 1",
        "'abc'.startsWith('a') && 'abc'.endsWith('c') && 'abc'.contains('b') && 'abc'.matches('^a.c$')",
        "string(1) == '1' && int('7') == 7 && double('1.5') == 1.5 && string(1.0) == '1' && uint(3) == 3u && bool('true')",
        "duration('1h') > duration('59m') && timestamp('2020-01-01T00:00:00Z') + duration('24h') == timestamp('2020-01-02T00:00:00Z')",
        "timestamp('2020-01-02T00:00:00Z').getFullYear() == 2020",
        "quantity('1Gi').isGreaterThan(quantity('500Mi')) && isQuantity('1') && !isQuantity('x')",
        "ip('10.0.0.1').family() == 4 && cidr('10.0.0.0/8').containsIP('10.1.2.3') && isURL('http://a/b')",
        "['b', 'a'].sort() == ['a', 'b'] && [1, 2].sum() == 3 && 'A-B'.lowerAscii() == 'a-b' && 'a,b'.split(',') == ['a', 'b']",
        "math.greatest(1, 2) == 2 && sets.contains([1, 2], [1]) && base64.encode(b'hi') == 'aGk='",
        "semver('1.2.3').isLessThan(semver('2.0.0')) && '%s-%d'.format(['a', 1]) == 'a-1'",
        "type(1) == int && self.n == null && {'a': [1]} == {'a': [1]} && [1, 2] != [2, 1]",
        "!format.dns1123Label().validate('ok-name').hasValue() && format.dns1123Label().validate('No').hasValue()",
        "true ? true : false // a comment",
    ] {
        assert_eq!(eval(source), Ok(Value::Bool(true)), "{source}");
    }
}

#[test]
fn errors_are_told_as_upstream_tells_them() {
    for (source, text) in [
        ("self.b", "no such key: b"),
        ("self.l[3]", "index out of bounds: 3"),
        ("1 / 0", "division by zero"),
        ("1 % 0", "modulus by zero"),
        ("9223372036854775807 + 1", "integer overflow"),
        ("self.s + 1", "no such overload"),
        ("optional.none().value()", "optional.none() dereference"),
        ("nobody", "no such attribute(s): nobody"),
        ("int('x')", "type conversion error from 'string' to 'int'"),
        (
            "quantity('zzz').isInteger()",
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
    ] {
        assert_eq!(eval(source), Err(Failure::Error(text.to_owned())), "{source}");
    }
}

#[test]
fn hostile_expressions_end() {
    let nested = |depth: usize| format!("{}1{}", "(".repeat(depth), ")".repeat(depth));
    for source in
        [nested(100_000), "[".repeat(5000), "!".repeat(5000), "a.".repeat(5000), "-".repeat(9999), "1+".repeat(30_000)]
    {
        assert!(Expression::parse(&source).is_err());
    }
    // Chains within chains nest deeper than either.
    let mut chains = "1".to_owned();
    for _ in 0..40 {
        chains = format!("({chains}{})", "+1".repeat(100));
    }
    assert!(Expression::parse(&chains).is_err());
    let long = |sign: &str| vec!["true"; 5000].join(sign);
    assert_eq!(eval(&long(" && ")), Ok(Value::Bool(true)));
    let range = "lists.range(1000)";
    for source in [
        format!("{range}.all(a, {range}.all(b, {range}.all(c, true)))"),
        "lists.range(1000000000000).size() > 0".to_owned(),
        format!("['x']{} == []", ".map(a, a + a)".repeat(60)),
        format!(
            "{range}.map(x, 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa').join(',').matches('(a*)*b')"
        ),
        "'%.999999999f'.format([1.0]) == ''".to_owned(),
    ] {
        let result = eval(&source);
        assert!(matches!(result, Err(Failure::Cost) | Ok(_)), "{source}: {result:?}");
    }
}

fn checked(source: &str) -> Result<Type, String> {
    let fields = [
        ("a", Type::Text),
        ("n", Type::Int),
        ("d", Type::Dyn),
        ("l", Type::List(Box::new(Type::Int))),
        ("m", Type::Map(Box::new(Type::Text), Box::new(Type::Text))),
    ];
    let fields = fields.into_iter().map(|(name, ty)| (name.to_owned(), ty)).collect();
    let object = Type::Object(Arc::new(Object { name: "Self".to_owned(), fields }));
    let environment = Environment::new([("self".to_owned(), object)]);
    Expression::compile(source, &environment).map(|(_, ty)| ty)
}

#[test]
fn types_are_checked() {
    for (source, ty) in [
        ("self.a == 'x'", Type::Bool),
        ("self.d == 1 || self.d == 'x'", Type::Bool),
        ("self.l.all(x, x > 1)", Type::Bool),
        ("self.l.map(x, string(x))", Type::List(Box::new(Type::Text))),
        ("self.m['k'] + self.m.k", Type::Text),
        ("self.n > 5 ? 'a' : self.a", Type::Text),
        ("has(self.a) && size(self.l) < 3 && self.n in self.l", Type::Bool),
        ("quantity(self.a).isGreaterThan(quantity('1'))", Type::Bool),
        ("self.n + 1", Type::Int),
        ("self.?a.orValue('x')", Type::Text),
        ("self.m.all(k, v, k != v)", Type::Bool),
    ] {
        assert_eq!(checked(source), Ok(ty), "{source}");
    }
    for (source, problem) in [
        (
            "self.a > 5",
            "ERROR: <input>:1:8: found no matching overload for '_>_' applied to '(string, int)'\n | self.a > 5\n | .......^",
        ),
        ("self.nosuch == 1", "ERROR: <input>:1:5: undefined field 'nosuch'\n | self.nosuch == 1\n | ....^"),
        ("x == 1", "ERROR: <input>:1:1: undeclared reference to 'x' (in container '')\n | x == 1\n | ^"),
        ("foo(1)", "ERROR: <input>:1:4: undeclared reference to 'foo' (in container '')\n | foo(1)\n | ...^"),
        (
            "self.a.startsWith(1)",
            "ERROR: <input>:1:18: found no matching overload for 'startsWith' applied to 'string.(int)'\n | self.a.startsWith(1)\n | .................^",
        ),
        ("self.a.b", "ERROR: <input>:1:7: type 'string' does not support field selection\n | self.a.b\n | ......^"),
        (
            "self.n && true",
            "ERROR: <input>:1:8: found no matching overload for '_&&_' applied to '(int, bool)'\n | self.n && true\n | .......^",
        ),
    ] {
        assert_eq!(checked(source), Err(problem.to_owned()), "{source}");
    }
}

#[test]
fn syntax_errors_point_at_the_place() {
    let error = Expression::parse("self.a >").unwrap_err();
    assert!(error.starts_with("ERROR: <input>:1:9: Syntax error: mismatched input '<EOF>' expecting"), "{error}");
    assert!(error.ends_with("\n | self.a >\n | ........^"), "{error}");
}

#[test]
fn syntax_errors_are_worded_as_upstream_words_them() {
    const START: &str = "'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";
    let expected = |signs: &str| format!("expecting {{{signs}, {START}");
    let start = expected("'[', '{', '(', '.', '-', '!'");
    for (source, messages) in [
        ("a b", vec!["1:3: Syntax error: extraneous input 'b' expecting <EOF>".to_owned()]),
        ("a b c", vec!["1:3: Syntax error: mismatched input 'b' expecting <EOF>".to_owned()]),
        ("1 <", vec![format!("1:4: Syntax error: mismatched input '<EOF>' {start}")]),
        ("1 + * 2", vec![format!("1:5: Syntax error: extraneous input '*' {start}")]),
        (
            "x & y",
            vec![
                "1:3: Syntax error: token recognition error at: '& '".to_owned(),
                "1:5: Syntax error: extraneous input 'y' expecting <EOF>".to_owned(),
            ],
        ),
        ("f(1", vec!["1:4: Syntax error: missing ')' at '<EOF>'".to_owned()]),
        ("f(1 2)", vec!["1:5: Syntax error: extraneous input '2' expecting ')'".to_owned()]),
        (
            "[",
            vec![format!(
                "1:2: Syntax error: mismatched input '<EOF>' {}",
                expected("'[', ']', '{', '(', '.', ',', '-', '!', '?'")
            )],
        ),
        ("{b}", vec!["1:3: Syntax error: mismatched input '}' expecting ':'".to_owned()]),
        ("a ? b", vec!["1:6: Syntax error: mismatched input '<EOF>' expecting ':'".to_owned()]),
        ("a.'b'", vec!["1:3: Syntax error: no viable alternative at input '.'b''".to_owned()]),
        ("99999999999999999999", vec!["1:1: invalid int literal".to_owned()]),
        ("has(a)", vec!["1:5: invalid argument to has() macro".to_owned()]),
        ("a.all(1, true)", vec!["1:7: argument must be a simple name".to_owned()]),
        ("for", vec!["1:1: reserved identifier: for".to_owned()]),
    ] {
        let error = Expression::parse(source).unwrap_err();
        let found: Vec<&str> = error.lines().filter_map(|line| line.strip_prefix("ERROR: <input>:")).collect();
        assert_eq!(found, messages, "{source}");
    }
}
