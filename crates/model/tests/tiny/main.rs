//! Tiny models of each architecture, built in code: against transformers, against themselves, and damaged.

mod blocks;
mod files;
mod fixture;
mod rows;
mod states;
mod transformers;
