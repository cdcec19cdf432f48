//! The state directory: where everything of every sandbox lies, and the locks that are the truth about it.

pub(crate) mod ancestors;
pub(crate) mod cleanup;
pub(crate) mod layout;
pub(crate) mod sandbox_dir;
pub(crate) mod slot;
pub(crate) mod status;
pub(crate) mod trash;
