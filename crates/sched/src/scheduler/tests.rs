mod explore;
