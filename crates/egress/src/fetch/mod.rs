//! HTTP requests that this machine makes on behalf of what has no network itself: a tool of a bundle, a server that is
//! told where a bundle is. They go to the hosts of a [`Policy`](crate::Policy) and to no others.
//!
//! ```text
//! request   what is asked for; what is refused before anybody is asked
//! error     why there is no answer
//! sent_body the body of a request, counted when it goes out
//! client    FetchClient: one request to one host, whose name is looked up once; nothing is followed
//! redirect  where an answer leads: each step is decided anew
//! fetcher   Fetcher: makes requests on a thread of its own, for callers that block, within a budget of each
//! account   what became of the requests of callers that belong together, for accounts that are kept elsewhere
//! ```
//!
//! Nothing is added to a request that its author has not written: no cookies, no credentials, no proxy of this machine.

pub(crate) mod account;
pub(crate) mod client;
pub(crate) mod error;
pub(crate) mod fetcher;
mod redirect;
pub(crate) mod request;
mod sent_body;
