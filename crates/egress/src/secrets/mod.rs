//! Secrets that programs use without having them: values are read outside, replace placeholders in
//! requests, and are removed from responses.

pub(crate) mod authority;
pub(crate) mod interceptor;
pub(crate) mod java_truststore;
pub(crate) mod scrub;
pub(crate) mod scrubbed_body;
pub(crate) mod searched_body;
pub(crate) mod secret;
pub(crate) mod swap;
