//! Servers with the contracts of services that sandboxes may run on; commands run for real, as the current user.

fn main() {}
