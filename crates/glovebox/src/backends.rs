//! Backends of this program in addition to the built-in ones: one line each, in the order in which
//! help and completion list them.

use glovebox_aio::Aio;
use glovebox_confined::Confined;
use glovebox_sandbox::backend::Driver;
use glovebox_sprites::Sprites;

/// Returns the drivers of these backends.
pub fn standard_backends() -> Vec<Box<dyn Driver>> {
    vec![Box::new(Confined), Box::new(Sprites), Box::new(Aio)]
}
