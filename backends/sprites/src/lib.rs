//! Sprites of Fly as a backend: a microVM of the service for each sandbox.
