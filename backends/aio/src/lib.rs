//! AIO Sandbox as a backend: a directory in a container that somebody runs.
