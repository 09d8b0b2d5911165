//! Hashes the sources that decide the bits of keys and values, so that blocks of another arithmetic are never taken for
//! this one's: see `identity.rs`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Graphs, kernels, block formats.
const SOURCES: [&str; 3] = ["src", "../compute/src", "../gguf/src"];

fn main() -> io::Result<()> {
    let mut files = Vec::new();
    for folder in SOURCES {
        println!("cargo::rerun-if-changed={folder}");
        collect(Path::new(folder), &mut files)?;
    }
    files.sort();
    let mut hash = 0xcbf2_9ce4_8422_2325;
    for file in files {
        // The name counts, where the checkout stands does not.
        add(&mut hash, file.to_string_lossy().as_bytes());
        add(&mut hash, &fs::read(&file)?);
    }
    println!("cargo::rustc-env=ANDANTE_ARITHMETIC={hash:016x}");
    Ok(())
}

/// All sources below a folder but the tests.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        if name == "tests" || name == "tests.rs" {
            continue;
        }
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// FNV-1a with 64 bits (Fowler, Noll, Vo; draft-eastlake-fnv), over the length and the bytes.
fn add(hash: &mut u64, bytes: &[u8]) {
    for byte in (bytes.len() as u64).to_le_bytes().iter().chain(bytes) {
        *hash = (*hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
}
