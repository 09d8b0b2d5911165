//! The scheduler as a whole: exploration, known failures of others, random logs, sharing.

mod explore;
mod random;
mod scenarios;
mod sharing;
mod states;
mod world;
