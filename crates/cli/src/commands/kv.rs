//! `andante kv`: what is in a folder of stored KV, and keeping it in order.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use andante_engine::{
    Folder, Key, Listed, ObjectInfo, ObjectName, Objects, Reject, inspect, prune, verify,
};
use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::args::{KeyFile, KvCommand};
use crate::objects;
use crate::output::print;

/// Digits of a key that are shown: enough to tell a million blocks apart.
const DIGITS: usize = 16;

/// Does what is asked.
pub(crate) fn run(command: &KvCommand) -> Result<()> {
    match command {
        KvCommand::Ls { dir } => ls(&open(dir)?),
        KvCommand::Show { dir, key, secret } => show(&open(dir)?, key, secret),
        KvCommand::Verify {
            dir,
            remove,
            secret,
        } => check(open(dir)?, *remove, secret),
        KvCommand::Prune { dir, space_mb } => {
            let left = prune(
                Arc::new(open(dir)?),
                &[],
                space_mb.saturating_mul(1_000_000),
            )?;
            print(format_args!(
                "{} blocks removed, {} of {:.1} MB left\n",
                left.evicted,
                left.blocks,
                mega(left.used_bytes)
            ))
        }
    }
}

fn open(dir: &Path) -> Result<Folder> {
    Folder::open(dir).with_context(|| format!("cannot read {}", dir.display()))
}

/// The sequences of each model, latest first.
fn ls(folder: &Folder) -> Result<()> {
    let listed = folder.list()?.objects;
    let parents: HashSet<Key> = listed.iter().map(|object| object.name.parent).collect();
    let names: HashMap<Key, ObjectName> = by_key(&listed);
    let mut models: BTreeMap<Key, Vec<&Listed>> = BTreeMap::new();
    for object in &listed {
        if !parents.contains(&object.name.key) {
            let first = chain(&names, object.name)[0];
            models.entry(first.parent).or_default().push(object);
        }
    }
    for (model, mut leaves) in models {
        leaves.sort_by_key(|object| std::cmp::Reverse(object.modified_s));
        print(format_args!(
            "model {}: {} sequences\n",
            short(&model),
            leaves.len()
        ))?;
        for leaf in leaves {
            print(format_args!(
                "  {}  {:6} blocks  last used {}\n",
                short(&leaf.name.key),
                leaf.name.depth + 1,
                local_time(leaf.modified_s)
            ))?;
        }
    }
    let bytes = listed.iter().map(|object| object.bytes).sum();
    print(format_args!(
        "{} blocks, {:.1} MB\n",
        listed.len(),
        mega(bytes)
    ))
}

/// The blocks from the beginning of a sequence to the one whose key begins so.
fn show(folder: &Folder, key: &str, secret: &KeyFile) -> Result<()> {
    let secret = objects::secret(secret.path.as_deref())?;
    let listed = folder.list()?.objects;
    let fits = |object: &&Listed| object.name.key.to_string().starts_with(key);
    let mut found = listed.iter().filter(fits);
    let last = found.next().context("no block has a key that begins so")?;
    if found.next().is_some() {
        bail!("several blocks have keys that begin so; give more digits");
    }
    let mut object = Vec::new();
    for name in chain(&by_key(&listed), last.name) {
        folder.get(&name, &mut object)?;
        match inspect(&mut object, secret.as_ref()) {
            Ok(info) => print_block(&info)?,
            Err(Reject::Sealed) => print(format_args!(
                "{}  encrypted with another key\n",
                short(&name.key)
            ))?,
            Err(_) => print(format_args!("{}  damaged\n", short(&name.key)))?,
        }
    }
    Ok(())
}

fn print_block(info: &ObjectInfo) -> Result<()> {
    print(format_args!(
        "{}  block {}, KV of {} bytes in {} ({:.0} %), tokens {:?}\n",
        short(&info.key),
        info.depth,
        info.kv_bytes,
        info.stored_bytes,
        100.0 * info.stored_bytes as f64 / info.kv_bytes.max(1) as f64,
        info.tokens
    ))
}

fn check(folder: Folder, remove: bool, secret: &KeyFile) -> Result<()> {
    let secret = objects::secret(secret.path.as_deref())?;
    let (mut whole, mut sealed, mut faults, mut printed) = (0, 0, Vec::new(), Ok(()));
    verify(&folder, secret.as_ref(), |name, found| match found {
        Ok(_) => whole += 1,
        Err(Reject::Sealed) => sealed += 1,
        Err(reject) => {
            if printed.is_ok() {
                printed = print(format_args!("{name}: {reject:?}\n"));
            }
            faults.push(name.key);
        }
    })?;
    printed?;
    if sealed > 0 {
        print(format_args!(
            "{sealed} blocks are encrypted with another key, and nobody can tell whether they are whole\n"
        ))?;
    }
    if remove {
        prune(Arc::new(folder), &faults, u64::MAX)?;
    } else if !faults.is_empty() {
        bail!(
            "{} of {} blocks are damaged; a server would compute them again, --remove takes them away",
            faults.len(),
            whole + faults.len()
        );
    }
    print(format_args!(
        "{whole} blocks are whole, {} were removed\n",
        faults.len()
    ))
}

fn by_key(listed: &[Listed]) -> HashMap<Key, ObjectName> {
    let entry = |object: &Listed| (object.name.key, object.name);
    listed.iter().map(entry).collect()
}

/// The blocks that lead to `last`, as far back as there are any.
fn chain(names: &HashMap<Key, ObjectName>, last: ObjectName) -> Vec<ObjectName> {
    let before = |name: &ObjectName| {
        let before = names.get(&name.parent)?;
        (before.depth < name.depth).then_some(*before)
    };
    let mut chain: Vec<ObjectName> = std::iter::successors(Some(last), before).collect();
    chain.reverse();
    chain
}

fn short(key: &Key) -> String {
    let mut digits = key.to_string();
    digits.truncate(DIGITS);
    digits
}

fn local_time(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).map_or_else(
        |_| "?".to_owned(),
        |time| {
            let time = time.to_zoned(TimeZone::system());
            time.strftime("%Y-%m-%d %H:%M:%S").to_string()
        },
    )
}

fn mega(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
