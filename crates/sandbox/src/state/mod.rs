//! The state directory: files of all sandboxes, and the locks that decide which of them live.

pub(crate) mod ancestors;
pub(crate) mod cleanup;
pub(crate) mod layout;
pub(crate) mod sandbox_dir;
pub(crate) mod slot;
pub(crate) mod status;
pub(crate) mod trash;
