//! Web interface: the files that `cargo xtask web` builds from `web/`, embedded in the program.
//!
//! File names never change, so browsers revalidate each file (`ETag`). If a browser asks for a page
//! at an address that is neither a file nor a route, the address belongs to the interface, and the
//! response is its only page.

use super::page;
use crate::base_path::BasePath;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use std::sync::Arc;

/// An embedded file of the interface.
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

/// Element of the page that tells the interface the base path.
const BASE_ELEMENT: &str = "<meta name=\"base-path\" content=\"\"";

/// The embedded files. The page comes first.
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

/// Files of the interface as one server sends them, each with an `ETag`.
#[derive(Debug)]
pub(crate) struct Interface {
    /// The page, with its links below the server's base path.
    page: Bytes,
    tags: [HeaderValue; ASSETS.len()],
}

impl Interface {
    /// Creates the interface of a server below `base`.
    pub(crate) fn new(base: &BasePath) -> Self {
        // The built page has relative links, which would be wrong at an address with several
        // segments.
        let page = String::from_utf8_lossy(ASSETS[0].bytes)
            .replace("=\"./", &format!("=\"{base}/"))
            .replace(
                BASE_ELEMENT,
                &BASE_ELEMENT.replace("\"\"", &format!("\"{base}\"")),
            );
        let page = Bytes::from(page.into_bytes());
        let tags = std::array::from_fn(|index| {
            tag(if index == 0 {
                &page
            } else {
                ASSETS[index].bytes
            })
        });
        Self { page, tags }
    }

    fn send(&self, index: usize, headers: &HeaderMap) -> Response {
        let (asset, tag) = (&ASSETS[index], self.tags[index].clone());
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
        let bytes = match index {
            0 => self.page.clone(),
            _ => Bytes::from_static(asset.bytes),
        };
        (caching, content_type, bytes).into_response()
    }
}

fn tag(bytes: &[u8]) -> HeaderValue {
    let digest = blake3::hash(bytes).to_hex();
    // A quoted string of hexadecimal digits is a valid header value.
    HeaderValue::from_str(&format!("\"{}\"", &digest[..32]))
        .unwrap_or_else(|_| HeaderValue::from_static("\"\""))
}

/// Responds to requests that match no route: with a file of the interface, its page, or an error.
pub(super) async fn answer(
    State(interface): State<Arc<Interface>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let is_read = matches!(method, Method::GET | Method::HEAD);
    match find(uri.path(), &headers).filter(|_| is_read) {
        Some(index) => interface.send(index, &headers),
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

/// Returns true if a browser asks for a page to show.
pub(super) fn wants_page(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html"))
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
        for base in ["", "/box/a"] {
            let interface = Interface::new(&base.parse().unwrap_or_default());
            let page = std::str::from_utf8(&interface.page).unwrap();
            let named: Vec<&str> = page
                .split(['"', '\''])
                .filter(|word| word.starts_with('/') && *word != base)
                .collect();
            assert!(named.len() >= 4, "{named:?}");
            for path in named {
                let below = path.strip_prefix(base).unwrap();
                assert!(ASSETS.iter().any(|asset| asset.path == below), "{path}");
            }
            assert!(page.contains(&format!("name=\"base-path\" content=\"{base}\"")));
            // The content security policy blocks inline scripts and styles.
            assert!(
                !page.contains("<script>") && !page.contains("<style") && !page.contains("style=")
            );
        }
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
        let interface = Interface::new(&BasePath::default());
        let send = |index, headers: &HeaderMap| interface.send(index, headers);
        let first = send(1, &HeaderMap::new());
        assert_eq!(first.status(), StatusCode::OK);
        let mut headers = HeaderMap::new();
        headers.insert(IF_NONE_MATCH, first.headers()[ETAG].clone());
        assert_eq!(send(1, &headers).status(), StatusCode::NOT_MODIFIED);
        assert_eq!(send(2, &headers).status(), StatusCode::OK);
    }
}
