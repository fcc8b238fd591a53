use super::*;
use proptest::prelude::*;
use serde_json::json;

fn florin() -> Parameters {
    let pairs = |all: &[(&str, &str)]| all.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    Parameters {
        labels: pairs(&[("env", "prod"), ("loc-name", "florin"), ("replicas", "3")]),
        annotations: pairs(&[("note", "a \"quoted\" note"), ("big", &"x".repeat(40_000))]),
    }
}

fn customizer(expand: bool, replacements: &[(&str, &str)]) -> Customizer {
    let listed: Vec<Value> = replacements.iter().map(|(path, value)| json!({"path": path, "value": value})).collect();
    let annotations = if expand { json!({EXPAND: "true"}) } else { json!({}) };
    Customizer::read(&json!({"metadata": {"annotations": annotations}, "replacements": listed}))
}

fn deployment(expand: bool) -> Value {
    let annotations = if expand { json!({EXPAND: "true", "who": "%(loc-name)"}) } else { json!({}) };
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "commond", "namespace": "commonstuff", "annotations": annotations},
        "spec": {"replicas": 1, "paused": null, "template": {"spec": {"containers": [
            {"name": "httpd", "env": [{"name": "EXAMPLE_VAR", "value": "example value"}], "args": ["a", "b", "c", "d"]},
            {"name": "side %(env)", "args": []}]}}}
    })
}

/// One replacement in the deployment: what is there then, or why not.
fn replaced(path: &str, value: &str) -> Result<Value, String> {
    let done = customize(deployment(false), Some(&customizer(false, &[(path, value)])), &florin());
    done.map_err(|fault| {
        assert_eq!(fault.path, path);
        fault.reason
    })
}

#[test]
fn the_first_example() {
    let by = customizer(true, &[("$.spec.template.spec.containers.0.env.0.value", "\"env is %(env)\"")]);
    let value = customize(deployment(true), Some(&by), &florin()).unwrap();
    assert_eq!(value["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"], "env is prod");
    assert_eq!(value["spec"]["template"]["spec"]["containers"][1]["name"], "side prod");
    assert_eq!(value["metadata"]["annotations"]["who"], "florin");
    let keys = ["env", "loc-name"].map(str::to_owned);
    assert_eq!(keys_in(&deployment(true), Some(&by)), keys.into());
    assert_eq!(keys_in(&deployment(false), Some(&by)), ["env".to_owned()].into());
    assert_eq!(keys_in(&deployment(false), None), BTreeSet::new());
    assert_eq!(customize(deployment(false), None, &florin()), Ok(deployment(false)));
}

#[test]
fn only_who_says_so_is_expanded() {
    let paths = [("$.spec.template.spec.containers.0.name", "\"%(env)\"")];
    let name = |object: Value, by: Customizer| {
        let value = customize(object, Some(&by), &florin()).unwrap();
        let containers = &value["spec"]["template"]["spec"]["containers"];
        (containers[0]["name"].clone(), containers[1]["name"].clone())
    };
    let pair = |a: &str, b: &str| (Value::from(a), Value::from(b));
    assert_eq!(name(deployment(false), customizer(false, &paths)), pair("%(env)", "side %(env)"));
    assert_eq!(name(deployment(true), customizer(false, &paths)), pair("%(env)", "side prod"));
    assert_eq!(name(deployment(false), customizer(true, &paths)), pair("prod", "side %(env)"));
    for odd in [json!("True"), json!("yes"), json!(true), json!("")] {
        assert!(!is_expanded(&json!({"metadata": {"annotations": {EXPAND: odd}}})));
    }
}

#[test]
fn replacements() {
    let containers = "/spec/template/spec/containers";
    for (path, value, pointer, want) in [
        ("$.spec.replicas", "5", "/spec/replicas".to_owned(), json!(5)),
        (" $ . spec . replicas ", "5", String::new(), json!(null)),
        ("$ ['spec'] [\"replicas\"]", "5", "/spec/replicas".to_owned(), json!(5)),
        // Missing members are made, also lists, also in what is null.
        ("$.spec.a.b.c", "{\"d\": 1}", "/spec/a/b/c/d".to_owned(), json!(1)),
        ("$.spec.paused.x", "1", "/spec/paused/x".to_owned(), json!(1)),
        ("$.spec.tolerations.0.key", "\"k\"", "/spec/tolerations".to_owned(), json!([{"key": "k"}])),
        ("$.spec.tolerations[0]", "1", "/spec/tolerations".to_owned(), json!([1])),
        ("$.metadata.labels['a.b/c']", "\"x\"", "/metadata/labels/a.b~1c".to_owned(), json!("x")),
        ("$.spec.template.spec.containers.1.args.0", "\"new\"", format!("{containers}/1/args"), json!(["new"])),
        ("$.spec.template.spec.containers[0].args[4]", "\"e\"", format!("{containers}/0/args/4"), json!("e")),
        ("$.spec.template.spec.containers[-1].name", "\"last\"", format!("{containers}/1/name"), json!("last")),
        ("$.spec.template.spec.containers.-2.name", "\"first\"", format!("{containers}/0/name"), json!("first")),
        // Everywhere, and only where something is.
        ("$.spec.template.spec.containers[*].name", "\"x\"", format!("{containers}/1/name"), json!("x")),
        (
            "$.spec.template.spec.containers.*.image",
            "\"x\"",
            format!("{containers}/1"),
            json!({"name": "side %(env)", "args": []}),
        ),
        ("$..args", "[1]", format!("{containers}/1/args"), json!([1])),
        ("$..containers..name", "\"n\"", format!("{containers}/0/env/0/name"), json!("n")),
        ("$..[0]", "0", format!("{containers}/0"), json!(0)),
        ("$.spec..args[1:3]", "0", format!("{containers}/0/args"), json!(["a", 0, 0, "d"])),
        ("$.spec..args[::2]", "0", format!("{containers}/0/args"), json!([0, "b", 0, "d"])),
        ("$.spec..args[::-3]", "0", format!("{containers}/0/args"), json!([0, "b", "c", 0])),
        ("$.spec..args[-1:]", "0", format!("{containers}/0/args"), json!(["a", "b", "c", 0])),
        ("$.spec..args[::0]", "0", format!("{containers}/0/args"), json!(["a", "b", "c", "d"])),
        ("$.spec..args[0, 2 ,'x']", "0", format!("{containers}/0/args"), json!([0, "b", 0, "d"])),
        ("$..nothing", "1", "/spec/replicas".to_owned(), json!(1)),
        ("$.spec['replicas','paused']", "7", "/spec/paused".to_owned(), json!(7)),
        // The same identity may be written again.
        (
            "$.metadata",
            "{\"name\": \"commond\", \"namespace\": \"commonstuff\"}",
            "/metadata/name".to_owned(),
            json!("commond"),
        ),
    ] {
        match replaced(path, value) {
            Ok(done) => assert_eq!(done.pointer(&pointer), Some(&want), "{path}"),
            Err(why) => assert!(pointer.is_empty(), "{path}: {why}"),
        }
    }
}

#[test]
fn what_cannot_be_done_is_said() {
    for (path, value, why) in [
        ("", "1", "begins with $"),
        ("spec.replicas", "1", "begins with $"),
        ("$", "1", "whole object"),
        ("$.", "1", "a name, a number or * is wanted at the end"),
        ("$..", "1", "wanted at the end"),
        ("$...a", "1", "instead of '.' at character 4"),
        ("$.a b", "1", "a dot or a bracket is wanted instead of 'b' at character 5"),
        ("$spec", "1", "a dot or a bracket"),
        ("$[", "1", "wanted at the end"),
        ("$[]", "1", "instead of ']'"),
        ("$[a]", "1", "instead of 'a'"),
        ("$['a'", "1", "] or , is wanted at the end"),
        ("$['a", "1", "a closing ' is wanted at the end"),
        ("$['\\x']", "1", "an escape is wrong"),
        ("$[-]", "1", "a number is wanted"),
        ("$[1:2:3:4]", "1", "] or , is wanted instead of ':'"),
        ("$[99999999999999999999]", "1", "no list has an item number"),
        ("$.99999999999999999999", "1", "no list has an item number"),
        ("$.spec.containers[?(@.name=='a')]", "1", "filters"),
        ("$.spec.containers[?@.name=='a']", "1", "filters"),
        ("$.spec.containers[(@.length-1)]", "1", "scripts"),
        ("$.spec.replicas.x", "1", "$.spec.replicas is a number, and has no member \"x\""),
        ("$.spec.replicas[0]", "1", "$.spec.replicas is a number, and has no items"),
        ("$.spec.template.spec.containers.name", "1", "is a list, and has no member"),
        ("$.spec.template.spec.containers[3]", "1", "$.spec.template.spec.containers has 2 items, and no number 3"),
        ("$.spec.template.spec.containers[-3]", "1", "has 2 items, and no number -3"),
        ("$.spec['no list'][1]", "1", "$.spec[\"no list\"] has 0 items, and no number 1"),
        ("$.metadata.labels.1", "1", "$.metadata.labels has 0 items, and no number 1"),
        ("$.spec[0]", "1", "$.spec is an object, and has no items"),
        ("$.spec.replicas", "five", "not JSON"),
        ("$.spec.replicas", "", "not JSON"),
        ("$.kind", "\"Pod\"", "kind says which object"),
        ("$.apiVersion", "null", "apiVersion says which object"),
        ("$.metadata.name", "\"other\"", "metadata.name says which object"),
        ("$.metadata", "{}", "metadata.name says which object"),
        ("$..namespace", "\"other\"", "metadata.namespace says which object"),
        ("$.*", "1", "apiVersion says which object"),
    ] {
        let said = replaced(path, value).expect_err(path);
        assert!(said.contains(why), "{path}: {said}");
    }
    let long = format!("${}", ".a".repeat(65));
    assert!(replaced(&long, "1").unwrap_err().contains("more than 64 steps"));
    assert!(replaced(&"$".repeat(5000), "1").unwrap_err().contains("longer than"));
}

#[test]
fn nothing_grows_without_bounds() {
    let nested = format!("{}1{}", "[".repeat(90), "]".repeat(90));
    assert!(replaced("$.a.b.c.d.e.f.g.h.i.j", &nested).is_ok());
    assert!(replaced("$.a.b.c.d.e.f.g.h.i.j.k", &nested).unwrap_err().contains("nested deeper"));
    let deep = format!("{}1{}", "[".repeat(120), "]".repeat(120));
    assert!(replaced("$.a", &deep).unwrap_err().contains("nested deeper"));
    let wide: Vec<Value> = (0..9_000).map(|n| json!({"a": n})).collect();
    let object = json!({"metadata": {"name": "a"}, "spec": wide});
    let by =
        |replacements: &[(&str, &str)]| customize(object.clone(), Some(&customizer(true, replacements)), &florin());
    assert!(by(&[("$.spec.*.a", "1")]).is_ok());
    assert!(by(&[("$.spec.*.*", &format!("{:?}", "x".repeat(200)))]).unwrap_err().reason.contains("too large"));
    assert!(by(&[("$..none", "1"); 100]).unwrap_err().reason.contains("too many values"));
    let bigger: Vec<Value> = (0..11_000).map(Value::from).collect();
    let wider = customize(json!({"spec": bigger}), Some(&customizer(false, &[("$.spec.*", "1")])), &florin());
    assert!(wider.unwrap_err().reason.contains("more than 10000 places"));
    assert!(by(&[("$.x", &format!("{:?}", "%(big)".repeat(20)))]).unwrap_err().reason.contains("too large"));
    let object = json!({"metadata": {"annotations": {EXPAND: "true"}}, "data": vec!["%(big)"; 100]});
    assert!(customize(object, None, &florin()).unwrap_err().reason.contains("too large"));
    let many = vec![("$.x", "1"); 1001];
    assert!(by(&many).unwrap_err().reason.contains("more than 1000"));
}

#[test]
fn customizers_are_named() {
    let named = |namespace: Option<&str>, said: Value| {
        customizer_of(&json!({"metadata": {"namespace": namespace, "annotations": {CUSTOMIZER: said}}}))
    };
    let pair = |a: &str, b: &str| Some((a.to_owned(), b.to_owned()));
    assert_eq!(named(Some("ns"), json!("c")), pair("ns", "c"));
    assert_eq!(named(Some("ns"), json!("other/c")), pair("other", "c"));
    assert_eq!(named(None, json!("other/c")), pair("other", "c"));
    assert_eq!(named(None, json!("c")), pair("", "c"));
    assert_eq!(named(Some("ns"), json!(" ")), None);
    assert_eq!(named(Some("ns"), json!(7)), None);
    assert_eq!(customizer_of(&json!([])), None);
    assert!(missing_customizer("", "c").reason.contains("namespace/name"));
    assert!(missing_customizer("ns", "c").reason.contains("in namespace \"ns\""));
}

#[test]
fn odd_customizers_are_read() {
    for odd in [json!(null), json!({}), json!({"replacements": 1}), json!({"replacements": []})] {
        assert_eq!(
            customize(deployment(true), Some(&Customizer::read(&odd)), &Parameters::default()).ok(),
            Some(deployment(true))
        );
    }
    let odd = Customizer::read(&json!({"replacements": [1]}));
    assert!(customize(deployment(false), Some(&odd), &Parameters::default()).is_err());
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<i8>().prop_map(Value::from),
        "(%\\(env\\)|%\\(x\\)|%%|%|a|\"){0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let members = proptest::collection::btree_map("[abc]|[0-2]|%\\(env\\)", inner.clone(), 0..4);
        prop_oneof![
            proptest::collection::vec(inner, 0..4).prop_map(Value::from),
            members.prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn any_path() -> impl Strategy<Value = String> {
    "\\$((\\.|\\.\\.)([abc]|\\*|[0-2]|-1)|\\.?\\.?\\[(\\*|'[abc]'|\"a\"|-?[0-2]|[0-2]?:-?[0-3]?(:-?[0-2])?)(, ?[0-1])?\\]|\\PC){0,4}"
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![any_value().prop_map(|value| value.to_string()), "\\PC{0,12}", Just("%(env)".to_owned())]
}

proptest! {
    /// Whatever is written, somebody is told something; and Locations that agree on the keys get the same.
    #[test]
    fn equal_parameters_make_equal_objects(
        spec in any_value(),
        replacements in proptest::collection::vec((any_path(), any_text()), 0..4),
        (own, theirs) in any::<(bool, bool)>(),
        (env, x, other) in ("[a-z\"]{0,3}", "[0-9]{0,2}", "[a-z]{0,3}"),
    ) {
        let annotations = if own { json!({EXPAND: "true"}) } else { json!({}) };
        let object = json!({"kind": "A", "metadata": {"name": "n", "annotations": annotations}, "spec": spec});
        let listed: Vec<(&str, &str)> = replacements.iter().map(|(path, value)| (&**path, &**value)).collect();
        let by = customizer(theirs, &listed);
        let all = Parameters {
            labels: [("env".to_owned(), env), ("other".to_owned(), other)].into(),
            annotations: [("x".to_owned(), x)].into(),
        };
        let keys = keys_in(&object, Some(&by));
        let mut fewer = all.clone();
        fewer.labels.retain(|key, _| keys.contains(key));
        fewer.annotations.retain(|key, _| keys.contains(key));
        let done = customize(object.clone(), Some(&by), &all);
        prop_assert_eq!(&done, &customize(object, Some(&by), &fewer));
        if let Ok(done) = done {
            prop_assert_eq!(&done["kind"], "A");
            prop_assert_eq!(&done["metadata"]["name"], "n");
        }
    }
}
