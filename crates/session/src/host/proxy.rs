//! Variables that tell programs of the sandbox's proxy.
//!
//! Nothing depends on them where names are looked up as usual: a program that knows of no proxy reaches the same hosts.
//! Those that do ask by name, also where their own way to look names up leads nowhere.
//!
//! `http_proxy` is not among them: what is refused there is an answer (403) that many programs take for a page, where a
//! name that does not exist makes them fail. Nor is `ALL_PROXY`: with a `socks5h:` address there, clients that were
//! installed without a library for it end at once (httpx, and with it the SDKs of model providers).

use glovebox_spec::PROXY;

/// The variables for commands in a sandbox of this host name, whose network is of listed hosts.
pub fn proxy_variables(hostname: &str) -> Vec<(String, String)> {
    let proxy = format!("http://{PROXY}");
    // Servers of the sandbox itself.
    let own = format!("localhost,127.0.0.1,::1,{hostname}");
    // Some programs read small letters only, some capitals only.
    [
        ("https_proxy", &proxy),
        ("HTTPS_PROXY", &proxy),
        ("no_proxy", &own),
        ("NO_PROXY", &own),
    ]
    .map(|(name, value)| (name.to_owned(), value.clone()))
    .to_vec()
}
