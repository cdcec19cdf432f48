//! The backends of this program beside those that every program has: one line each, in the order of help and
//! completion.

use glovebox_aio::Aio;
use glovebox_confined::Confined;
use glovebox_sandbox::backend;
use glovebox_sprites::Sprites;

/// Registers them. Comes before anything else is asked of the libraries.
pub(crate) fn register() {
    backend::register(vec![Box::new(Confined), Box::new(Sprites), Box::new(Aio)]);
}
