//! Server with one client of it.

use glovebox_sandbox::Credential;
use glovebox_sprites::{BaseUrl, Client, NewSprite, labels};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::ContractServer;

/// Id of the state directory that the Sprites of a test belong to.
pub(crate) const OWNER: &str = "00112233445566aa";
/// Token of a test, which must not appear in any text.
pub(crate) const TOKEN: &str = "contract/1/planted-6f1d";

/// Server of one test.
pub(crate) struct Service {
    pub(crate) server: ContractServer,
    pub(crate) client: Client,
    dir: tempfile::TempDir,
}

impl Service {
    pub(crate) fn start(options: &[&str]) -> Self {
        Self::start_with_tokens(options, TOKEN, &[TOKEN])
    }

    /// Starts a server that accepts `token`, and a client that uses the tokens `shown` one after
    /// the other.
    pub(crate) fn start_with_tokens(options: &[&str], token: &str, shown: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut arguments = vec!["--token", token, "--dir", dir.path().to_str().unwrap()];
        arguments.extend(options);
        let server = ContractServer::start("sprites", &arguments);
        let client = client(server.url(), shown);
        Self {
            server,
            client,
            dir,
        }
    }

    /// Creates a Sprite.
    pub(crate) fn create(&self, name: &str) {
        let wanted = NewSprite {
            name,
            owner: OWNER,
            labels: &labels(OWNER, 0),
            is_known: false,
        };
        let created = self.client.create_or_get(&wanted, soon()).unwrap();
        assert!(created.is_new);
    }

    /// Returns the home directory of a Sprite.
    pub(crate) fn home(&self, name: &str) -> PathBuf {
        self.dir.path().join("sprites").join(name).join("home")
    }

    /// Returns the requests that arrived, as `METHOD TARGET STATUS`.
    pub(crate) fn requests(&self) -> Vec<String> {
        let journal = self.server.journal();
        assert_eq!(journal["refusals"], serde_json::json!([]));
        let requests = journal["requests"].as_array().unwrap();
        let texts = requests
            .iter()
            .map(|line| line.as_str().unwrap().to_owned());
        texts.collect()
    }
}

/// Creates a client that uses the tokens one after the other, and then stays with the last.
pub(crate) fn client(url: &str, tokens: &[&str]) -> Client {
    let tokens: Vec<Credential> = tokens
        .iter()
        .map(|text| Credential::new(text).unwrap())
        .collect();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let source = move || {
        let at = next.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Ok(tokens[at.min(tokens.len() - 1)].clone())
    };
    Client::new(BaseUrl::parse(url).unwrap(), Arc::new(source)).unwrap()
}

/// Returns a deadline that a busy machine does not reach.
pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_mins(1)
}
