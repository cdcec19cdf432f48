//! The backends of the program beside those that every program has: one line each, in the order of help and
//! completion.

use glovebox_aio::Aio;
use glovebox_confined::Confined;
use glovebox_sandbox::backend::Driver;
use glovebox_sprites::Sprites;

/// Lists them.
pub fn standard_backends() -> Vec<Box<dyn Driver>> {
    vec![Box::new(Confined), Box::new(Sprites), Box::new(Aio)]
}
