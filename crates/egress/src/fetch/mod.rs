//! HTTP requests that this machine makes on behalf of components without a network: tools of a
//! bundle, or a server that downloads a bundle. They go only to the hosts of a
//! [`Policy`](crate::Policy).
//!
//! ```text
//! request   FetchRequest: parsing and validation of a request
//! error     FetchError
//! sent_body body of a request, counted when it is sent
//! client    FetchClient: one request to one host whose name is looked up once, without redirects
//! redirect  follows redirects: each step is decided anew
//! fetcher   Fetcher: a thread that makes requests for blocking callers, within their budgets
//! account   FetchAccount: decisions and bytes of a group of callers
//! ```
//!
//! Nothing is added to a request that its author has not written: no cookies, no credentials, no
//! proxy of this machine.

pub(crate) mod account;
pub(crate) mod client;
pub(crate) mod error;
pub(crate) mod fetcher;
mod redirect;
pub(crate) mod request;
mod sent_body;
