//! The HTTP APIs.
