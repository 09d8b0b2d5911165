//! The operations of an LLM and the CPU backend that runs them.
