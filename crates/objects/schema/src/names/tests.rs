//! Names that pass, and what is said about those that do not.

use super::*;

#[test]
fn generated_names() {
    assert_eq!(generate("web-", |_| 0), "web-bbbbb");
    assert_eq!(generate(&"x".repeat(80), |n| n - 1), format!("{}99999", "x".repeat(58)));
    assert_eq!(generate(&"é".repeat(40), |_| 1).chars().count(), 29 + 5);
}

#[test]
fn good_names_have_no_complaints() {
    type Check = fn(&str) -> Complaints;
    let table: &[(Check, &[&str])] = &[
        (dns1123_label, &["a", "a-b", "0", "123-abc"]),
        (dns1123_subdomain, &["a", "a.b-c.0", "example.com"]),
        (dns1035_label, &["a", "a-0"]),
        (qualified_name, &["a", "A_b.c", "example.com/a", "app.kubernetes.io/name"]),
        (label_value, &["", "a", "A_b.c-0"]),
        (c_identifier, &["_", "a1"]),
        (env_var_name, &["A", "1 2", "a-b.c"]),
        (http_header_name, &["X-A"]),
        (config_key, &["a", ".a", "A_b"]),
        (port_name, &["http", "a-1"]),
        (percent, &["0%", "100%"]),
        (path_segment, &["system:x", "Anything goes"]),
        (ip, &["1.2.3.4", "::1", "2001:DB8::1"]),
        (canonical_ip, &["1.2.3.4", "::1", "2001:db8::1"]),
        (cidr, &["10.0.0.0/8", "0.0.0.0/0", "::/0", "2001:db8::/32", "1.2.3.4/32"]),
        (wildcard_subdomain, &["*.a.b"]),
        (dns1123_subdomain_with_underscore, &["_a.b_c"]),
    ];
    for (check, names) in table {
        for name in *names {
            assert_eq!(check(name), Vec::<String>::new(), "{name}");
        }
    }
}

#[test]
fn bad_names() {
    type Check = fn(&str) -> Complaints;
    let table: &[(Check, &str, &[&str])] = &[
        (dns1123_label, "a.b", &["must not contain dots"]),
        (
            dns1123_label,
            "A",
            &[
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
            ],
        ),
        (
            dns1123_subdomain,
            "Bad_Name",
            &[
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            ],
        ),
        (
            dns1035_label,
            "1a",
            &[
                "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
            ],
        ),
        (
            qualified_name,
            "a/b/c",
            &[
                "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
            ],
        ),
        (
            qualified_name,
            "/",
            &[
                "prefix part must be non-empty",
                "name part must be non-empty",
                "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
            ],
        ),
        (
            label_value,
            "not ok!",
            &[
                "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
            ],
        ),
        (
            config_key,
            "a b",
            &[
                "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
            ],
        ),
        (config_key, "..", &["must not be '..'"]),
        (
            port_name,
            "-1--",
            &[
                "must contain at least one letter (a-z)",
                "must not contain consecutive hyphens",
                "must not begin or end with a hyphen",
            ],
        ),
        (path_segment, "..", &["may not be '..'"]),
        (path_segment, "a/%", &["may not contain '/'", "may not contain '%'"]),
        (ip, "1.2.3", &["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]),
        (ip, "01.2.3.4", &["must not have leading 0s"]),
        (ip, "::ffff:1.2.3.4", &["must not be an IPv4-mapped IPv6 address"]),
        (canonical_ip, "2001:DB8::1", &["must be in canonical form (\"2001:db8::1\")"]),
        (cidr, "10.0.0.0/33", &["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"]),
        (cidr, "10.0.0.1/8", &["must not have bits set beyond the prefix length"]),
        (
            percent,
            "x",
            &[
                "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
            ],
        ),
    ];
    for (check, name, want) in table {
        assert_eq!(&check(name), want, "{name}");
    }
    assert_eq!(dns1123_subdomain(&"x".repeat(254)), ["must be no more than 253 characters"]);
}

#[test]
fn prefixes_may_end_with_a_dash() {
    for (rule, name) in [(NameRule::Subdomain, "a-"), (NameRule::Label, "web-1-"), (NameRule::PathSegment, "..")] {
        assert_eq!(rule.check(name, true), Vec::<String>::new(), "{name}");
    }
    assert_eq!(NameRule::Label.check("-", true).len(), 1);
    assert_eq!(NameRule::Label.check("é-", true).len(), 0, "the character before the dash is masked with it");
}
