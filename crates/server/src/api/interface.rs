//! The web interface: the files that `cargo xtask web` builds from `web/`, carried by the program.
//!
//! Their names never change, so a browser asks each time whether they did (`ETag`). An address of no file and no route
//! is one of the interface's own when a browser asks for a page, and is answered with its only page.

use super::page;
use axum::response::{IntoResponse, Response};
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use std::sync::LazyLock;

/// A file of the interface.
struct Asset {
    path: &'static str,
    content_type: &'static str,
    bytes: &'static [u8],
}

macro_rules! asset {
    ($path:literal, $content_type:literal) => {
        Asset {
            path: concat!("/", $path),
            content_type: $content_type,
            bytes: include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/web-dist/", $path)),
        }
    };
}

/// The only page comes first.
static ASSETS: [Asset; 8] = [
    asset!("index.html", "text/html; charset=utf-8"),
    asset!("assets/app.js", "text/javascript; charset=utf-8"),
    asset!("assets/app.css", "text/css; charset=utf-8"),
    asset!("assets/terminal.js", "text/javascript; charset=utf-8"),
    asset!("assets/api-docs.js", "text/javascript; charset=utf-8"),
    asset!("theme.js", "text/javascript; charset=utf-8"),
    asset!("status-worker.js", "text/javascript; charset=utf-8"),
    asset!("favicon.svg", "image/svg+xml"),
];

/// An `ETag` of each.
static TAGS: LazyLock<[HeaderValue; ASSETS.len()]> = LazyLock::new(|| {
    ASSETS.each_ref().map(|asset| {
        let digest = blake3::hash(asset.bytes).to_hex();
        // Hexadecimal digits in quotes are a header value.
        HeaderValue::from_str(&format!("\"{}\"", &digest[..32]))
            .unwrap_or_else(|_| HeaderValue::from_static("\"\""))
    })
});

/// Answers what no route does: a file of the interface, its page, or that there is nothing.
pub(super) async fn answer(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    let is_read = matches!(method, Method::GET | Method::HEAD);
    match find(uri.path(), &headers).filter(|_| is_read) {
        Some(index) => send(index, &headers),
        None => page::not_found().into_response(),
    }
}

fn find(path: &str, headers: &HeaderMap) -> Option<usize> {
    if path == "/" {
        return Some(0);
    }
    if let Some(index) = ASSETS.iter().position(|asset| asset.path == path) {
        return Some(index);
    }
    let is_elsewhere = ["/api", "/health", "/assets"].iter().any(|room| {
        path.strip_prefix(room)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    (!is_elsewhere && wants_page(headers)).then_some(0)
}

/// Whether a browser asks for a page to show.
pub(super) fn wants_page(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html"))
}

fn send(index: usize, headers: &HeaderMap) -> Response {
    let (asset, tag) = (&ASSETS[index], TAGS[index].clone());
    let known = headers.get_all(IF_NONE_MATCH).iter();
    let mut known = known.filter_map(|value| value.to_str().ok());
    let is_known = known.any(|value| {
        let mut tags = value
            .split(',')
            .map(|one| one.trim().trim_start_matches("W/"));
        tags.any(|one| one.as_bytes() == tag.as_bytes())
    });
    let caching = [
        (ETAG, tag),
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    if is_known {
        return (StatusCode::NOT_MODIFIED, caching).into_response();
    }
    let content_type = [(CONTENT_TYPE, asset.content_type)];
    (caching, content_type, asset.bytes).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking_for_page() -> HeaderMap {
        let mut headers = HeaderMap::new();
        let accept = HeaderValue::from_static("text/html,application/xhtml+xml,*/*;q=0.8");
        headers.insert(ACCEPT, accept);
        headers
    }

    #[test]
    fn pages_are_for_browsers_and_never_below_the_api() {
        let (page, any) = (asking_for_page(), HeaderMap::new());
        assert_eq!(find("/", &any), Some(0));
        assert_eq!(find("/sessions/s-1/files/src/main.rs", &page), Some(0));
        assert_eq!(find("/apiary", &page), Some(0));
        assert_eq!(find("/api-docs", &page), Some(0));
        assert_eq!(find("/sessions/s-1", &any), None);
        for path in ["/api", "/api/nothing", "/health/x", "/assets/old.js"] {
            assert_eq!(find(path, &page), None, "{path}");
        }
    }

    #[test]
    fn the_page_names_only_files_that_are_carried() {
        let page = std::str::from_utf8(ASSETS[0].bytes).unwrap();
        let named: Vec<&str> = page
            .split(['"', '\''])
            .filter(|word| word.starts_with('/'))
            .collect();
        assert!(named.len() >= 4, "{named:?}");
        for path in named {
            assert!(ASSETS.iter().any(|asset| asset.path == path), "{path}");
        }
        // The content security policy lets neither run.
        assert!(!page.contains("<script>") && !page.contains("<style") && !page.contains("style="));
    }

    #[test]
    fn every_file_that_was_built_is_carried() {
        let built = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("web-dist");
        let mut found = 0;
        for (folder, prefix) in [(built.clone(), "/"), (built.join("assets"), "/assets/")] {
            for entry in std::fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_file() {
                    let path = format!("{prefix}{}", entry.file_name().display());
                    assert!(ASSETS.iter().any(|asset| asset.path == path), "{path}");
                    found += 1;
                }
            }
        }
        assert_eq!(found, ASSETS.len());
    }

    #[test]
    fn a_browser_that_has_the_file_gets_no_second_one() {
        let first = send(1, &HeaderMap::new());
        assert_eq!(first.status(), StatusCode::OK);
        let mut headers = HeaderMap::new();
        headers.insert(IF_NONE_MATCH, first.headers()[ETAG].clone());
        assert_eq!(send(1, &headers).status(), StatusCode::NOT_MODIFIED);
        assert_eq!(send(2, &headers).status(), StatusCode::OK);
    }
}
