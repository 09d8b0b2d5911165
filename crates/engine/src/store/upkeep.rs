//! What can be done to objects without a model: checking them all, and bringing them down to a size.

use std::io;
use std::sync::Arc;

use super::block::{self, ObjectInfo, Reject};
use super::key::{self, Key, ObjectName};
use super::objects::{Held, Objects};
use super::secret::{self, Secret};
use super::state::{Shared, StoreConfig, StoreStats};

/// Tokens of a block where nobody says how many: it only scales what depth is worth.
const BLOCK_TOKENS: u32 = 16;

/// Reads every object and tells what it holds, or what is wrong with it: its bytes, that they are another object's, or that
/// `secret` does not open them.
///
/// # Errors
/// When the objects cannot be reached.
pub fn verify(
    objects: &dyn Objects,
    secret: Option<&Secret>,
    mut see: impl FnMut(&ObjectName, Result<ObjectInfo, Reject>),
) -> io::Result<()> {
    let mut object = Vec::new();
    for listed in objects.list()?.objects {
        match objects.get(&listed.name, &mut object) {
            Ok(()) => {}
            // Somebody has removed it meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        }
        see(&listed.name, check(&listed.name, &mut object, secret));
    }
    Ok(())
}

fn check(
    name: &ObjectName,
    object: &mut [u8],
    secret: Option<&Secret>,
) -> Result<ObjectInfo, Reject> {
    let secret = secret::of(object, secret);
    let info = block::info(secret::open(secret, object)?)?;
    let named = info.key == name.key && info.parent == name.parent && info.depth == name.depth;
    if named
        && key::child(
            secret.map(Secret::names).as_ref(),
            &info.parent,
            &info.tokens,
        ) == info.key
    {
        Ok(info)
    } else {
        Err(Reject::Foreign)
    }
}

/// Removes these objects and all that continue them, what no chain leads to, and then those of least worth until the rest
/// takes at most `budget_bytes`. Gives what is left.
///
/// # Errors
/// When the objects cannot be changed.
pub fn prune(
    objects: Arc<dyn Objects>,
    useless: &[Key],
    budget_bytes: u64,
) -> io::Result<StoreStats> {
    let config = StoreConfig {
        identity: [0; 32],
        block_tokens: BLOCK_TOKENS,
        block_bytes: 0,
        state_bytes: 0,
        budget_bytes,
        secret: None,
    };
    let shared = Shared::new(objects, config);
    let _held = Held::take(&*shared.objects)?;
    shared.renew()?;
    for key in useless {
        shared.remove(key)?;
    }
    shared.make_room(0, &shared.naming.root(0))?;
    let stats = shared.state().stats();
    Ok(stats)
}

#[cfg(test)]
mod tests;
