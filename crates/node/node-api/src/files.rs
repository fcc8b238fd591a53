//! `/logs`: the files that containers wrote, of pods that are gone too.

use std::{
    io,
    path::{Component, Path, PathBuf},
};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use tokio::{io::AsyncReadExt, sync::mpsc};

use crate::answer::{self, Body};

/// Entries of a directory that are shown.
const MOST: usize = 10_000;
const BLOCK: usize = 64 << 10;

pub async fn answer(root: &Path, asked: &str) -> Response<Body> {
    let not_found = || answer::text(StatusCode::NOT_FOUND, "404 page not found\n");
    let Some(path) = below(root, asked) else { return not_found() };
    let root = root.to_owned();
    let found = tasks::spawn_blocking("find-log", move || look(&root, &path)).await.map_err(io::Error::other);
    match found.and_then(|found| found) {
        Ok(Found::File(file)) => send(file),
        Ok(Found::Directory(_)) if !asked.is_empty() && !asked.ends_with('/') => {
            let name = asked.rsplit('/').next().unwrap_or_default();
            let mut response = answer::text(StatusCode::MOVED_PERMANENTLY, "");
            if let Ok(location) = HeaderValue::from_str(&format!("{name}/")) {
                response.headers_mut().insert(header::LOCATION, location);
            }
            response
        }
        Ok(Found::Directory(names)) => {
            let link = |name: &String| {
                let name = name.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&#34;");
                format!("<a href=\"{name}\">{name}</a>\n")
            };
            answer::html(format!("<pre>\n{}</pre>\n", names.iter().map(link).collect::<String>()))
        }
        Err(_) => not_found(),
    }
}

/// Names only: nothing that leads out.
fn below(root: &Path, asked: &str) -> Option<PathBuf> {
    let inside = Path::new(asked).components().all(|part| matches!(part, Component::Normal(_)));
    (inside && !asked.contains('\0') && !asked.starts_with('/')).then(|| root.join(asked))
}

enum Found {
    File(std::fs::File),
    Directory(Vec<String>),
}

/// Links that lead out are not followed: containers may write here.
fn look(root: &Path, path: &Path) -> io::Result<Found> {
    let path = path.canonicalize()?;
    if !path.starts_with(root.canonicalize()?) {
        return Err(io::ErrorKind::NotFound.into());
    }
    let kind = path.metadata()?.file_type();
    if kind.is_file() {
        return std::fs::File::open(path).map(Found::File);
    }
    if !kind.is_dir() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let mut names: Vec<String> = std::fs::read_dir(path)?
        .take(MOST)
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let slash = if entry.file_type().ok()?.is_dir() { "/" } else { "" };
            Some(format!("{}{slash}", entry.file_name().to_str()?))
        })
        .collect();
    names.sort();
    Ok(Found::Directory(names))
}

fn send(file: std::fs::File) -> Response<Body> {
    let (sender, receiver) = mpsc::channel(4);
    tasks::spawn_short("log-file", async move {
        let mut file = tokio::fs::File::from_std(file);
        let mut block = vec![0; BLOCK];
        loop {
            let piece = match file.read(&mut block).await {
                Ok(0) => return,
                Ok(read) => Ok(Bytes::copy_from_slice(&block[..read])),
                Err(error) => Err(error),
            };
            let is_last = piece.is_err();
            if sender.send(piece).await.is_err() || is_last {
                return;
            }
        }
    });
    answer::stream("text/plain; charset=utf-8", receiver)
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    async fn ask(root: &Path, path: &str) -> (u16, String) {
        let response = answer(root, path).await;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn only_what_is_below() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("logs");
        std::fs::create_dir_all(root.join("default_web_1/app")).unwrap();
        std::fs::write(root.join("default_web_1/app/0.log"), "text").unwrap();
        std::fs::write(dir.path().join("secret"), "secret").unwrap();
        std::os::unix::fs::symlink(dir.path().join("secret"), root.join("link")).unwrap();
        assert_eq!(ask(&root, "default_web_1/app/0.log").await, (200, "text".into()));
        let (code, listing) = ask(&root, "").await;
        assert!(code == 200 && listing.contains("<a href=\"default_web_1/\">"), "{listing}");
        assert_eq!(ask(&root, "default_web_1").await.0, 301);
        assert_eq!(ask(&root, "default_web_1/").await.0, 200);
        for path in ["../secret", "link", "none", "/etc/passwd", "default_web_1/../../secret", "a\0b", "./x"] {
            assert_eq!(ask(&root, path).await.0, 404, "{path}");
        }
    }
}
