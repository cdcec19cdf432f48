//! Environment variables that name a proxy of this machine.

use serde::{Deserialize, Serialize};

/// Environment variable that names the machine's proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ProxyVariable {
    /// `https_proxy`.
    #[serde(rename = "https_proxy")]
    HttpsLower,
    /// `HTTPS_PROXY`.
    #[serde(rename = "HTTPS_PROXY")]
    HttpsUpper,
    /// `http_proxy`.
    #[serde(rename = "http_proxy")]
    HttpLower,
    /// `HTTP_PROXY`.
    #[serde(rename = "HTTP_PROXY")]
    HttpUpper,
    /// `all_proxy`.
    #[serde(rename = "all_proxy")]
    AllLower,
    /// `ALL_PROXY`.
    #[serde(rename = "ALL_PROXY")]
    AllUpper,
}

impl ProxyVariable {
    /// Variables for TLS and other protocols, in order of precedence: the first that is set counts.
    pub(crate) const FOR_TUNNELS: [Self; 4] = [
        Self::HttpsLower,
        Self::HttpsUpper,
        Self::AllLower,
        Self::AllUpper,
    ];
    /// Variables for HTTP without TLS, in order of precedence.
    pub(crate) const FOR_HTTP: [Self; 4] = [
        Self::HttpLower,
        Self::HttpUpper,
        Self::AllLower,
        Self::AllUpper,
    ];

    /// Returns the name of the variable.
    pub const fn name(self) -> &'static str {
        match self {
            Self::HttpsLower => "https_proxy",
            Self::HttpsUpper => "HTTPS_PROXY",
            Self::HttpLower => "http_proxy",
            Self::HttpUpper => "HTTP_PROXY",
            Self::AllLower => "all_proxy",
            Self::AllUpper => "ALL_PROXY",
        }
    }
}
