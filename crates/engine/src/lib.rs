//! The thread that owns model and scheduler.
