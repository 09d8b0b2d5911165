mod explore;
mod scenarios;
mod world;
