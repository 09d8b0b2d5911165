//! The primitives under mailbox and ring: the standard library's, or `loom`'s, which tries every interleaving of a test.

#[cfg(loom)]
pub(crate) use loom::sync::{Arc, Condvar, Mutex, MutexGuard, atomic};
#[cfg(not(loom))]
pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard, atomic};

use std::sync::PoisonError;

/// What these mutexes guard is whole between any two statements, so a panic elsewhere in a holder does not spoil it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
