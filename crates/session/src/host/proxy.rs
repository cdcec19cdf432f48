//! Variables that announce the sandbox's proxy to programs.
//!
//! Nothing depends on them where name lookup works: a program that ignores the proxy reaches the
//! same hosts. A program that uses it asks by host name, which works even if its own resolver
//! fails.
//!
//! `http_proxy` is not set: the proxy refuses with status 403, which many programs take for a page,
//! while a failed name lookup makes them fail. `ALL_PROXY` is not set either: with a `socks5h:`
//! address, clients without a SOCKS library fail at once (httpx, and with it the SDKs of model
//! providers).

use glovebox_spec::PROXY;

/// Returns the variables for commands in a sandbox of this host name with `--net egress`.
pub fn proxy_variables(hostname: &str) -> Vec<(String, String)> {
    let proxy = format!("http://{PROXY}");
    // Servers of the sandbox itself are reached directly.
    let own = format!("localhost,127.0.0.1,::1,{hostname}");
    // Some programs read only the lower-case name, some only the upper-case name.
    [
        ("https_proxy", &proxy),
        ("HTTPS_PROXY", &proxy),
        ("no_proxy", &own),
        ("NO_PROXY", &own),
    ]
    .map(|(name, value)| (name.to_owned(), value.clone()))
    .to_vec()
}
