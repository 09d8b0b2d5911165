//! The pure scheduler.
