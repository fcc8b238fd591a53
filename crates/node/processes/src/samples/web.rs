//! A web server: the files of a directory, or a page that says where it comes from.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{
    Given,
    http::{self, Request, Response},
};

/// Where images of web servers have their pages: who changes the image of a Deployment to this one need not change its mounts.
const PLACES: [&str; 4] = ["/usr/share/nginx/html", "/usr/local/apache2/htdocs", "/var/www/html", "/srv"];
const LARGEST: u64 = 64 << 20;

pub fn run(given: &Given) -> Result<(), String> {
    let site = Site::new(given)?;
    let listener = given.listen()?;
    http::serve(&listener, move |request| site.answer(request))
}

struct Site {
    dir: Option<PathBuf>,
    page: String,
}

impl Site {
    fn new(given: &Given) -> Result<Self, String> {
        let dir = match given.option("dir", "WEB_DIR") {
            Some(dir) => {
                let found = given.path(dir);
                if !found.is_dir() {
                    return Err(format!("there is no directory {dir}: mount one there, or leave --dir out"));
                }
                Some(found)
            }
            None => PLACES.map(|place| given.path(place)).into_iter().find(|place| {
                // Only what the container itself was given; the machine may have such directories, too.
                given.variable("SELVEDGE_ROOT").is_some() && place.is_dir()
            }),
        };
        let said = |name| given.variable(name).unwrap_or("?");
        let page = given.option("text", "WEB_TEXT").map(|text| format!("{text}\n")).unwrap_or_else(|| {
            format!(
                "pod {} on node {} of edge {}\n",
                said("SELVEDGE_POD"),
                said("SELVEDGE_NODE"),
                said("SELVEDGE_EDGE")
            )
        });
        Ok(Self { dir, page })
    }

    fn answer(&self, request: &Request) -> Response {
        if request.method != "GET" && request.method != "HEAD" {
            return Response::text("405 Method Not Allowed", "only GET and HEAD\n");
        }
        if request.path() == "/healthz" && !self.has_file("/healthz") {
            return Response::text("200 OK", "ok\n");
        }
        match &self.dir {
            None => Response::text("200 OK", self.page.clone()),
            Some(dir) => file(dir, request.path()).unwrap_or_else(|error| match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                    Response::text("404 Not Found", "not found\n")
                }
                _ => Response::text("500 Internal Server Error", format!("{error}\n")),
            }),
        }
    }

    fn has_file(&self, path: &str) -> bool {
        self.dir.as_ref().is_some_and(|dir| dir.join(path.trim_start_matches('/')).exists())
    }
}

fn file(dir: &Path, path: &str) -> io::Result<Response> {
    let path = decode(path);
    let mut found = dir.to_owned();
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        // What begins so is how volumes are kept, and `..` leads out.
        if part.starts_with("..") || part.contains('\0') {
            return Err(io::ErrorKind::NotFound.into());
        }
        found.push(part);
    }
    if found.is_dir() {
        found.push("index.html");
    }
    if fs::metadata(&found)?.len() > LARGEST {
        return Err(io::Error::other("the file is too large"));
    }
    let content_type = match found.extension().and_then(|end| end.to_str()) {
        Some("html" | "htm") => "text/html; charset=utf-8",
        Some("css") => "text/css",
        Some("js") => "text/javascript",
        Some("json") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("jpg" | "jpeg") => "image/jpeg",
        Some("txt" | "md") | None => "text/plain; charset=utf-8",
        Some(_) => "application/octet-stream",
    };
    Ok(Response { status: "200 OK", content_type, body: fs::read(found)? })
}

/// `%20` and so on; what is no such thing stays as it is.
fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut decoded, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(byte) = bytes.get(at) {
        let code = bytes.get(at + 1..at + 3).filter(|_| *byte == b'%');
        let code =
            code.and_then(|code| std::str::from_utf8(code).ok()).and_then(|code| u8::from_str_radix(code, 16).ok());
        decoded.push(code.unwrap_or(*byte));
        at += if code.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::{super::given, *};

    fn get(site: &Site, target: &str) -> (u16, String) {
        let text = format!("GET {target} HTTP/1.1\r\n\r\n");
        let response = site.answer(&Request::read(&mut text.as_bytes()).unwrap().unwrap());
        (response.status[..3].parse().unwrap(), String::from_utf8(response.body).unwrap())
    }

    #[test]
    fn files_as_a_volume_has_them_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        let html = root.join("usr/share/nginx/html");
        fs::create_dir_all(html.join("..data/sub")).unwrap();
        fs::write(html.join("..data/index.html"), "hello").unwrap();
        fs::write(html.join("..data/a b.txt"), "blank").unwrap();
        fs::write(root.join("secret"), "no").unwrap();
        std::os::unix::fs::symlink("..data/index.html", html.join("index.html")).unwrap();
        std::os::unix::fs::symlink("..data/a b.txt", html.join("a b.txt")).unwrap();
        let root = root.to_str().unwrap();
        for args in [&[][..], &["--dir", "/usr/share/nginx/html"]] {
            let site = Site::new(&given(args, &[("SELVEDGE_ROOT", root)])).unwrap();
            for (target, expected) in [
                ("/", (200, "hello")),
                ("/index.html?x=1", (200, "hello")),
                ("/a%20b.txt", (200, "blank")),
                ("/..data/index.html", (404, "not found\n")),
                ("/../../../../secret", (404, "not found\n")),
                ("/%2e%2e/%2e%2e/secret", (404, "not found\n")),
                ("/index.html/x", (404, "not found\n")),
                ("/nothing", (404, "not found\n")),
                ("/%", (404, "not found\n")),
                ("/healthz", (200, "ok\n")),
            ] {
                assert_eq!(get(&site, target), (expected.0, expected.1.to_owned()), "{target}");
            }
        }
        assert!(Site::new(&given(&["--dir=/not/there"], &[("SELVEDGE_ROOT", root)])).is_err());
    }

    #[test]
    fn a_page_that_says_where_it_comes_from() {
        let env = [("SELVEDGE_POD", "default/web-1"), ("SELVEDGE_NODE", "florin"), ("SELVEDGE_EDGE", "florin")];
        let site = Site::new(&given(&[], &env)).unwrap();
        assert_eq!(get(&site, "/x"), (200, "pod default/web-1 on node florin of edge florin\n".into()));
        assert_eq!(get(&Site::new(&given(&["--text", "hi"], &[])).unwrap(), "/").1, "hi\n");
    }
}
