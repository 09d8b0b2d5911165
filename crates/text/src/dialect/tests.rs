//! Every syntax, every cut, every way in which an answer can keep to none.
