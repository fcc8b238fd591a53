//! Links in HTML pages that come through a proxy. A page names paths of its own server; a reader finds them only behind the
//! path of the proxy. As upstream does, this changes attributes that hold URLs, and no scripts or styles.

use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use flow::body::{Body, BoxError};
use http::{HeaderMap, Response, header};
use http_body::Frame;
use http_body_util::BodyExt;

/// A tag that is longer is passed on as it is.
const LONGEST_TAG: usize = 16 << 10;
/// What is in these is text, not tags.
const RAW: [&str; 4] = ["script", "style", "textarea", "title"];

/// A link as it is seen through the proxy; `None` if it stays as it is.
type Link = Box<dyn Fn(&str) -> Option<String> + Send>;

/// Changes the links of an answer, if it is a page that can be read.
pub fn rewrite(response: Response<Body>, prefix: &str, link: Link) -> Response<Body> {
    let plain = prefix.bytes().all(|b| b.is_ascii_graphic() && !b"\"'<>&".contains(&b));
    if !plain || !is_page(response.headers()) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    // An answer to HEAD has none and says how long the page would be.
    if let Body::Passed(body) = body {
        parts.headers.remove(header::CONTENT_LENGTH);
        let page = Page { body: Some(body), reader: Reader::default(), link, rest: VecDeque::new() };
        return Response::from_parts(parts, Body::Passed(page.boxed_unsync()));
    }
    Response::from_parts(parts, body)
}

fn is_page(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok()).unwrap_or_default();
    let kind = text(header::CONTENT_TYPE).split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("text/html") && text(header::CONTENT_ENCODING).is_empty()
}

type Inner = http_body_util::combinators::UnsyncBoxBody<Bytes, BoxError>;

struct Page {
    body: Option<Inner>,
    reader: Reader,
    link: Link,
    rest: VecDeque<Frame<Bytes>>,
}

impl http_body::Body for Page {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        loop {
            if let Some(frame) = this.rest.pop_front() {
                return Poll::Ready(Some(Ok(frame)));
            }
            let Some(body) = this.body.as_mut() else { return Poll::Ready(None) };
            let frame = match Pin::new(body).poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(Some(Ok(frame))) => Some(frame),
                Poll::Ready(None) => None,
            };
            let made = match frame.map(Frame::into_data) {
                Some(Ok(data)) => this.reader.read(&data, &this.link),
                Some(Err(other)) => {
                    this.rest.extend([Frame::data(this.reader.end().into()), other]);
                    continue;
                }
                None => {
                    this.body = None;
                    this.reader.end()
                }
            };
            if !made.is_empty() {
                this.rest.push_back(Frame::data(made.into()));
            }
        }
    }
}

/// Reads a page piece by piece. What is not understood is passed on as it came.
#[derive(Default)]
struct Reader {
    kept: Vec<u8>,
    /// The element whose text is being read.
    raw: Option<&'static str>,
}

impl Reader {
    fn read(&mut self, data: &[u8], link: &Link) -> Vec<u8> {
        let mut page = std::mem::take(&mut self.kept);
        page.extend_from_slice(data);
        let (mut out, mut at) = (Vec::with_capacity(page.len() + 64), 0);
        while at < page.len() {
            let rest = &page[at..];
            let step = match self.raw {
                Some(name) => self.text(rest, name),
                None => self.markup(rest, link, &mut out),
            };
            match step {
                // Copied as it is.
                Step::Plain(length) => {
                    out.extend_from_slice(&rest[..length]);
                    at += length;
                }
                Step::Done(length) => at += length,
                Step::More if rest.len() > LONGEST_TAG => {
                    out.extend_from_slice(rest);
                    at = page.len();
                }
                Step::More => {
                    self.kept = rest.to_vec();
                    break;
                }
            }
        }
        out
    }

    /// What was kept because more could come.
    fn end(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.kept)
    }

    /// Text up to the end of its element.
    fn text(&mut self, rest: &[u8], name: &str) -> Step {
        let end = |at: &usize| {
            let tail = &rest[*at..];
            tail.len() > name.len() + 1
                && tail[1] == b'/'
                && tail[2..2 + name.len()].eq_ignore_ascii_case(name.as_bytes())
        };
        let mut open = (0..rest.len()).filter(|at| rest[*at] == b'<');
        if let Some(at) = open.clone().find(end) {
            self.raw = None;
            return if at == 0 { Step::Plain(1) } else { Step::Plain(at) };
        }
        // The last one may be the beginning of its end.
        match open.find(|at| rest.len() - at < name.len() + 2) {
            Some(0) => Step::More,
            Some(at) => Step::Plain(at),
            None => Step::Plain(rest.len()),
        }
    }

    fn markup(&mut self, rest: &[u8], link: &Link, out: &mut Vec<u8>) -> Step {
        match rest.iter().position(|b| *b == b'<') {
            None => return Step::Plain(rest.len()),
            Some(0) => {}
            Some(at) => return Step::Plain(at),
        }
        if rest.starts_with(b"<!--") {
            let end = rest.windows(3).skip(2).position(|three| three == b"-->");
            return end.map_or(Step::More, |at| Step::Plain(at + 5));
        }
        match rest.get(1) {
            None => Step::More,
            Some(b) if b.is_ascii_alphabetic() => self.tag(rest, link, out),
            Some(b'!') if rest.len() < 4 => Step::More,
            Some(_) => Step::Plain(1),
        }
    }

    fn tag(&mut self, rest: &[u8], link: &Link, out: &mut Vec<u8>) -> Step {
        let Some(tag) = Tag::parse(rest) else { return Step::More };
        let name = String::from_utf8_lossy(&rest[1..tag.name]).to_ascii_lowercase();
        let known = links_of(&name);
        let mut copied = 0;
        for (attribute, value) in &tag.attributes {
            let attribute = String::from_utf8_lossy(&rest[attribute.clone()]).to_ascii_lowercase();
            let changed =
                known.contains(&attribute.as_str()).then(|| std::str::from_utf8(&rest[value.clone()]).ok()).flatten();
            if let Some(changed) = changed.and_then(link) {
                out.extend_from_slice(&rest[copied..value.start]);
                out.extend_from_slice(changed.as_bytes());
                copied = value.end;
            }
        }
        out.extend_from_slice(&rest[copied..tag.end]);
        self.raw = RAW.into_iter().find(|raw| *raw == name);
        Step::Done(tag.end)
    }
}

enum Step {
    /// The number of bytes that are passed on unchanged.
    Plain(usize),
    /// The number of bytes that are written already.
    Done(usize),
    /// It cannot be understood yet.
    More,
}

/// Where the parts of a tag are.
struct Tag {
    name: usize,
    end: usize,
    attributes: Vec<(std::ops::Range<usize>, std::ops::Range<usize>)>,
}

impl Tag {
    /// `None` if its end is not there.
    fn parse(text: &[u8]) -> Option<Self> {
        let until = |from: usize, stop: &dyn Fn(u8) -> bool| {
            text[from..].iter().position(|b| stop(*b)).map(|length| from + length)
        };
        let is_space = |b: u8| b.is_ascii_whitespace();
        let name = until(1, &|b| is_space(b) || b == b'/' || b == b'>')?;
        let (mut at, mut attributes) = (name, Vec::new());
        loop {
            at = until(at, &|b| !is_space(b) && b != b'/')?;
            if text[at] == b'>' {
                return Some(Self { name, end: at + 1, attributes });
            }
            // An equals sign at its beginning is a part of a name.
            let end = until(at + 1, &|b| is_space(b) || b == b'/' || b == b'>' || b == b'=')?;
            let attribute = at..end;
            at = until(end, &|b| !is_space(b))?;
            if text[at] != b'=' {
                continue;
            }
            at = until(at + 1, &|b| !is_space(b))?;
            let value = match text[at] {
                quote @ (b'"' | b'\'') => at + 1..until(at + 1, &|b| b == quote)?,
                _ => at..until(at, &|b| is_space(b) || b == b'>')?,
            };
            at = value.end + usize::from(matches!(text[value.end], b'"' | b'\''));
            attributes.push((attribute, value));
        }
    }
}

/// Attributes of an element that hold a URL.
fn links_of(element: &str) -> &'static [&'static str] {
    match element {
        "a" | "area" | "base" | "link" => &["href"],
        "audio" | "embed" | "script" | "source" => &["src"],
        "frame" | "iframe" => &["longdesc", "src"],
        "img" => &["longdesc", "src", "usemap"],
        "input" => &["src", "usemap", "formaction"],
        "video" => &["poster", "src"],
        "object" => &["classid", "codebase", "data", "usemap"],
        "blockquote" | "del" | "ins" | "q" => &["cite"],
        "applet" => &["codebase"],
        "body" => &["background"],
        "button" => &["formaction"],
        "command" => &["icon"],
        "form" => &["action"],
        "head" => &["profile"],
        "html" => &["manifest"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(page: &str, pieces: usize) -> String {
        let link: Link = Box::new(|link| link.starts_with('/').then(|| format!("/proxy{link}")));
        let mut reader = Reader::default();
        let mut out = Vec::new();
        for piece in page.as_bytes().chunks(pieces) {
            out.extend(reader.read(piece, &link));
        }
        out.extend(reader.end());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn links_lead_through_the_proxy_however_the_page_is_cut() {
        for (page, expected) in [
            (r#"<a href="/rewriteme">test</a>"#, r#"<a href="/proxy/rewriteme">test</a>"#),
            ("<A HREF=/x>y</A>", "<A HREF=/proxy/x>y</A>"),
            ("<img alt='/a>' src='/b?c=d&amp;e'/>", "<img alt='/a>' src='/proxy/b?c=d&amp;e'/>"),
            (r#"<img src = "/b" usemap="/c">"#, r#"<img src = "/proxy/b" usemap="/proxy/c">"#),
            (
                r#"<script src="/a.js">'<a href="/x">'</script><a href="/y">"#,
                r#"<script src="/proxy/a.js">'<a href="/x">'</script><a href="/proxy/y">"#,
            ),
            ("<style>a{b:url(/c)}</STYLE ><a href=/y>", "<style>a{b:url(/c)}</STYLE ><a href=/proxy/y>"),
            ("<!-- <a href=/x> --><a href=/y>", "<!-- <a href=/x> --><a href=/proxy/y>"),
            ("<!doctype html><p>1 < 2</p><a href='/'>", "<!doctype html><p>1 < 2</p><a href='/proxy/'>"),
            // What is no link, or leads elsewhere, stays.
            ("<p href=/x data-href=/y>", "<p href=/x data-href=/y>"),
            ("<a href='x'><a href='https://elsewhere/'><a href>", "<a href='x'><a href='https://elsewhere/'><a href>"),
            // What never ends is passed on.
            ("<a href='/x", "<a href='/x"),
            ("a <", "a <"),
            ("<!--", "<!--"),
            ("<script>x</scr", "<script>x</scr"),
        ] {
            for pieces in 1..=page.len() {
                assert_eq!(through(page, pieces), expected, "in pieces of {pieces}");
            }
        }
    }

    #[test]
    fn endless_tags_are_not_waited_for() {
        let page = format!("<a href='/{}", "x".repeat(LONGEST_TAG * 2));
        assert_eq!(through(&page, 4096), page);
    }

    #[test]
    fn only_plain_pages_are_changed() {
        let headers = |kind: &'static str, encoding: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
            if !encoding.is_empty() {
                headers.insert(header::CONTENT_ENCODING, http::HeaderValue::from_static(encoding));
            }
            headers
        };
        assert!(is_page(&headers("text/html; charset=utf-8", "")) && is_page(&headers("Text/HTML", "")));
        assert!(!is_page(&headers("text/plain", "")) && !is_page(&headers("text/html", "gzip")));
        assert!(!is_page(&HeaderMap::new()));
    }
}
