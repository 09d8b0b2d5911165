mod explore;
mod random;
mod scenarios;
mod world;
