//! What holds for every expression and every value.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;

/// Pieces of expressions, which together are often one.
const PIECES: &[&str] = &[
    "self",
    "self.a",
    "self.l",
    "self.m",
    "x",
    "1",
    "-1",
    "0",
    "9223372036854775807",
    "2u",
    "1.5",
    "'a'",
    "'é,b'",
    "''",
    "b'\\xff'",
    "null",
    "true",
    "[",
    "]",
    "{",
    "}",
    "(",
    ")",
    ",",
    ":",
    "?",
    ".",
    "+",
    "-",
    "*",
    "/",
    "%",
    "==",
    "<",
    "&&",
    "||",
    "!",
    " in ",
    ".size()",
    ".map(x, x)",
    ".all(x, x == x)",
    ".filter(x, true)",
    ".sortBy(x, x)",
    ".join()",
    ".sum()",
    ".min()",
    ".sort()",
    ".distinct()",
    ".flatten(9)",
    ".slice(0, 1)",
    ".split('')",
    ".replace('', self.a)",
    ".substring(1)",
    ".charAt(-1)",
    ".indexOf('', 9)",
    ".format([self])",
    "'%s%e%.9f'",
    ".matches('(a*)*')",
    ".findAll('.')",
    "string(",
    "int(",
    "double(",
    "timestamp(",
    "duration(",
    "quantity(",
    "ip(",
    "cidr(",
    "url(",
    "semver(",
    "type(",
    "dyn(",
    "math.greatest(",
    "sets.contains(",
    "base64.decode(",
    "optional.of(",
    ".orValue(1)",
];

fn value() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        any::<u64>().prop_map(Json::from),
        any::<f64>().prop_map(Json::from),
        "\\PC{0,12}".prop_map(Json::from),
        "[0-9]{1,4}(Gi|m|h|s|\\.[0-9])?[-:./a-f0-9TZ]{0,12}".prop_map(Json::from),
    ];
    leaf.prop_recursive(3, 24, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Json::from),
            prop::collection::btree_map("[a-m]{1,2}", inner, 0..6).prop_map(|map| json!(map)),
        ]
    })
}

fn expression() -> impl Strategy<Value = String> {
    let pieces = prop::collection::vec(prop::sample::select(PIECES.to_vec()), 1..14).prop_map(|all| all.concat());
    prop_oneof![4 => pieces, 1 => "\\PC{0,40}"]
}

/// Every function and method that there is, on a value with arguments.
fn call() -> impl Strategy<Value = (String, Vec<Json>)> {
    let methods = "size|isSorted|sum|min|max|indexOf|lastIndexOf|join|slice|flatten|sort|reverse|distinct|first|last|\
        unwrapOpt|contains|startsWith|endsWith|matches|find|findAll|charAt|lowerAscii|upperAscii|trim|replace|split|\
        substring|format|getHours|getDate|family|masked|getQuery|add|sub|compareTo|major|validate|hasValue|value|\
        orValue";
    let functions = "size|string|int|uint|double|bool|bytes|duration|timestamp|quantity|isQuantity|ip|isIP|cidr|isCIDR|\
        url|isURL|semver|isSemver|type|dyn|math.abs|math.round|math.bitShiftLeft|math.least|sets.equivalent|\
        lists.range|strings.quote|base64.decode|jsonpatch.escapeKey|optional.of|ip.isCanonical|optional.unwrap";
    let method = prop::sample::select(methods.split('|').collect::<Vec<_>>());
    let function = prop::sample::select(functions.split('|').collect::<Vec<_>>());
    let arguments = |count: usize| (0..count).map(|at| format!("a{at}")).collect::<Vec<_>>().join(", ");
    let name = prop_oneof![
        (method, 1..5usize).prop_map(move |(name, count)| {
            let all = arguments(count);
            let (of, rest) = all.split_once(", ").unwrap_or((&all, ""));
            format!("{of}.{name}({rest})")
        }),
        (function, 1..4usize).prop_map(move |(name, count)| format!("{name}({})", arguments(count))),
    ];
    (name, prop::collection::vec(value(), 4))
}

/// Evaluates and looks whether it stayed within its budget.
fn run(source: &str, variables: &[(&str, Value)]) -> Result<(), TestCaseError> {
    let Ok(expression) = Expression::parse(source) else { return Ok(()) };
    for limit in [COST_OF_ALL, 50] {
        let (mut budget, started) = (limit, Instant::now());
        let result = expression.evaluate(variables, &mut budget);
        prop_assert!(budget <= limit);
        prop_assert!(started.elapsed() < Duration::from_secs(5), "{source}");
        if let Ok(value) = &result {
            let _ = to_json(value);
            let same = value.clone() == *value;
            prop_assert!(same || format!("{value:?}").contains("NaN"), "{source}: {value:?}");
        }
        if result == Err(Failure::Cost) && limit == COST_OF_ALL {
            prop_assert_eq!(budget, limit - COST_OF_ONE);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics(source in expression(), object in value()) {
        let own = from_json(&json!({"a": "text", "l": [1, 2, object], "m": {"k": object}}));
        let environment = Environment::new([("self".to_owned(), Type::Dyn)]);
        let _ = Expression::compile(&source, &environment);
        run(&source, &[("self", own), ("x", from_json(&object))])?;
    }

    #[test]
    fn functions_take_anything(given in call()) {
        let (source, values) = given;
        let values: Vec<Value> = values.iter().map(from_json).collect();
        let names = ["a0", "a1", "a2", "a3"];
        let variables: Vec<(&str, Value)> = names.into_iter().zip(values).collect();
        run(&source, &variables)?;
    }

    #[test]
    fn json_comes_back(object in value()) {
        prop_assert_eq!(to_json(&from_json(&object)), Some(object));
    }

    #[test]
    fn keys_are_found(keys in prop::collection::vec(any::<i64>(), 0..20), other in any::<i64>()) {
        let map = Map::new(keys.iter().map(|key| (Key::Int(*key), Value::Int(*key))).collect());
        for key in keys.iter().chain([&other]) {
            let found = map.get(&Key::Int(*key)).cloned();
            prop_assert_eq!(found, keys.contains(key).then_some(Value::Int(*key)));
        }
    }
}

/// Values that contain one another are larger than what they are made of; whatever looks at all of one is charged.
#[test]
fn shared_values_are_charged() {
    let mut nested = "[1, 1]".to_owned();
    for depth in 0..24 {
        nested = format!("cel.bind(v{depth}, {nested}, [v{depth}, v{depth}])");
    }
    for source in [
        format!("{nested} == {nested}"),
        format!("{nested} in [{nested}]"),
        format!("[{nested}].indexOf({nested})"),
        format!("sets.contains([{nested}], [{nested}])"),
        format!("'%s'.format([{nested}])"),
        format!("{nested}.flatten(100)"),
        format!("[{nested}, {nested}].distinct()"),
    ] {
        let (started, mut budget) = (Instant::now(), COST_OF_ALL);
        let result = Expression::parse(&source).unwrap().evaluate(&[], &mut budget);
        assert_eq!(result, Err(Failure::Cost), "{}", &source[source.len() - 40..]);
        assert!(started.elapsed() < Duration::from_secs(10));
    }
    let value = Expression::parse(&nested).unwrap().evaluate(&[], &mut COST_OF_ALL.clone()).unwrap();
    assert_eq!(to_json(&value), None);
}

/// Twice the work costs about twice as much.
#[test]
fn evaluation_is_linear() {
    let cost = |source: &str, count: i64| {
        let mut budget = COST_OF_ALL;
        let variables = [("n", Value::Int(count)), ("t", "ab".repeat(count as usize).into())];
        Expression::parse(source).unwrap().evaluate(&variables, &mut budget).unwrap();
        COST_OF_ALL - budget
    };
    for source in [
        "lists.range(n).map(x, x + 1).filter(x, x > 2).sum()",
        "lists.range(n).sort().reverse().isSorted()",
        "t.replace('a', 'bb').split('b').size()",
        "lists.range(n).map(x, x > 0).all(x, x || !x)",
        "'%s'.format([t + t])",
    ] {
        let (once, twice) = (cost(source, 1000), cost(source, 2000));
        assert!(twice <= 3 * once, "{source}: {once} and {twice}");
    }
}
