//! Good input to start from, by target.

use codec::proto;
use schema::catalogue;
use serde_json::{Value, json};

pub(crate) fn objects() -> Vec<Value> {
    vec![
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"x": "y"}, "finalizers": ["e.com/x"]},
            "data": {"a": "1"}, "binaryData": {"b": "aGVsbG8="}, "immutable": true}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "creationTimestamp": "2026-01-02T03:04:05Z"},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]},
                "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {
                    "containers": [{"name": "web", "image": "nginx", "ports": [{"containerPort": 80, "protocol": "TCP"}],
                        "env": [{"name": "A", "value": "1"}], "resources": {"limits": {"cpu": "100m", "memory": "64Mi"}}}],
                    "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}], "tolerations": [{"operator": "Exists"}]}}}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
            "spec": {"ports": [{"port": 80, "targetPort": "http", "nodePort": 30000}], "clusterIPs": ["10.0.0.1"], "selector": {"a": "b"}}}),
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "eventTime": "2026-01-02T03:04:05.000006Z",
            "involvedObject": {"kind": "Pod"}, "count": 3}),
        crd(),
    ]
}

pub(crate) fn crd() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "looms.w.com"},
        "spec": {"group": "w.com", "scope": "Namespaced", "names": {"plural": "looms", "singular": "loom", "kind": "Loom", "listKind": "LoomList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "additionalPrinterColumns": [{"name": "T", "type": "integer", "jsonPath": ".spec.threads"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "required": ["threads"], "properties": {
                        "threads": {"type": "integer", "minimum": 1, "maximum": 9, "multipleOf": 1}, "name": {"type": "string", "pattern": "^a+$", "maxLength": 5},
                        "any": {"x-kubernetes-preserve-unknown-fields": true}, "either": {"x-kubernetes-int-or-string": true},
                        "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                            "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string", "default": "z"}}}},
                        "map": {"type": "object", "additionalProperties": {"type": "number", "nullable": true}}},
                        "x-kubernetes-validations": [{"rule": "self.threads > 1 && oldSelf.threads <= self.threads", "message": "m"}]},
                    "status": {"type": "object", "anyOf": [{"required": ["a"]}, {"not": {"required": ["b"]}}], "properties": {"a": {"type": "boolean"}, "b": {"enum": [1, "x"]}}}}}}}]}})
}

pub(crate) fn json_texts() -> Vec<Vec<u8>> {
    objects().iter().map(|o| o.to_string().into_bytes()).collect()
}

pub(crate) fn yaml_texts() -> Vec<Vec<u8>> {
    let mut all = texts(&[
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  labels: {x: y, \"on\": 'off'}\ndata:\n  a: |\n    line\n    line\n  b: >-\n    folded\n",
        "a: &a [1, 2.5, 0x10, 0o7, .inf, ~, yes]\nb: *a\nc: {<<: {d: 1}}\n? complex\n: value\n--- \nsecond: true\n",
        "- a\n-\n  - b\n  - \"\\x41\\u0042\\n\"\n- !!str 12\n- 2026-01-02\n# comment\n",
    ]);
    all.extend(json_texts());
    all
}

pub(crate) fn protobuf_messages() -> Vec<Vec<u8>> {
    let schema = schema::builtin();
    let encoded = |o: &Value| {
        let (group, version) = catalogue::split_api_version(o["apiVersion"].as_str()?);
        let ty = schema.of_kind(group, version, o["kind"].as_str()?)?;
        let raw = proto::encode(schema, ty, o);
        Some(proto::wrap(o["apiVersion"].as_str()?, o["kind"].as_str()?, &raw))
    };
    objects().iter().filter_map(encoded).collect()
}

pub(crate) fn patches() -> Vec<Vec<u8>> {
    texts(&[
        r#"[{"op":"add","path":"/metadata/labels/a~1b","value":"c"},{"op":"remove","path":"/spec"},{"op":"test","path":"/kind","value":"ConfigMap"}]"#,
        r#"[{"op":"move","from":"/data/a","path":"/data/b"},{"op":"copy","from":"/data","path":"/binaryData"},{"op":"replace","path":"/x/-","value":null}]"#,
        r#"{"data":{"a":null,"b":"2"},"metadata":{"labels":null}}"#,
        r#"{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"web"},{"name":"b"}],"containers":[{"name":"b","image":"i"},{"name":"web","$patch":"delete"}]}}}}"#,
        r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["e.com/x"],"finalizers":["e.com/y"]},"spec":{"$retainKeys":["replicas"],"$patch":"replace","replicas":1}}"#,
    ])
}

pub(crate) fn selectors() -> Vec<Vec<u8>> {
    texts(&[
        "a=b,c!=d",
        "x in (a, b),y notin (c),z,!w",
        "a==b",
        "metadata.name=x,spec.nodeName!=y",
        "n>1,m<2",
        "k8s.io/name in ()",
        "a=\\,b\\=",
    ])
}

pub(crate) fn customizations() -> Vec<Vec<u8>> {
    texts(&[
        "$.spec.replicas\n%(env)",
        "$.spec.template.spec.containers.0.env.0.value\n\"env is %(env)\"",
        "$..containers[*]['name', \"image\"]\n{\"a\": [1, %%]}",
        "$.metadata.labels['a.b/c'][-1:5:2]..*\nnull",
        "$.a.-1[0,1]\n[[[[]]]]",
    ])
}

pub(crate) fn quantities() -> Vec<Vec<u8>> {
    texts(&["100m", "1.5Gi", "-3e3", "12345678901234567890Ei", "0", ".5", "1E", "1n", "+1Ki"])
}

pub(crate) fn rules() -> Vec<Vec<u8>> {
    texts(&[
        "self.threads > 1 && self.name.matches('^a+$')",
        "self.list.all(x, x.k != '') ? size(self.map) < 3 : has(self.any)",
        "self.map['a'] in [1, 2.0, 3u] || duration('1h') > duration('30m')",
        "quantity('1Gi').isGreaterThan(quantity('1Mi'))",
        "self == oldSelf",
        "[1,2].map(x, x * 2).exists_one(y, y == 4)",
        "url('https://a/b').getHost() == 'a'",
    ])
}

fn texts(all: &[&str]) -> Vec<Vec<u8>> {
    all.iter().map(|t| t.as_bytes().to_vec()).collect()
}

/// Frames as clients send them, masked with zeros.
pub(crate) fn websockets() -> Vec<Vec<u8>> {
    let frames: [&[u8]; 5] = [
        b"\x82\x86\0\0\0\0\0hello",
        b"\x02\x81\0\0\0\0a\x89\x81\0\0\0\0p\x80\x81\0\0\0\0b",
        b"\x81\xfe\0\x80\0\0\0\0",
        b"\x82\xff\0\0\0\0\0\0\0\x02\0\0\0\0hi\x88\x82\0\0\0\0\x03\xe8",
        b"\x82\x82\x01\x02\x03\x04\xfe\x02",
    ];
    let mut all: Vec<Vec<u8>> = frames.iter().map(|frame| frame.to_vec()).collect();
    all.push(frames.concat());
    all
}

/// Streams that are opened with headers packed by zlib with the dictionary, data on them, a ping, their ends.
pub(crate) fn spdy() -> Vec<Vec<u8>> {
    let opened = |stream: u8, packed: &str| {
        let packed: Vec<u8> =
            (0..packed.len()).step_by(2).filter_map(|at| u8::from_str_radix(&packed[at..at + 2], 16).ok()).collect();
        let mut frame = vec![0x80, 3, 0, 1, 0, 0, 0, 10 + packed.len() as u8, 0, 0, 0, stream, 0, 0, 0, 0, 0, 0];
        frame.extend(packed);
        frame
    };
    let first = opened(
        1,
        "78bbe3c6a7c202253a703a2b294a4dcc851625aca9a0808614cb45a024cc64610024398b209198094adc8c0600000000ffff",
    );
    let second = opened(3, "c2aa15540a2512d209000000ffff");
    let rest: [&[u8]; 4] = [
        b"\0\0\0\x01\0\0\0\x02hi",
        b"\x80\x03\0\x06\0\0\0\x04\0\0\0\x01",
        b"\0\0\0\x03\x01\0\0\x01x",
        b"\x80\x03\0\x03\0\0\0\x08\0\0\0\x01\0\0\0\x05",
    ];
    let stored = opened(1, "7801000e00f1ff0000000100000001610000000162");
    vec![first.clone(), [first, second, rest.concat()].concat(), [stored, rest.concat()].concat()]
}
