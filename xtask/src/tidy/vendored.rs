//! What others wrote and the page brings along is what its manifest says: every file with its package, version, licence and checksum, and
//! no file beside those.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Where it lies.
const FOLDER: &str = "crates/server/web/vendor";
const MANIFEST: &str = "manifest.json";

/// Licences that allow what is done here.
const LICENCES: [&str; 3] = ["MIT", "BSD-3-Clause", "Apache-2.0 OR MPL-2.0"];

pub(super) fn check(root: &Path, breaches: &mut Vec<String>) -> Result<()> {
    let folder = root.join(FOLDER);
    let manifest = fs::read_to_string(folder.join(MANIFEST))
        .with_context(|| format!("cannot read {FOLDER}/{MANIFEST}"))?;
    let mut there = BTreeSet::new();
    for entry in fs::read_dir(&folder)? {
        there.insert(entry?.file_name().to_string_lossy().into_owned());
    }
    let read = |name: &str| fs::read(folder.join(name)).ok();
    check_manifest(&manifest, there, read, breaches)
}

/// `there` are the files of the folder, `read` gives what is in one.
pub(super) fn check_manifest(
    manifest: &str,
    mut there: BTreeSet<String>,
    read: impl Fn(&str) -> Option<Vec<u8>>,
    breaches: &mut Vec<String>,
) -> Result<()> {
    let rows: Vec<Value> = serde_json::from_str(manifest).context(MANIFEST)?;
    there.remove(MANIFEST);
    for row in &rows {
        let field = |name: &str| row[name].as_str().unwrap_or_default();
        for name in ["package", "version", "source"] {
            if field(name).is_empty() {
                breaches.push(format!("{FOLDER}/{MANIFEST}: no `{name}` in {row}"));
            }
        }
        let licence = field("licence");
        if !LICENCES.contains(&licence) {
            breaches.push(format!("{FOLDER}: `{licence}` is no licence known to fit"));
        }
        for (name, sum) in [("file", "sha256"), ("licence_file", "licence_sha256")] {
            let (file, expected) = (field(name), field(sum));
            there.remove(file);
            match read(file).map(|content| hexadecimal(&Sha256::digest(content))) {
                None => breaches.push(format!("{FOLDER}/{file} is missing")),
                Some(sum) if sum != expected => {
                    breaches.push(format!("{FOLDER}/{file} has the checksum {sum}"));
                }
                Some(_) => {}
            }
        }
    }
    breaches.extend(
        there
            .iter()
            .map(|file| format!("{FOLDER}/{file} is not in the manifest")),
    );
    Ok(())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}
