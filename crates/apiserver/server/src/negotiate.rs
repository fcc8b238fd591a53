//! Content types: what a client sends and what it accepts. Pure.

use schema::status::{Result, Status};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    Yaml,
    Protobuf,
}

/// The shape in which an object or list is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Object,
    Table,
    Partial,
    /// A list of partial objects; asked of a single object it is refused.
    PartialList,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accept {
    pub format: Format,
    pub shape: Shape,
    /// The client asked for `;pretty=1`-like output through the query or is a browser: kept for JSON only.
    pub pretty: bool,
}

impl Accept {
    pub const JSON: Self = Self { format: Format::Json, shape: Shape::Object, pretty: false };
}

impl Format {
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    fn of(media_type: &str) -> Option<Self> {
        match media_type {
            "application/json" => Some(Self::Json),
            "application/yaml" => Some(Self::Yaml),
            "application/vnd.kubernetes.protobuf" => Some(Self::Protobuf),
            _ => None,
        }
    }

    /// Of a request body. No content type means JSON, as upstream takes it.
    pub fn of_body(content_type: &str) -> Result<Self> {
        let media_type = media_type(content_type);
        match media_type.as_str() {
            "" => Ok(Self::Json),
            other => Self::of(other).ok_or_else(|| unsupported(content_type)),
        }
    }
}

pub fn media_type(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

fn unsupported(_content_type: &str) -> Status {
    Status::unsupported_media_type(format!(
        "the body of the request was in an unknown format - accepted media types include: {}",
        "application/json, application/yaml, application/vnd.kubernetes.protobuf"
    ))
}

/// What the server may offer for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// JSON, YAML, protobuf; also as Table and partial metadata.
    Objects,
    /// The same for a list of what can be watched.
    List,
    /// The same for what has no Table form, such as reviews.
    Tableless,
    /// The same without protobuf (custom resources).
    CustomObjects,
    /// Watch streams have no YAML.
    Watch,
    CustomWatch,
}

impl Offer {
    fn takes(self, format: Format) -> bool {
        !matches!(
            (self, format),
            (Self::CustomObjects | Self::CustomWatch, Format::Protobuf)
                | (Self::Watch | Self::CustomWatch, Format::Yaml)
        )
    }

    fn refusal(self) -> Status {
        let list = match self {
            // Upstream names all that it has, whether or not a custom resource has it.
            Self::Objects | Self::List | Self::Tableless | Self::CustomObjects => {
                "application/json, application/yaml, application/vnd.kubernetes.protobuf"
            }
            Self::Watch | Self::CustomWatch => {
                "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
            }
        };
        Status::not_acceptable(format!("only the following media types are accepted: {list}"))
    }
}

/// Chooses from an Accept header: the first clause that can be served, the highest `q` first.
pub fn accept(header: &str, offer: Offer) -> Result<Accept> {
    if header.trim().is_empty() {
        return Ok(Accept::JSON);
    }
    let mut clauses: Vec<(f32, &str)> = header
        .split(',')
        .map(|clause| {
            let q = clause.split(';').filter_map(|p| p.trim().strip_prefix("q=")).next();
            (q.and_then(|q| q.parse().ok()).unwrap_or(1.0), clause.trim())
        })
        .collect();
    clauses.sort_by(|a, b| b.0.total_cmp(&a.0));
    if !matches!(offer, Offer::CustomObjects | Offer::CustomWatch) {
        // Upstream's router refuses what no handler of the path could ever answer. It knows whole names only.
        let known = |clause: &str| {
            let media = clause.split(';').next().unwrap_or_default().trim();
            media == "*/*" || Format::of(media).is_some()
        };
        if !clauses.iter().any(|(_, clause)| known(clause)) {
            let streams = match offer {
                Offer::List | Offer::Watch => {
                    ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
                }
                _ => "",
            };
            return Err(Status::not_acceptable(format!(
                "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
                 application/vnd.kubernetes.protobuf{streams}"
            ))
            .with_causes(Vec::new()));
        }
    }
    clauses.iter().find_map(|(_, clause)| served(clause, offer)).ok_or_else(|| {
        // A watch is first asked as a list would be, and only then whether it can be a stream.
        let as_list = match offer {
            Offer::Watch => Offer::List,
            Offer::CustomWatch => Offer::CustomObjects,
            other => other,
        };
        let fits = clauses.iter().any(|(_, clause)| served(clause, as_list).is_some());
        if fits { offer.refusal() } else { as_list.refusal() }
    })
}

fn served(clause: &str, offer: Offer) -> Option<Accept> {
    let mut parts = clause.split(';').map(str::trim);
    let media = parts.next()?.to_ascii_lowercase();
    let format = match media.as_str() {
        "*/*" | "application/*" => Format::Json,
        other => Format::of(other)?,
    };
    let (mut kind, mut group, mut version, mut pretty, mut stream) = ("", "", "", false, "");
    for part in parts {
        match part.split_once('=') {
            Some(("as", value)) => kind = value,
            Some(("g", value)) => group = value,
            Some(("v", value)) => version = value,
            Some(("pretty", value)) => pretty = value == "1" || value == "true",
            Some(("stream", value)) => stream = value,
            _ => {}
        }
    }
    let shape = match kind {
        "" => Shape::Object,
        "Table" | "PartialObjectMetadata" | "PartialObjectMetadataList"
            if group == "meta.k8s.io" && matches!(version, "v1" | "v1beta1") =>
        {
            match kind {
                "Table" => Shape::Table,
                "PartialObjectMetadata" => Shape::Partial,
                _ => Shape::PartialList,
            }
        }
        _ => return None,
    };
    let fits = match (shape, format) {
        (Shape::Table, Format::Protobuf) => false,
        (Shape::Table, _) if offer == Offer::Tableless => false,
        // Partial metadata is the server's own kind: it goes in protobuf for custom resources too.
        (Shape::Partial | Shape::PartialList, Format::Protobuf) => true,
        _ => offer.takes(format),
    };
    let fits = fits && matches!(stream, "" | "watch");
    fits.then_some(Accept { format, shape, pretty })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_what_they_get() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        for (header, format, shape) in [
            ("", Format::Json, Shape::Object),
            ("*/*", Format::Json, Shape::Object),
            ("application/yaml", Format::Yaml, Shape::Object),
            ("application/vnd.kubernetes.protobuf,application/json", Format::Protobuf, Shape::Object),
            (table, Format::Json, Shape::Table),
            ("application/json;as=Table;v=v9;g=meta.k8s.io,application/yaml", Format::Yaml, Shape::Object),
            ("application/json;q=0.1,application/yaml;q=0.9", Format::Yaml, Shape::Object),
            ("text/html, application/json", Format::Json, Shape::Object),
        ] {
            let got = accept(header, Offer::Objects).unwrap();
            assert_eq!((got.format, got.shape), (format, shape), "{header}");
        }
        assert_eq!(accept("text/html", Offer::Objects).unwrap_err().code, 406);
        assert_eq!(accept("application/*", Offer::Objects).unwrap_err().code, 406);
        assert!(accept("application/json;q=0", Offer::Objects).is_ok());
        let streams = accept("text/csv", Offer::List).unwrap_err().message;
        assert!(streams.ends_with("application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"));
        let table = "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io";
        assert_eq!(accept(table, Offer::Objects).unwrap_err().code, 406);
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        assert_eq!(accept(table, Offer::Tableless).unwrap_err().code, 406);
        let fallback = accept(&format!("{table},application/json"), Offer::Tableless).unwrap();
        assert_eq!(fallback.shape, Shape::Object);
        let stream = accept("application/json;stream=frob", Offer::Watch).unwrap_err().message;
        assert!(stream.ends_with("application/yaml, application/vnd.kubernetes.protobuf"), "{stream}");
        assert_eq!(accept("application/yaml", Offer::Watch).unwrap_err().code, 406);
        assert_eq!(accept("application/vnd.kubernetes.protobuf", Offer::CustomObjects).unwrap_err().code, 406);
        let fallback = accept("application/vnd.kubernetes.protobuf,application/json", Offer::CustomObjects).unwrap();
        assert_eq!(fallback.format, Format::Json);
    }
}
