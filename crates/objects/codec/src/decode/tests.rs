use proptest::prelude::*;
use schema::builtin;
use serde_json::json;

use super::*;

fn ty(kind: &str) -> schema::TypeId {
    let (api_version, kind) = kind.rsplit_once('/').unwrap();
    let (group, version) = schema::catalogue::split_api_version(api_version);
    builtin().of_kind(group, version, kind).unwrap()
}

fn conformed(kind: &str, mut value: Value) -> Result<(Value, Vec<String>), String> {
    let unknown = conform(builtin(), ty(kind), &mut value)?;
    let mut again = value.clone();
    assert_eq!(conform(builtin(), ty(kind), &mut again), Ok(Vec::new()));
    assert_eq!(again, value, "doing it twice changes something");
    Ok((value, unknown))
}

fn error(kind: &str, value: Value) -> String {
    conformed(kind, value).unwrap_err()
}

#[test]
fn syntax_errors_are_worded_as_go_words_them() {
    for (body, want) in [
        ("", "unexpected end of JSON input"),
        ("{\"metadata\":", "unexpected end of JSON input"),
        ("{\"a\":1", "unexpected end of JSON input"),
        ("a", "invalid character 'a' looking for beginning of value"),
        ("{a", "invalid character 'a' looking for beginning of object key string"),
        ("{\"a\" 1}", "invalid character '1' after object key"),
        ("{\"a\":1 \"b\"}", "invalid character '\"' after object key:value pair"),
        ("[1 2]", "invalid character '2' after array element"),
        ("[1,]", "invalid character ']' looking for beginning of value"),
        ("{} x", "invalid character 'x' after top-level value"),
        ("tru ", "invalid character ' ' in literal true (expecting 'e')"),
        ("\"\n\"", "invalid character '\\n' in string literal"),
        ("\"\\x\"", "invalid character 'x' in string escape code"),
        ("-x", "invalid character 'x' in numeric literal"),
        ("1.x", "invalid character 'x' after decimal point in numeric literal"),
        ("1ex", "invalid character 'x' in exponent of numeric literal"),
    ] {
        assert_eq!(parse(body.as_bytes(), Format::Json).unwrap_err().message, want, "{body}");
    }
}

#[test]
fn hostile_bodies_are_refused_quickly() {
    for (open, format) in [("[", Format::Json), ("{\"a\":", Format::Json), ("[", Format::Yaml), ("- ", Format::Yaml)] {
        let body = open.repeat(100_000);
        assert_eq!(parse(body.as_bytes(), format).unwrap_err().code, 400, "{open}");
    }
    let many = "- 0\n".repeat(1_200_000);
    assert_eq!(parse(many.as_bytes(), Format::Yaml).unwrap_err().code, 400);
    assert_eq!(parse(b"{\"a\":\"\xff\"}", Format::Json).unwrap_err().code, 400);
    assert_eq!(parse(b"a: \xff", Format::Yaml).unwrap_err().code, 400);
    let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..12 {
        let before = format!("*a{},", level - 1).repeat(9);
        bomb.push_str(&format!("a{level}: &a{level} [{before}]\n"));
    }
    let refused = parse(bomb.as_bytes(), Format::Yaml).unwrap_err();
    assert!(refused.message.contains("excessive aliasing"), "{refused}");
}

#[test]
fn duplicate_keys_are_told_and_the_last_counts() {
    let parsed = parse(br#"{"metadata":{"labels":{"a":"1","a":"2"}},"l":[{"x":1,"x":2}]}"#, Format::Json).unwrap();
    assert_eq!(parsed.value["metadata"]["labels"]["a"], "2");
    assert_eq!(parsed.duplicates, ["duplicate field \"metadata.labels.a\"", "duplicate field \"l[0].x\""]);
    let parsed = parse(b"a: 1\nb: 2\nb: 3\na: {c: 1, c: 2}\n", Format::Yaml).unwrap();
    assert_eq!(parsed.value, json!({"a": {"c": 2}, "b": 3}));
    let lines = ["  line 3: key \"b\" already set in map", "  line 4: key \"a\" already set in map"];
    let lines = [lines[0], lines[1], "  line 4: key \"c\" already set in map"];
    assert_eq!(parsed.duplicates, [format!("yaml: unmarshal errors:\n{}", lines.join("\n"))]);
}

#[test]
fn yaml_is_the_first_document() {
    let body = b"apiVersion: v1\n1: x\ntrue: z\nbase: &b {k: v}\nuse: {<<: *b, l: w}\n---\nother: [";
    let parsed = parse(body, Format::Yaml).unwrap();
    let want = json!({"apiVersion": "v1", "1": "x", "true": "z", "base": {"k": "v"}, "use": {"k": "v", "l": "w"}});
    assert_eq!(parsed.value, want);
    let refused = parse(b"a: b\n c: [1", Format::Yaml).unwrap_err();
    assert!(refused.message.starts_with("error converting YAML to JSON: yaml: line 2: "), "{refused}");
}

#[test]
fn yaml_is_of_the_older_kind_unless_quoted_or_tagged() {
    let text = "a: yes\nb: 'yes'\nc: \"no\"\nd: !!str no\ne: &x off\nf: *x\ng: !!str &y 0644\nh: [on, 'on', 0644, '0644', 1_000]\non: 1\n'on': 2\n0644: 3\ni: |-\n  yes\nj: 2001-01-01\nk: yes or no\n";
    let parsed = parse(text.as_bytes(), Format::Yaml).unwrap();
    let expected = json!({"a": true, "b": "yes", "c": "no", "d": "no", "e": false, "f": false, "g": "0644", "h": [true, "on", 420, "0644", 1000],
                          "true": 1, "on": 2, "420": 3, "i": "yes", "j": "2001-01-01", "k": "yes or no"});
    assert_eq!(parsed.value, expected);
    let large = parse(b"a: 12345678901234567890123", Format::Yaml).unwrap();
    assert_eq!(large.value, json!({"a": 12345678901234567890123_f64}));
    assert!(parse(b"~: x", Format::Yaml).unwrap_err().message.contains("unsupported map key"));
}

/// Words that have to be looked at closely cost no more in a long line, nor behind a long text that aliases repeat.
#[test]
fn yaml_words_cost_the_same_wherever_they_stand() {
    let long = "x".repeat(500_000);
    let line = format!("a: [{}{long}]", "y,".repeat(200_000));
    let repeated = format!("a: {long}\nb: [&x y{}]", ",*x".repeat(150_000));
    let begun = std::time::Instant::now();
    for text in [line, repeated] {
        let value = parse(text.as_bytes(), Format::Yaml).unwrap().value;
        assert!(value["a"][199_999] == true || value["b"][150_000] == true);
    }
    // Seconds are enough by far; minutes would be needed otherwise.
    assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[test]
fn yaml_errors_count_lines_as_go_does() {
    for (body, want) in [
        ("a: b: c", "yaml: mapping values are not allowed in this context"),
        ("x: 1\na: b: c", "yaml: line 2: mapping values are not allowed in this context"),
        ("{\"a\":\"b\"", "yaml: line 1: did not find expected ',' or '}'"),
    ] {
        let refused = parse(body.as_bytes(), Format::Yaml).unwrap_err();
        assert_eq!(refused.message, format!("error converting YAML to JSON: {want}"), "{body}");
    }
}

#[test]
fn unknown_fields_come_in_document_order() {
    let body =
        br#"{"metadata":{"name":"a","colour":"red"},"spec":{"shape":1,"containers":[{"name":"c","imagee":"x"}]}}"#;
    let mut parsed = parse(body, Format::Json).unwrap();
    let unknown = conform(builtin(), ty("v1/Pod"), &mut parsed.value).unwrap();
    let all = strict_errors(body, Format::Json, parsed.duplicates, unknown);
    let want = ["metadata.colour", "spec.shape", "spec.containers[0].imagee"];
    assert_eq!(all, want.map(|p| format!("unknown field \"{p}\"")));
    assert!(parsed.value["spec"].get("shape").is_none());
}

#[test]
fn types_are_checked_with_gos_words() {
    for (kind, value, want) in [
        (
            "v1/ConfigMap",
            json!({"data": {"k": 1}}),
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        (
            "apps/v1/Deployment",
            json!({"spec": {"replicas": "3"}}),
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            "apps/v1/Deployment",
            json!({"spec": {"replicas": 3_000_000_000_u64}}),
            "json: cannot unmarshal number 3000000000 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            "v1/Pod",
            json!({"spec": {"containers": {"name": "x"}}}),
            "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        (
            "v1/Pod",
            json!({"spec": {"containers": [{"ports": [{"protocol": 1}]}]}}),
            "json: cannot unmarshal number into Go struct field ContainerPort.spec.containers.ports.protocol of type v1.Protocol",
        ),
        ("v1/Pod", json!([]), "json: cannot unmarshal array into Go value of type v1.Pod"),
        (
            "v1/Pod",
            json!({"metadata": {"creationTimestamp": "yesterday"}}),
            "parsing time \"yesterday\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"yesterday\" as \"2006\"",
        ),
        ("v1/Secret", json!({"data": {"k": "%%%"}}), "illegal base64 data at input byte 0"),
        ("v1/Secret", json!({"data": {"k": "AAA"}}), "illegal base64 data at input byte 0"),
        (
            "v1/Pod",
            json!({"spec": {"containers": [{"resources": {"limits": {"cpu": "lots"}}}]}}),
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
    ] {
        assert_eq!(error(kind, value), want);
    }
}

#[test]
fn empty_and_zero_values_are_gos() {
    let (deployment, _) = conformed(
        "apps/v1/Deployment",
        json!({"metadata": {"labels": {}, "creationTimestamp": null}, "spec": {
            "replicas": 0, "paused": false, "minReadySeconds": 0,
            "template": {"spec": {"automountServiceAccountToken": false, "containers": [
                {"name": "c", "image": "", "args": [], "resources": {"limits": {"cpu": "1000m", "memory": 1024}}}]}}}}),
    )
    .unwrap();
    let want = json!({"metadata": {}, "status": {}, "spec": {
        "replicas": 0, "selector": null, "strategy": {},
        "template": {"metadata": {}, "spec": {"automountServiceAccountToken": false, "containers": [
            {"name": "c", "resources": {"limits": {"cpu": "1", "memory": "1024"}}}]}}}});
    assert_eq!(deployment, want);
    let (role, _) = conformed("rbac.authorization.k8s.io/v1/ClusterRole", json!({"metadata": {"name": "r"}})).unwrap();
    assert_eq!(role, json!({"metadata": {"name": "r"}, "rules": null}));
    let (service, _) = conformed("v1/Service", json!({})).unwrap();
    assert_eq!(service, json!({"metadata": {}, "spec": {}, "status": {"loadBalancer": {}}}));
}

#[test]
fn times_and_bytes_become_canonical() {
    let (pod, _) = conformed(
        "v1/Pod",
        json!({"metadata": {"creationTimestamp": "2024-02-29T23:30:00.5-01:00", "deletionTimestamp": "2024-01-01T00:00:00Z"},
               "spec": {"containers": null}}),
    )
    .unwrap();
    assert_eq!(pod["metadata"]["creationTimestamp"], "2024-03-01T00:30:00Z");
    assert_eq!(pod["spec"]["containers"], Value::Null);
    let lease = |time: &str| conformed("coordination.k8s.io/v1/Lease", json!({"spec": {"renewTime": time}}));
    assert_eq!(
        lease("2024-01-01T01:00:00.000001+01:00").unwrap().0["spec"]["renewTime"],
        "2024-01-01T00:00:00.000001Z"
    );
    // Unlike other times, these have six digits of fraction or are none.
    for (time, rest, element) in
        [("2024-01-01T00:00:00Z", "Z", ".000000"), ("2024-01-01T00:00:00.5Z", ".5Z", ".000000")]
    {
        let want = format!(
            "parsing time {time:?} as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse {rest:?} as {element:?}"
        );
        assert!(lease(time).unwrap_err().to_string().contains(&want), "{time}");
    }
    let (secret, _) = conformed("v1/Secret", json!({"data": {"k": "QUJ\nDRA==", "n": null}})).unwrap();
    assert_eq!(secret["data"], json!({"k": "QUJDRA==", "n": ""}));
    for (text, want) in [("1.5h", "1h30m0s"), ("90s", "1m30s"), ("1500us", "1.5ms"), ("0", "0s"), ("-2s", "-2s")] {
        assert_eq!(scalar::duration(text).as_deref(), Ok(want));
    }
    assert_eq!(scalar::duration("3 s").unwrap_err(), "time: invalid duration \"3 s\"");
}

#[test]
fn schemas_of_custom_resources_are_walked() {
    let (crd, unknown) = conformed(
        "apiextensions.k8s.io/v1/CustomResourceDefinition",
        json!({"spec": {"group": "g", "names": {"plural": "p", "kind": "K"}, "scope": "Cluster", "versions": [
            {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
                "additionalProperties": {"type": "string", "odd": 1}, "properties": {"a": {"items": {"weird": 1}}},
                "default": {"x": {}}}}}]}}),
    )
    .unwrap();
    let root = "spec.versions[0].schema.openAPIV3Schema";
    let want = [format!("{root}.additionalProperties.odd"), format!("{root}.properties.a.items.weird")];
    assert_eq!(unknown, want.map(|p| format!("unknown field \"{p}\"")));
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    assert_eq!(schema["default"], json!({"x": {}}));
    assert_eq!(schema["additionalProperties"], json!({"type": "string"}));
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1000i32..1000).prop_map(|n| Value::from(f64::from(n) / 8.0)),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 6, |inner| {
        let key = prop_oneof!["spec|metadata|status|data|template|containers|name|ports|resources|limits", ".{0,4}"];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(key, inner, 0..6).prop_map(|m| m.into_iter().collect()),
        ]
    })
}

proptest! {
    #[test]
    fn json_reads_what_was_written(value in any_json()) {
        let text = serde_json::to_vec(&value).unwrap();
        prop_assert_eq!(parse(&text, Format::Json).unwrap().value, value);
    }

    #[test]
    fn no_body_panics(mut body in any_json().prop_map(|v| v.to_string().into_bytes()), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let at = at.index(body.len());
        body[at] = byte;
        if let Err(refused) = parse(&body, Format::Json) {
            prop_assert_eq!(refused.code, 400);
        }
        let _ = parse(&body, Format::Yaml);
    }

    #[test]
    fn conforming_never_panics_and_settles(value in any_json(), pick in any::<prop::sample::Index>()) {
        let resources = schema::catalogue::builtin();
        let ty = resources[pick.index(resources.len())].ty.unwrap();
        let mut once = value;
        if conform(builtin(), ty, &mut once).is_ok() {
            let mut twice = once.clone();
            prop_assert_eq!(conform(builtin(), ty, &mut twice), Ok(Vec::new()));
            prop_assert_eq!(once, twice);
        }
    }

    #[test]
    fn times_never_panic(text in ".{0,30}", near in "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]{1,12})?(Z|[+-][0-9]{2}:[0-9]{2})") {
        let _ = (scalar::time(&text), scalar::micro_time(&near), scalar::duration(&text), scalar::base64(&text));
        if let Ok(Some(canonical)) = scalar::time(&near) {
            prop_assert_eq!(scalar::time(&canonical), Ok(Some(canonical.clone())));
        }
    }
}
