//! Levels, lifts and slots.
