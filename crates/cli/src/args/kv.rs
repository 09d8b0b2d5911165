//! Options of the KV store on disk, and of `andante kv`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// The KV store of a server.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "KV on disk")]
pub(crate) struct KvDiskArgs {
    /// Folder that keeps the KV of prompts and answers across restarts; several servers may share one
    #[arg(long, value_name = "DIR", group = "kv_place")]
    pub(crate) kv_disk_dir: Option<PathBuf>,
    /// Bucket that keeps it instead, for servers of several machines: s3://bucket or s3://bucket/prefix, with the usual
    /// variables AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT (AWS_ALLOW_HTTP=true for one without TLS)
    #[cfg(feature = "s3")]
    #[arg(long, value_name = "URL", group = "kv_place")]
    pub(crate) kv_store: Option<String>,
    /// Most megabytes that the folder or bucket may take
    #[arg(long, value_name = "MB", default_value_t = 8192, requires = "kv_place")]
    pub(crate) kv_disk_space_mb: u64,
    /// Encrypt what is stored: a file of 32 bytes, or of 64 hexadecimal digits, that nobody else may read
    #[arg(long, value_name = "FILE", requires = "kv_place")]
    pub(crate) kv_encrypt_key_file: Option<PathBuf>,
}

/// What to do with a folder of stored KV.
#[derive(Subcommand, Debug)]
pub(crate) enum KvCommand {
    /// List the stored sequences: the last block of each, its length, when it was last of use
    Ls {
        /// A folder given to --kv-disk-dir
        dir: PathBuf,
    },
    /// Show the blocks of a sequence
    Show {
        /// A folder given to --kv-disk-dir
        dir: PathBuf,
        /// The first digits of a block's key, as `ls` shows it
        key: String,
        #[command(flatten)]
        secret: KeyFile,
    },
    /// Read every block and check it; fails when one is damaged
    Verify {
        /// A folder given to --kv-disk-dir
        dir: PathBuf,
        /// Remove damaged blocks and what continues them
        #[arg(long)]
        remove: bool,
        #[command(flatten)]
        secret: KeyFile,
    },
    /// Remove the blocks of least worth until the rest fits
    Prune {
        /// A folder given to --kv-disk-dir
        dir: PathBuf,
        /// Megabytes to keep; 0 removes all
        #[arg(long, value_name = "MB")]
        space_mb: u64,
    },
}

/// What the folder is encrypted with.
#[derive(Args, Debug)]
pub(crate) struct KeyFile {
    /// The file given to the server as --kv-encrypt-key-file
    #[arg(long = "kv-encrypt-key-file", value_name = "FILE")]
    pub(crate) path: Option<PathBuf>,
}
