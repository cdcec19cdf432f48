//! Values that programs use and never have: read outside, put in the place of placeholders, taken out of what comes back.

pub(crate) mod authority;
pub(crate) mod interceptor;
pub(crate) mod java_truststore;
pub(crate) mod scrub;
pub(crate) mod scrubbed_body;
pub(crate) mod searched_body;
pub(crate) mod secret;
pub(crate) mod swap;
