mod explore;
mod random;
mod scenarios;
mod sharing;
mod world;
